"""The circuit breaker of a remote: after failures it is left alone for a while, then tried with one request.

CLOSED ── failures in a row ──> OPEN ── its time is over, one request ──> HALF_OPEN
  ^                              ^                                            │
  └────────── success ───────────┼────────────────────────────────────────────┤
                                 └───────────── failure, twice the time ──────┘
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

DOUBLINGS: Final = 6
"""How often the time a remote is left alone doubles."""


class BreakerState(Enum):
    """What becomes of requests for the remote."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class Breaker:
    """Immutable: each event gives the breaker after it. Times are seconds on one monotonic clock.

    Attributes:
        threshold: Failures in a row that open it, at least 1.
        rest_s: How long it is left alone the first time, above 0; doubles each time a probe fails.
        state: What it is in.
        failures: Failures in a row.
        trips: Probes that failed in a row, plus one while it is not closed.
        since: When it got into its state.
    """

    threshold: int = 3
    rest_s: float = 2.0
    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    trips: int = 0
    since: float = 0.0

    @property
    def open_s(self) -> float:
        """How long it stays open, seconds."""
        return self.rest_s * 2.0 ** min(max(self.trips - 1, 0), DOUBLINGS)

    def lets_through(self, now: float) -> bool:
        """Whether a request may be sent now; a probe that never reports back is given up after ``open_s``."""
        return self.state is BreakerState.CLOSED or now >= self.since + self.open_s

    def sent(self, now: float) -> Breaker:
        """A request was sent; it must have been let through."""
        if self.state is BreakerState.CLOSED:
            return self
        return replace(self, state=BreakerState.HALF_OPEN, since=now)

    def succeeded(self, now: float) -> Breaker:
        """A request went well."""
        if self.state is BreakerState.CLOSED:
            return replace(self, failures=0)
        return replace(self, state=BreakerState.CLOSED, failures=0, trips=0, since=now)

    def failed(self, now: float) -> Breaker:
        """A request failed. While it is open already, the ones sent before change nothing."""
        failures = self.failures + 1
        match self.state:
            case BreakerState.CLOSED if failures < self.threshold:
                return replace(self, failures=failures)
            case BreakerState.OPEN:
                return replace(self, failures=failures)
            case _:
                return replace(self, state=BreakerState.OPEN, failures=failures, trips=self.trips + 1, since=now)
