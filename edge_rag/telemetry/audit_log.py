"""The audit trail: the latest decisions, numbered, to be read and followed."""

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
    """A part of the trail.

    Attributes:
        entries: In order of their numbers.
        last: Number of the newest entry that was looked at; go on after it.
        dropped_entries: Entries, about whomever, that should have been looked at and were in the trail no more.
    """

    entries: tuple[AuditEntry, ...]
    last: int
    dropped_entries: int


class AuditLog:
    """Keeps the latest decisions in memory. May be used from any thread.

    Args:
        length: Most entries kept, at least 1; the oldest make room.
        write: Called with every entry in order, on the thread that records; must return at once and not raise.
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
        self._wakers: list[Callable[[], None]] = []
        self._closed = False

    def record(self, decision: AuditEvent) -> None:
        """Adds a decision; wakes whoever follows."""
        with self._lock:
            self._last += 1
            entry = AuditEntry(self._last, self._clock(), decision)
            self._entries.append(entry)
            if self._write is not None:
                self._write(entry)
            wakers = tuple(self._wakers)
        for wake in wakers:
            wake()

    def entries(self, request_id: RequestId | None = None, after: int = 0, limit: int | None = None) -> AuditPage:
        """Reads the trail.

        Args:
            request_id: About whom; None for all.
            after: Number after which to begin; 0 begins with the first entry there ever was.
            limit: Most entries, the latest ones; None for all.
        """
        with self._lock:
            last, held = self._last, len(self._entries)
            newest_first = list(takewhile(lambda entry: entry.number > after, reversed(self._entries)))
        chosen = [e for e in newest_first if request_id is None or e.event.request_id == request_id]
        return AuditPage(tuple(reversed(chosen[:limit])), last, dropped_entries=max(0, last - held - after))

    async def follow(self, after: int, request_id: RequestId | None = None) -> AsyncGenerator[AuditPage, None]:
        """Yields what is recorded, as it is; ends when the trail is closed.

        Args:
            after: Number after which to begin.
            request_id: About whom; None for all.

        Yields:
            Parts with entries, or with some dropped_entries: whoever reads slower than decisions are made finds gaps.
        """
        woken = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the follower's event loop is gone
                loop.call_soon_threadsafe(woken.set)

        with self._woken(wake):
            while True:
                woken.clear()
                closed = self._closed
                page = self.entries(request_id, after)
                after = page.last
                if page.entries or page.dropped_entries:
                    yield page
                elif closed:
                    return
                else:
                    await woken.wait()

    def close(self) -> None:
        """Ends whoever follows; recording and reading go on."""
        with self._lock:
            self._closed = True
            wakers = tuple(self._wakers)
        for wake in wakers:
            wake()

    @contextmanager
    def _woken(self, wake: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self._wakers.append(wake)
        try:
            yield
        finally:
            with self._lock:
                self._wakers.remove(wake)
