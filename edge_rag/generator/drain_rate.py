"""How fast requests leave, for telling a refused one when to come back."""

from __future__ import annotations


class DrainRate:
    """Exponentially weighted mean of the time between two requests leaving while others waited.

    Args:
        weight: Weight of the latest interval, in (0, 1].
        assumed_s: Interval assumed until one was measured, seconds.
    """

    def __init__(self, weight: float = 0.2, assumed_s: float = 1.0) -> None:
        self._weight = weight
        self._interval = assumed_s
        self._last: float | None = None

    def left(self, now: float, others_wait: bool) -> None:
        """A request left.

        Args:
            now: When, seconds.
            others_wait: Whether the next interval measures work, not a lack of it.
        """
        if self._last is not None:
            self._interval += self._weight * (now - self._last - self._interval)
        self._last = now if others_wait else None

    def retry_after_s(self) -> float:
        """Returns when a place is likely to be free, in seconds, 0.05 to 60."""
        return min(max(self._interval, 0.05), 60.0)
