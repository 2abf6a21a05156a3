"""A lever that is let down where something is too much, and up again by and by where it is little: with hysteresis."""

from __future__ import annotations

from enum import Enum
from typing import Final

DOWN_AFTER: Final = 2
"""Looks in a row that must say too much before the lever goes down."""

FIRST_HOLD: Final = 5
"""Looks in a row that must say little before it goes up."""

LONGEST_HOLD: Final = 640
_FORGET: Final = 160


class LoadLevel(Enum):
    """What a look at the board says.

    EXTREME: far too much. TOO_MUCH: less must be done. BEARABLE: as it is. LITTLE: more could be done.
    """

    EXTREME = "extreme"
    TOO_MUCH = "too much"
    BEARABLE = "bearable"
    LITTLE = "little"


class HysteresisController:
    """A lever with notches from 0, nothing is held back, to ``lowest``. No clock: equal looks give equal notches.

    It goes down a notch after two looks that say too much, two at once where a look says that it is extreme. It goes up
    a notch when several looks in a row say little; between the two nothing happens.

    Where one notch is too warm and the next one cool, such a rule would go to and fro for ever. So when a notch that it
    just went up to proves too much, it waits twice as long before it goes up again, up to ``LONGEST_HOLD`` looks; that
    is forgotten when it was little for long with nothing held back.

    Args:
        lowest: Number of the lowest notch, at least 0.
    """

    def __init__(self, lowest: int) -> None:
        self._lowest = lowest
        self._notch = 0
        self._too_much = self._little = self._free = 0
        self._hold = FIRST_HOLD
        self._tried: int | None = None

    @property
    def notch(self) -> int:
        """Where the lever is."""
        return self._notch

    def observe(self, burden: LoadLevel) -> int:
        """Takes a look and returns where the lever is then."""
        above = burden in (LoadLevel.TOO_MUCH, LoadLevel.EXTREME)
        self._too_much = self._too_much + 1 if above else 0
        self._little = self._little + 1 if burden is LoadLevel.LITTLE else 0
        self._free = self._free + 1 if self._notch == 0 and burden is LoadLevel.LITTLE else 0
        if self._free >= _FORGET:
            self._hold, self._tried = FIRST_HOLD, None
        if burden is LoadLevel.EXTREME:
            self._down(2)
        elif self._too_much >= DOWN_AFTER:
            self._down(1)
        elif self._little >= self._hold and self._notch > 0:
            self._notch -= 1
            self._tried = self._notch
            self._little = 0
        return self._notch

    def _down(self, notches: int) -> None:
        if self._notch == self._lowest:
            return
        if self._tried is not None and self._notch <= self._tried:
            self._hold = min(2 * self._hold, LONGEST_HOLD)
        self._tried = None
        self._notch = min(self._lowest, self._notch + notches)
        self._too_much = 0
