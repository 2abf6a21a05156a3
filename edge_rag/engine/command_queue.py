"""What other threads want of the engine: new requests, cancellations, pauses, invalidations, throttling, memory.

Any thread adds; the engine's thread takes everything at once, between two steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edge_rag.core.limits.drain_rate import DrainRate
from edge_rag.engine.request import ActiveRequest
from edge_rag.engine.sequence import SequenceId
from edge_rag.errors import EdgeRagError, NotReady, Overloaded

IDLE_TURN_S: Final = 0.5
"""Longest time that an idle engine blocks, seconds; each turn of the loop shows that it is alive."""


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands that came between two steps.

    Attributes:
        forgotten: Trust domains, and the epochs before which their cached pages are invalid.
        throttle: Share of slots, tokens and time to use, above 0 to 1.
    """

    requests: list[ActiveRequest]
    cancelled: list[tuple[SequenceId, EdgeRagError]]
    paused: dict[SequenceId, bool]
    forgotten: list[tuple[str, int]]
    throttle: float
    hold_batch: bool
    drop_cache: bool


class CommandQueue:
    """Bounded in requests and tokens; blocks only the engine's thread, and only while the engine is idle.

    Args:
        capacity: Most requests that may wait for a first slot, at least 1.
        capacity_tokens: Most tokens of their prompts and answers together; None for no bound. A request that waits
            alone may be larger.
    """

    def __init__(self, capacity: int, capacity_tokens: int | None = None) -> None:
        self.capacity = capacity
        self.capacity_tokens = capacity_tokens
        self._changed = threading.Condition()
        self._requests: list[ActiveRequest] = []
        self._cancelled: list[tuple[SequenceId, EdgeRagError]] = []
        self._paused: dict[SequenceId, bool] = {}
        self._forgotten: list[tuple[str, int]] = []
        self._throttle = 1.0
        self._hold_batch = self._drop_cache = False
        self._drain_rate = DrainRate()
        self._waiting = 0
        self._waiting_tokens = 0
        self._last_id = 0
        self._refused = 0
        self._woken = False
        self._closing = False
        self._aborting = False

    @property
    def waiting(self) -> int:
        return self._waiting

    @property
    def holds_batch(self) -> bool:
        return self._hold_batch

    @property
    def usage(self) -> dict[str, float]:
        """Waiting requests and tokens and their limits, by name, for audit events."""
        usage: dict[str, float] = {
            "waiting_requests": self._waiting,
            "queue_requests": self.capacity,
            "waiting_tokens": self._waiting_tokens,
        }
        if self.capacity_tokens is not None:
            usage["queue_tokens"] = self.capacity_tokens
        return usage

    @property
    def refused(self) -> int:
        """Requests refused because the queue was full."""
        return self._refused

    def submit(self, make: Callable[[SequenceId], ActiveRequest], tokens: int) -> SequenceId:
        """Adds a request.

        Args:
            make: Makes the request, given its id; called before the engine can see it.
        """
        with self._changed:
            if self._closing:
                raise NotReady("the generator is shutting down")
            short = self._waiting_tokens + tokens - self.capacity_tokens if self.capacity_tokens is not None else 0
            if self._waiting >= self.capacity or (self._waiting and short > 0):
                self._refused += 1
                raise Overloaded("generator", self._drain_rate.retry_after_s(max(0, short)))
            request = make(self._next_id())
            self._requests.append(request)
            self._waiting += 1
            self._waiting_tokens += tokens
            self._changed.notify()
            return request.sequence.id

    def new_id(self) -> SequenceId:
        with self._changed:
            return self._next_id()

    def cancel(self, sequence: SequenceId, error: EdgeRagError) -> None:
        with self._changed:
            self._cancelled.append((sequence, error))
            self._changed.notify()

    def set_paused(self, sequence: SequenceId, paused: bool) -> None:
        with self._changed:
            self._paused[sequence] = paused
            self._changed.notify()

    def forget(self, trust_domain: str, epoch: int) -> None:
        with self._changed:
            self._forgotten.append((trust_domain, epoch))
            self._changed.notify()

    def set_throttle(self, share: float) -> None:
        """Sets the share of slots, tokens and time to use, above 0 to 1."""
        with self._changed:
            self._throttle = share
            self._wake()

    def shed_memory(self, drop_cache: bool, hold_batch: bool) -> None:
        with self._changed:
            self._hold_batch = hold_batch
            self._drop_cache |= drop_cache
            self._wake()

    def wake(self) -> None:
        """Makes the loop take one turn even without commands."""
        with self._changed:
            self._wake()

    def sleep(self, seconds: float) -> None:
        """Blocks the engine's thread for so long, or until the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)

    def dequeued(self, tokens: int) -> None:
        """Counts a request that got its first slot, or ended without one."""
        with self._changed:
            self._waiting -= 1
            self._waiting_tokens -= tokens

    def finished(self, tokens: int, now: float) -> None:
        self._drain_rate.left(now, others_wait=self._waiting > 0, tokens=tokens)

    def close(self, abort: bool) -> None:
        with self._changed:
            self._closing = True
            self._aborting |= abort
            self._changed.notify()

    def take(self, idle: bool, active: bool) -> Commands | None:
        """Takes all commands; for the engine's thread.

        Args:
            idle: Whether there is nothing to compute; then this blocks until a command comes, ``IDLE_TURN_S`` at most.

        Returns:
            The commands; None once the queue is closed and nothing is left to do.
        """
        with self._changed:
            over = self._aborting or (self._closing and not active)
            if idle and not any((self._requests, self._cancelled, self._paused, self._forgotten, self._woken, over)):
                self._changed.wait(IDLE_TURN_S)
            self._woken = False
            if self._aborting or (self._closing and not active and not self._requests):
                return None
            taken = Commands(
                self._requests,
                self._cancelled,
                self._paused,
                self._forgotten,
                self._throttle,
                self._hold_batch,
                self._drop_cache,
            )
            self._requests, self._cancelled, self._paused, self._forgotten = [], [], {}, []
            self._drop_cache = False
            return taken

    def drain(self) -> list[ActiveRequest]:
        """Takes out the requests that the engine's thread has not taken."""
        with self._changed:
            left, self._requests = self._requests, []
            return left

    def _next_id(self) -> SequenceId:
        self._last_id += 1
        return SequenceId(self._last_id)

    def _wake(self) -> None:
        self._woken = True
        self._changed.notify()
