"""The circuit breaker of a remote: after failures it gets no requests for a while, then one trial request.

CLOSED ── consecutive failures ──> OPEN ── open time passed, one request ──> HALF_OPEN
  ^                                 ^                                            │
  └─────────── success ─────────────┼────────────────────────────────────────────┤
                                    └──────────── failure, open time doubled ────┘
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

MAX_DOUBLINGS: Final = 6
"""How often the open time doubles at most."""


class BreakerState(Enum):
    """Whether requests are allowed."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """Immutable: each event returns the breaker after it. Times are seconds on one monotonic clock.

    Attributes:
        threshold: Consecutive failures that open it, at least 1.
        base_open_s: Open time after the first trip, above 0; doubles each time a trial fails.
        trips: Consecutive failed trials, plus one unless it is closed.
    """

    threshold: int = 3
    base_open_s: float = 2.0
    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    trips: int = 0
    since: float = 0.0

    @property
    def open_s(self) -> float:
        """Present open time, seconds."""
        return self.base_open_s * 2.0 ** min(max(self.trips - 1, 0), MAX_DOUBLINGS)

    def allows(self, now: float) -> bool:
        """Whether a request may be sent; a trial without an outcome is given up after ``open_s``."""
        return self.state is BreakerState.CLOSED or now >= self.since + self.open_s

    def on_attempt(self, now: float) -> CircuitBreaker:
        if self.state is BreakerState.CLOSED:
            return self
        return replace(self, state=BreakerState.HALF_OPEN, since=now)

    def on_success(self, now: float) -> CircuitBreaker:
        if self.state is BreakerState.CLOSED:
            return replace(self, failures=0)
        return replace(self, state=BreakerState.CLOSED, failures=0, trips=0, since=now)

    def on_failure(self, now: float) -> CircuitBreaker:
        """A request failed. An open breaker stays as it is: the request was sent before it opened."""
        failures = self.failures + 1
        match self.state:
            case BreakerState.CLOSED if failures < self.threshold:
                return replace(self, failures=failures)
            case BreakerState.OPEN:
                return replace(self, failures=failures)
            case _:
                return replace(self, state=BreakerState.OPEN, failures=failures, trips=self.trips + 1, since=now)
