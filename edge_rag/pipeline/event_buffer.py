"""What lies between a generator that says something and a reader who takes it in: bounded, by having the one wait."""

from __future__ import annotations

import asyncio
import threading
from typing import Generic, Protocol, TypeVar

Event = TypeVar("Event")


class Pausable(Protocol):
    """Who speaks. Any thread, also when it is over."""

    def pause(self) -> None:
        """Has it wait until ``resume``."""
        ...

    def resume(self) -> None:
        """Lets it go on."""
        ...


class EventBuffer(Generic[Event]):
    """The events of one answer, on their way from the generator's thread to an event loop.

    Nobody blocks. A generator whose reader has ``capacity`` events before it is asked to pause, and to go on once half
    of them are taken; what it says until it has heard of that comes on top, a step's worth.

    Args:
        loop: The reader's; made on its thread.
        capacity: Events that may wait, at least 2.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, capacity: int) -> None:
        self._loop = loop
        self._capacity = capacity
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._full = False
        self._handle: Pausable | None = None

    def admitted(self, handle: Pausable) -> None:
        """Says how the generator is reached, which may have begun to speak; the loop's thread."""
        with self._lock:
            self._handle = handle
            if self._full:
                handle.pause()

    def put(self, event: Event) -> None:
        """Adds an event; any thread, and in order where it is one thread."""
        with self._lock:
            self._waiting += 1
            if self._waiting >= self._capacity and not self._full:
                self._full = True
                if self._handle is not None:
                    self._handle.pause()
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def end(self) -> None:
        """Marks the end; the loop's thread."""
        self._events.put_nowait(None)

    async def take(self) -> Event | None:
        """Waits for the next event and takes it; None at the end."""
        event = await self._events.get()
        with self._lock:
            self._waiting -= 1
            if self._full and self._waiting <= self._capacity // 2:
                self._full = False
                if self._handle is not None:
                    self._handle.resume()
        return event
