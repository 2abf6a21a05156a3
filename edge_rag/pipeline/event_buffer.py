"""The bounded buffer between a generator's thread and the event loop that reads its events."""

from __future__ import annotations

import asyncio
import threading
from typing import Generic, Protocol, TypeVar

Event = TypeVar("Event")


class Pausable(Protocol):
    """A producer of events. Methods may be called from any thread, also after its last event."""

    def pause(self) -> None:
        """Stops production until ``resume``."""
        ...

    def resume(self) -> None:
        """Continues production."""
        ...


class EventBuffer(Generic[Event]):
    """Carries the events of one answer from the generator's thread to an event loop. No method blocks.

    At ``capacity`` unread events the generator is paused; it is resumed once half of them are read. Events that it
    produces before the pause takes effect, one engine step's worth, come on top.

    Args:
        capacity: Unread events at which the generator is paused, at least 2.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, capacity: int) -> None:
        self._loop = loop
        self._capacity = capacity
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._lock = threading.Lock()
        self._unread = 0
        self._full = False
        self._producer: Pausable | None = None

    def attach(self, producer: Pausable) -> None:
        """Sets the producer to pause and resume; it may have put events already. Call on the loop's thread."""
        with self._lock:
            self._producer = producer
            if self._full:
                producer.pause()

    def put(self, event: Event) -> None:
        """Adds an event. Any thread; events of one thread keep their order."""
        with self._lock:
            self._unread += 1
            if self._unread >= self._capacity and not self._full:
                self._full = True
                if self._producer is not None:
                    self._producer.pause()
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def end(self) -> None:
        """Marks the end. Call on the loop's thread."""
        self._events.put_nowait(None)

    async def get(self) -> Event | None:
        """Waits for the next event and removes it; returns None at the end."""
        event = await self._events.get()
        with self._lock:
            self._unread -= 1
            if self._full and self._unread <= self._capacity // 2:
                self._full = False
                if self._producer is not None:
                    self._producer.resume()
        return event
