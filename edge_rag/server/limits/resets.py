"""How often callers give up what they began: opening and resetting streams without end costs them next to nothing."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

_PER_SECOND: Final = 100.0
"""Calls that a caller may give up, on average."""

_AT_ONCE: Final = 300.0
"""Calls that it may give up at once, having given up none for a while."""

_HASTY: Final = 30.0
"""Calls given up lately that make it likely that a caller's next one is given up too."""

_REMEMBERED: Final = 4096
"""Callers that are remembered; of more, those whose calls are longest ago are forgotten."""


class Resets:
    """Counts calls given up, by caller, as token buckets (Turner, New Directions in Communications, 1986).

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def another(self, caller: str) -> bool:
        """Counts one; returns whether they are too many."""
        left = self._allowed(caller) - 1
        self._left.pop(caller, None)
        self._left[caller] = max(left, 0.0), self._clock()
        if len(self._left) > _REMEMBERED:
            del self._left[next(iter(self._left))]
        return left < 0

    def hasty(self, caller: str) -> bool:
        """Returns whether its next call may well be given up too."""
        return self._allowed(caller) < _AT_ONCE - _HASTY

    def _allowed(self, caller: str) -> float:
        now = self._clock()
        left, at = self._left.get(caller, (_AT_ONCE, now))
        return min(_AT_ONCE, left + (now - at) * _PER_SECOND)
