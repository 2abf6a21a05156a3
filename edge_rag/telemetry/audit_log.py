"""The audit log: the latest events in memory, numbered, to be read and followed, and written to a rotated file."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from queue import Queue
from typing import Any, Final

import structlog

from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEntry, AuditEvent
from edge_rag.core.monitoring.followers import Followers
from edge_rag.core.shapes.encoder import encode
from edge_rag.core.visible_text import escape_invisible_json
from edge_rag.errors import ConfigurationError

ENTRIES: Final = 10_000
"""Events kept in memory."""

FILE_BYTES: Final = 16 << 20
"""Size at which the file is rotated."""

FILES_KEPT: Final = 4
"""Rotated files that are kept."""


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A part of the log.

    Attributes:
        entries: In order of their numbers.
        last: Number of the newest entry considered; continue after it.
    """

    entries: tuple[AuditEntry, ...]
    last: int
    dropped_entries: int


class AuditLog:
    """Keeps the latest events in memory. May be used from any thread.

    Args:
        length: Most entries kept, at least 1; the oldest are dropped.
        write: Called with every entry in order, on the recording thread; must return at once and not raise.
        clock: Wall clock, UTC.
    """

    def __init__(
        self,
        length: int = ENTRIES,
        write: Callable[[AuditEntry], None] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=length)
        self._write = write
        self._clock = clock
        self._lock = threading.Lock()
        self._last = 0
        self._followers = Followers()
        self._closed = False

    def record(self, event: AuditEvent) -> None:
        """Appends an event and wakes followers."""
        with self._lock:
            self._last += 1
            entry = AuditEntry(self._last, self._clock(), event)
            self._entries.append(entry)
            if self._write is not None:
                self._write(entry)
        self._followers.wake()

    def entries(
        self, request_id: RequestId | None = None, after: int = 0, limit: int | None = None, before: int | None = None
    ) -> AuditPage:
        """Reads the log.

        Args:
            request_id: Only events of this request; None for all.
            after: Number after which to start; 0 starts with the first entry ever recorded.
            limit: Most entries, the latest ones; None for all.
            before: Number before which to end; None for the latest entry.
        """
        with self._lock:
            last, kept = self._last, len(self._entries)
            newest_first = list(takewhile(lambda entry: entry.number > after, reversed(self._entries)))
        selected = [
            entry
            for entry in newest_first
            if (request_id is None or entry.event.request_id == request_id)
            and (before is None or entry.number < before)
        ]
        return AuditPage(tuple(reversed(selected[:limit])), last, dropped_entries=max(0, last - kept - after))

    async def follow(self, after: int, request_id: RequestId | None = None) -> AsyncGenerator[AuditPage, None]:
        """Yields events as they are recorded; ends when the log is closed.

        Args:
            after: Number after which to start.
            request_id: Only events of this request; None for all.

        Yields:
            Pages with entries, or with dropped entries if the follower is slower than the recording.
        """
        with self._followers.follow() as changed:
            while True:
                changed.clear()
                closed = self._closed
                page = self.entries(request_id, after)
                after = page.last
                if page.entries or page.dropped_entries:
                    yield page
                elif closed:
                    return
                else:
                    await changed.wait()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._followers.wake()


MAX_QUEUED_LINES: Final = 10_000
"""Lines that may wait for the disk; further ones are dropped and counted."""

log = structlog.get_logger()


class AuditLogFile:
    """Appends entries to a file on a thread of its own.

    Args:
        path: The file; older files have ``.1``, ``.2`` and so on appended to its name.
        older: Number of older files kept, at least 1.
    """

    def __init__(self, path: Path, max_bytes: int = FILE_BYTES, older: int = FILES_KEPT) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _LineFile(path, maxBytes=max_bytes, backupCount=older, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"audit.file: {path} cannot be written to: {error.strerror}") from error
        lines: Queue[Any] = Queue(MAX_QUEUED_LINES)
        self._handler = _BoundedQueueHandler(lines)
        self._listener = _Listener(lines, self._file)
        self._listener.start()

    @property
    def dropped(self) -> int:
        """Lines lost because the disk was too slow, full or broken."""
        return self._handler.dropped + self._file.dropped

    def write(self, entry: AuditEntry) -> None:
        """Queues an entry; returns at once. Any thread."""
        self._handler.handle(logging.makeLogRecord({"msg": entry}))

    def close(self) -> None:
        self._listener.stop()
        self._file.close()
        self._handler.close()
        if self.dropped:
            log.warning("audit lines were lost", lines=self.dropped)


class _BoundedQueueHandler(QueueHandler):
    """Puts records into a bounded queue unchanged."""

    def __init__(self, queue: Queue[Any]) -> None:
        super().__init__(queue)
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        self.dropped += 1


class _LineFile(RotatingFileHandler):
    """Writes a record's entry as a line."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.dropped = 0

    def format(self, record: logging.LogRecord) -> str:
        return escape_invisible_json(json.dumps(encode(record.msg), ensure_ascii=False))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if not self.dropped:
            log.warning("an audit line could not be written", file=self.baseFilename, exc_info=True)
        self.dropped += 1


class _Listener(QueueListener):
    """Puts its end marker into the queue with a blocking call, so that it also works with a full queue."""

    def __init__(self, lines: Queue[Any], file: logging.Handler) -> None:
        super().__init__(lines, file)
        self._lines = lines

    def enqueue_sentinel(self) -> None:
        self._lines.put(None)
