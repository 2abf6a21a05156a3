"""The engine's door: requests and cancellations from any thread, taken out by the engine's."""

from __future__ import annotations

import threading
from collections.abc import Callable

from edge_rag.errors import NotReady, Overloaded
from edge_rag.generator.live import LiveRequest
from edge_rag.generator.sequence import SequenceId


class Inbox:
    """Bounded, and blocking only for the engine while it has nothing to do.

    Args:
        capacity: Most requests that may wait for a first slot, at least 1.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._changed = threading.Condition()
        self._requests: list[LiveRequest] = []
        self._cancelled: list[SequenceId] = []
        self._waiting = 0
        self._last_id = 0
        self._refused = 0
        self._closing = False
        self._aborting = False

    @property
    def waiting(self) -> int:
        """Requests that have not had a slot yet."""
        return self._waiting

    @property
    def refused(self) -> int:
        """Requests turned away because too many waited."""
        return self._refused

    @property
    def aborting(self) -> bool:
        """Whether whatever is unfinished is to be given up."""
        return self._aborting

    def offer(self, make: Callable[[SequenceId], LiveRequest], retry_after_s: Callable[[], float]) -> SequenceId:
        """Takes a request in.

        Args:
            make: Makes it, given its id.
            retry_after_s: Asked when it has to be refused.

        Raises:
            Overloaded: Too many requests wait.
            NotReady: The engine is shutting down.
        """
        with self._changed:
            if self._closing:
                raise NotReady("the generator is shutting down")
            if self._waiting >= self.capacity:
                self._refused += 1
                raise Overloaded("generator", retry_after_s())
            self._last_id += 1
            request = make(SequenceId(self._last_id))
            self._requests.append(request)
            self._waiting += 1
            self._changed.notify()
            return request.sequence.id

    def cancel(self, sequence: SequenceId) -> None:
        """Asks for a request to be given up; nothing happens if it is over."""
        with self._changed:
            self._cancelled.append(sequence)
            self._changed.notify()

    def left_queue(self, count: int) -> None:
        """Requests got their first slot, or ended without one."""
        with self._changed:
            self._waiting -= count

    def close(self, abort: bool) -> None:
        """Refuses whatever comes from now on; with ``abort``, what is unfinished is given up at the next step."""
        with self._changed:
            self._closing = True
            self._aborting |= abort
            self._changed.notify()

    def take(self, idle: bool) -> tuple[list[LiveRequest], list[SequenceId]] | None:
        """Empties the inbox; for the engine.

        Args:
            idle: Whether there is nothing else to do; then this blocks until there is.

        Returns:
            New requests in order of arrival and cancellations; None once the inbox is closed and nothing is left to do.
        """
        with self._changed:
            while idle and not (self._requests or self._cancelled or self._closing):
                self._changed.wait()
            if self._aborting or (self._closing and idle and not self._requests):
                return None
            taken = self._requests, self._cancelled
            self._requests, self._cancelled = [], []
            return taken

    def drain(self) -> list[LiveRequest]:
        """Takes out the requests that were never looked at."""
        with self._changed:
            left, self._requests = self._requests, []
            return left
