"""The engine's door: requests and cancellations from any thread, taken out by the engine's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from edge_rag.engine.request import ActiveRequest
from edge_rag.engine.sequence import SequenceId
from edge_rag.errors import EdgeRagError, NotReady, Overloaded

IDLE_TURN_S: Final = 0.5
"""Longest time that an engine without work sits still, seconds; each turn shows that it is not stuck."""

Cancellation = tuple[SequenceId, EdgeRagError]
"""Which request is to be given up, and what it ends with."""


class CommandQueue:
    """Bounded, and blocking only for the engine while it has nothing to do.

    Args:
        capacity: Most requests that may wait for a first slot, at least 1.
        capacity_tokens: Most tokens that these may come to, prompts and answers together; None for no bound. A single
            request may wait however large it is, or it could never run.
    """

    def __init__(self, capacity: int, capacity_tokens: int | None = None) -> None:
        self.capacity = capacity
        self.capacity_tokens = capacity_tokens
        self._changed = threading.Condition()
        self._requests: list[ActiveRequest] = []
        self._cancelled: list[Cancellation] = []
        self._held: dict[SequenceId, bool] = {}
        self._forgotten: list[tuple[str, int]] = []
        self._waiting = 0
        self._waiting_tokens = 0
        self._last_id = 0
        self._refused = 0
        self._woken = False
        self._closing = False
        self._aborting = False

    @property
    def waiting(self) -> int:
        """Requests that have not had a slot yet."""
        return self._waiting

    @property
    def fill(self) -> dict[str, float]:
        """How full it is, by name."""
        fill: dict[str, float] = {
            "waiting_requests": self._waiting,
            "queue_requests": self.capacity,
            "waiting_tokens": self._waiting_tokens,
        }
        if self.capacity_tokens is not None:
            fill["queue_tokens"] = self.capacity_tokens
        return fill

    @property
    def refused(self) -> int:
        """Requests turned away because too many waited."""
        return self._refused

    @property
    def aborting(self) -> bool:
        """Whether whatever is unfinished is to be given up."""
        return self._aborting

    def offer(
        self, make: Callable[[SequenceId], ActiveRequest], tokens: int, retry_after_s: Callable[[int], float]
    ) -> SequenceId:
        """Takes a request in.

        Args:
            make: Makes it, given its id; called before anyone else can see it.
            tokens: What it may come to, prompt and answer together.
            retry_after_s: Asked when it has to be refused, with the tokens that have to leave first.

        Raises:
            Overloaded: Too many requests or tokens wait.
            NotReady: The engine is shutting down.
        """
        with self._changed:
            if self._closing:
                raise NotReady("the generator is shutting down")
            short = self._waiting_tokens + tokens - self.capacity_tokens if self.capacity_tokens is not None else 0
            if self._waiting >= self.capacity or (self._waiting and short > 0):
                self._refused += 1
                raise Overloaded("generator", retry_after_s(max(0, short)))
            request = make(self._next_id())
            self._requests.append(request)
            self._waiting += 1
            self._waiting_tokens += tokens
            self._changed.notify()
            return request.sequence.id

    def new_id(self) -> SequenceId:
        """Returns an id for a sequence that nobody asked for."""
        with self._changed:
            return self._next_id()

    def cancel(self, sequence: SequenceId, why: EdgeRagError) -> None:
        """Asks for a request to be given up; nothing happens if it is over."""
        with self._changed:
            self._cancelled.append((sequence, why))
            self._changed.notify()

    def hold(self, sequence: SequenceId, paused: bool) -> None:
        """Asks for a request to be paused, or to go on; nothing happens if it is over."""
        with self._changed:
            self._held[sequence] = paused
            self._changed.notify()

    def take_held(self) -> dict[SequenceId, bool]:
        """Returns which requests are to be paused and which to go on; to be asked after ``take``, for the engine."""
        with self._changed:
            taken, self._held = self._held, {}
            return taken

    def forget(self, trust_domain: str, epoch: int) -> None:
        """Asks for what is cached of a trust domain's epochs before this one to be dropped."""
        with self._changed:
            self._forgotten.append((trust_domain, epoch))
            self._changed.notify()

    def wake(self) -> None:
        """Has the engine go round once even if there is nothing to do."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def rest(self, seconds: float) -> None:
        """Sits still so long, or until the inbox is closed; for the engine."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)

    def take_forgotten(self) -> list[tuple[str, int]]:
        """Returns the trust domains whose cache is to be dropped, and their epochs; for the engine, after ``take``."""
        with self._changed:
            taken, self._forgotten = self._forgotten, []
            return taken

    def dequeued(self, tokens: int) -> None:
        """A request got its first slot, or ended without one.

        Args:
            tokens: What it was offered with.
        """
        with self._changed:
            self._waiting -= 1
            self._waiting_tokens -= tokens

    def close(self, abort: bool) -> None:
        """Refuses whatever comes from now on; with ``abort``, what is unfinished is given up at the next step."""
        with self._changed:
            self._closing = True
            self._aborting |= abort
            self._changed.notify()

    def take(self, idle: bool, live: bool) -> tuple[list[ActiveRequest], list[Cancellation]] | None:
        """Empties the inbox; for the engine.

        Args:
            idle: Whether there is nothing else to do; then this blocks until there is, at most ``IDLE_TURN_S``.
            live: Whether there are unfinished requests; those of an idle engine are paused, or wait for the disk.

        Returns:
            New requests in order of arrival and cancellations; None once the inbox is closed and nothing is left to do.
        """
        with self._changed:
            over = self._aborting or (self._closing and not live)
            if idle and not any((self._requests, self._cancelled, self._held, self._forgotten, self._woken, over)):
                self._changed.wait(IDLE_TURN_S)
            self._woken = False
            if self._aborting or (self._closing and not live and not self._requests):
                return None
            taken = self._requests, self._cancelled
            self._requests, self._cancelled = [], []
            return taken

    def _next_id(self) -> SequenceId:
        self._last_id += 1
        return SequenceId(self._last_id)

    def drain(self) -> list[ActiveRequest]:
        """Takes out the requests that were never looked at."""
        with self._changed:
            left, self._requests = self._requests, []
            return left


class DrainRate:
    """Exponentially weighted means of the time between two requests leaving while others waited, and of their size.

    Args:
        weight: Weight of the latest, in (0, 1].
        assumed_s: Interval assumed until one was measured, seconds.
    """

    def __init__(self, weight: float = 0.2, assumed_s: float = 1.0) -> None:
        self._weight = weight
        self._interval = assumed_s
        self._tokens: float | None = None
        self._last: float | None = None

    def left(self, now: float, others_wait: bool, tokens: int) -> None:
        """A request left.

        Args:
            now: When, seconds.
            others_wait: Whether the next interval measures work, not a lack of it.
            tokens: What it could come to, prompt and answer together.
        """
        if self._last is not None:
            self._interval += self._weight * (now - self._last - self._interval)
        self._tokens = tokens if self._tokens is None else self._tokens + self._weight * (tokens - self._tokens)
        self._last = now if others_wait else None

    def retry_after_s(self, tokens_short: int = 0) -> float:
        """Returns when there is likely to be room, in seconds, 0.05 to 60.

        Args:
            tokens_short: Tokens that have to leave first; at least one request has to in any case.
        """
        requests = max(1.0, tokens_short / self._tokens) if self._tokens else 1.0
        return min(max(self._interval * requests, 0.05), 60.0)
