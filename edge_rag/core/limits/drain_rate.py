"""When a request that was refused may be tried again."""

from __future__ import annotations


class DrainRate:
    """Exponentially weighted means of the interval between finished requests while others waited, and of their size.

    Args:
        weight: Weight of the latest sample, in (0, 1].
        assumed_s: Interval until one was measured, seconds.
    """

    def __init__(self, weight: float = 0.2, assumed_s: float = 1.0) -> None:
        self._weight = weight
        self._interval = assumed_s
        self._tokens: float | None = None
        self._last: float | None = None

    def left(self, now: float, others_wait: bool, tokens: int) -> None:
        """A request ended.

        Args:
            others_wait: Whether the next interval measures work; without waiting requests it would measure idle time.
        """
        if self._last is not None:
            self._interval += self._weight * (now - self._last - self._interval)
        self._tokens = tokens if self._tokens is None else self._tokens + self._weight * (tokens - self._tokens)
        self._last = now if others_wait else None

    def retry_after_s(self, tokens_short: int = 0) -> float:
        """Returns when a request is likely to be admitted, in seconds, 0.05 to 60.

        Args:
            tokens_short: Tokens that have to leave the queue first; at least one request has to in any case.
        """
        requests = max(1.0, tokens_short / self._tokens) if self._tokens else 1.0
        return min(max(self._interval * requests, 0.05), 60.0)
