"""Which text of a document is whose: this box takes from the front, others from the back, until all are done. Pure.

FREE ── taken, here or elsewhere ──> TAKEN ── came back ──> FILLED
  ^                                   │                       │
  ├────────── failed there ───────────┘                       │
  └────────── who filled it turned out to lie ────────────────┘

Where nothing is free any more, this box may do what others have taken as well, and whoever is first fills it: so the
end of a document does not wait for a machine that is slow, as with MapReduce's backup tasks (Dean and Ghemawat, 2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

HERE: Final = ""
"""Stands for this box where those who fill are named."""

_FREE, _TAKEN, _FILLED = 0, 1, 2


class Pool:
    """Keeps count of texts by their position. Callers take care that one at a time uses it.

    Args:
        lengths: Characters of each text.
        longest: Longest text that may be taken elsewhere, characters.
    """

    def __init__(self, lengths: Sequence[int], longest: int) -> None:
        self._lengths = lengths
        self._longest = longest
        self._state = bytearray(len(lengths))
        self._filled_by: dict[int, str] = {}
        self._front, self._back = 0, len(lengths)

    @property
    def filled(self) -> int:
        """Number of texts that are done."""
        return len(self._filled_by)

    @property
    def is_full(self) -> bool:
        """Whether all of them are."""
        return self.filled == len(self._lengths)

    def take_here(self, most: int) -> range:
        """Takes up to so many free texts from the front; an empty range where none is free."""
        while self._front < len(self._state) and self._state[self._front] != _FREE:
            self._front += 1
        stop = self._front
        while stop < len(self._state) and stop - self._front < most and self._state[stop] == _FREE:
            stop += 1
        return self._taken(range(self._front, stop))

    def take_away(self, most: int, most_characters: int) -> range:
        """Takes free texts from the back, to be done elsewhere; an empty range where there are none.

        Args:
            most: Most texts.
            most_characters: Most characters of all of them, at least ``longest``.
        """
        while self._back > 0 and not self._may_leave(self._back - 1):
            self._back -= 1
        first, characters = self._back, 0
        while first > 0 and self._back - first < most and self._may_leave(first - 1):
            characters += self._lengths[first - 1]
            if characters > most_characters:
                break
            first -= 1
        return self._taken(range(first, self._back))

    def doubled(self, part: range, most: int) -> range:
        """Returns up to so many texts that somebody has and this box may do as well; takes none.

        Args:
            part: What somebody has.
            most: Most texts.
        """
        first = next((position for position in part if self._state[position] == _TAKEN), part.stop)
        stop = first
        while stop < part.stop and stop - first < most and self._state[stop] == _TAKEN:
            stop += 1
        return range(first, stop)

    def give_back(self, part: range) -> None:
        """Frees what was taken and is not done."""
        for position in part:
            if self._state[position] == _TAKEN:
                self._state[position] = _FREE
        self._freed(part)

    def fill(self, part: range, by: str) -> list[int]:
        """Notes that texts are done; returns those that were not done before."""
        fresh = [position for position in part if self._state[position] != _FILLED]
        for position in fresh:
            self._state[position] = _FILLED
            self._filled_by[position] = by
        return fresh

    def undo(self, by: str) -> int:
        """Frees all that somebody did; returns how many texts that is."""
        undone = [position for position, who in self._filled_by.items() if who == by]
        for position in undone:
            self._state[position] = _FREE
            del self._filled_by[position]
            self._freed(range(position, position + 1))
        return len(undone)

    def _may_leave(self, position: int) -> bool:
        return self._state[position] == _FREE and self._lengths[position] <= self._longest

    def _taken(self, part: range) -> range:
        for position in part:
            self._state[position] = _TAKEN
        return part

    def _freed(self, part: range) -> None:
        self._front, self._back = min(self._front, part.start), max(self._back, part.stop)
