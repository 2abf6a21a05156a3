"""The audit log: the latest events in memory, numbered, to be read and followed, and written to a rotated file."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile

from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEntry, AuditEvent


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A part of the log.

    Attributes:
        entries: In order of their numbers.
        last: Number of the newest entry considered; continue after it.
        dropped_entries: Entries of any request in the range that were no longer in memory.
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
        length: int,
        write: Callable[[AuditEntry], None] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=length)
        self._write = write
        self._clock = clock
        self._lock = threading.Lock()
        self._last = 0
        self._listeners: list[Callable[[], None]] = []
        self._closed = False

    def record(self, event: AuditEvent) -> None:
        """Appends an event and wakes followers."""
        with self._lock:
            self._last += 1
            entry = AuditEntry(self._last, self._clock(), event)
            self._entries.append(entry)
            if self._write is not None:
                self._write(entry)
            listeners = tuple(self._listeners)
        for wake in listeners:
            wake()

    def entries(self, request_id: RequestId | None = None, after: int = 0, limit: int | None = None) -> AuditPage:
        """Reads the log.

        Args:
            request_id: Only events of this request; None for all.
            after: Number after which to start; 0 starts with the first entry ever recorded.
            limit: Most entries, the latest ones; None for all.
        """
        with self._lock:
            last, kept = self._last, len(self._entries)
            newest_first = list(takewhile(lambda entry: entry.number > after, reversed(self._entries)))
        selected = [e for e in newest_first if request_id is None or e.event.request_id == request_id]
        return AuditPage(tuple(reversed(selected[:limit])), last, dropped_entries=max(0, last - kept - after))

    async def follow(self, after: int, request_id: RequestId | None = None) -> AsyncGenerator[AuditPage, None]:
        """Yields events as they are recorded; ends when the log is closed.

        Args:
            after: Number after which to start.
            request_id: Only events of this request; None for all.

        Yields:
            Pages with entries, or with dropped entries if the follower is slower than the recording.
        """
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the follower's event loop is gone
                loop.call_soon_threadsafe(changed.set)

        with self._listening(wake):
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
        """Ends all followers; recording and reading continue."""
        with self._lock:
            self._closed = True
            listeners = tuple(self._listeners)
        for wake in listeners:
            wake()

    @contextmanager
    def _listening(self, wake: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self._listeners.append(wake)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(wake)
