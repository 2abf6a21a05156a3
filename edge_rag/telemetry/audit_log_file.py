"""The audit trail as JSON lines in a file that is rotated by size. Whoever records never waits for the disk."""

from __future__ import annotations

import json
import logging
import math
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from queue import Queue
from typing import Any, Final, cast

import structlog

from edge_rag.core.monitoring.event import AuditEntry
from edge_rag.errors import ConfigurationError

MAX_QUEUED_LINES: Final = 10_000
"""Lines that may wait for the disk; further ones are dropped and counted."""

log = structlog.get_logger()


def entry_object(entry: AuditEntry) -> dict[str, Any]:
    """Returns an entry as a JSON object, whose shape is stable. A number that is not finite is null."""
    event = entry.event
    return {
        "number": entry.number,
        "at": entry.at.isoformat(),
        "monotonic_s": event.at_s,
        "kind": event.kind.value,
        "request_id": event.request_id,
        "client": event.client,
        "priority": None if event.priority is None else event.priority.name.lower(),
        "reason": event.reason,
        "preempted_for": event.preempted_for,
        "numbers": {name: value if math.isfinite(value) else None for name, value in event.numbers.items()},
    }


class AuditLogFile:
    """Appends entries to a file on a thread of its own.

    Args:
        path: The file; older files have ``.1``, ``.2`` and so on appended to its name.
        max_bytes: Size at which a new file is started.
        older: Number of older files kept, at least 1.

    Raises:
        ConfigurationError: The file cannot be opened.
    """

    def __init__(self, path: Path, max_bytes: int, older: int) -> None:
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
        """Writes the queued entries and closes the file."""
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
        return json.dumps(entry_object(cast(AuditEntry, record.msg)), ensure_ascii=False)

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
