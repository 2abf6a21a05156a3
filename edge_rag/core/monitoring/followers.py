"""Tasks that wait for changes which other threads make."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class Followers:
    """Wakes its followers at every change. May be used from any thread and any event loop.

    A follower that clears its event before it reads what changed misses nothing; one that is slower than the changes
    is woken once for several.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], None]] = []

    def wake(self) -> None:
        """Sets the events of all followers; call it after the change, without a lock that followers take."""
        with self._lock:
            wakers = tuple(self._wakers)
        for wake in wakers:
            wake()

    @contextmanager
    def follow(self) -> Iterator[asyncio.Event]:
        """Yields an event of the running loop that is set at every change."""
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the follower's event loop is gone
                loop.call_soon_threadsafe(changed.set)

        with self._lock:
            self._wakers.append(wake)
        try:
            yield changed
        finally:
            with self._lock:
                self._wakers.remove(wake)
