"""Which line of its source a character of a stored text is from; pure."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

UNKNOWN: Final = 0
"""Line number of a text whose line is unknown."""

MAX_LINE: Final = (1 << 31) - 1


class LineMap:
    """Where in a stored text the lines of its source begin; immutable by convention.

    The stored text joins lines that were broken for width and has none of the markup, so that it has other lines than
    its source. Numbers are kept for the places where they change, eight bytes each.

    Args:
        marks: (character, line) with ascending characters: from that one on the text is from that line, counted from 1,
            or from an unknown one (``UNKNOWN``).

    Raises:
        ValueError: A character does not follow the one before, or a number is negative or too large.
    """

    __slots__ = ("_characters", "_lines")

    def __init__(self, marks: Iterable[tuple[int, int]] = ()) -> None:
        self._characters = array("I")
        self._lines = array("I")
        try:
            for character, line in marks:
                self._characters.append(character)
                self._lines.append(line)
        except (OverflowError, TypeError) as error:
            raise ValueError("a mark of a line that is no number in range") from error
        if (
            any(before >= after for before, after in pairwise(self._characters))
            or max(self._lines, default=0) > MAX_LINE
        ):
            raise ValueError("marks of lines out of order or out of range")

    def __len__(self) -> int:
        return len(self._characters)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._characters, self._lines, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LineMap) and (self._characters, self._lines) == (other._characters, other._lines)

    def __hash__(self) -> int:
        return hash((bytes(self._characters), bytes(self._lines)))

    def __repr__(self) -> str:
        return f"LineMap({list(self)!r})"

    def line_at(self, character: int) -> int | None:
        """Returns the line, counted from 1, that a character is from; None if unknown."""
        place = bisect_right(self._characters, character) - 1
        return None if place < 0 else self._lines[place] or None

    def part(self, start: int, end: int) -> LineMap:
        """Returns the map of a range of the text; positions are still those of the whole text."""
        if start >= end:
            return NO_LINES
        first, last = bisect_right(self._characters, start) - 1, bisect_left(self._characters, end)
        marks = [(self._characters[place], self._lines[place]) for place in range(max(first, 0), last)]
        if marks and marks[0][0] < start:
            marks[0] = start, marks[0][1]
        return LineMap(marks)

    def steps(self) -> list[int]:
        """Returns it as numbers, two a mark: how much further its character and its line are."""
        steps: list[int] = []
        at, line_before = 0, 0
        for character, line in self:
            steps += (character - at, line - line_before)
            at, line_before = character, line
        return steps

    @classmethod
    def of_steps(cls, steps: Iterable[int]) -> LineMap:
        """Returns what ``steps`` returned the numbers of."""
        marks: list[tuple[int, int]] = []
        character = line = 0
        numbers = iter(steps)
        for further in numbers:
            more = next(numbers, None)
            if type(further) is not int or type(more) is not int:
                raise ValueError("a mark of a line that is no number in range")
            character, line = character + further, line + more
            marks.append((character, line))
        return cls(marks)


NO_LINES: Final = LineMap()
"""Map of a text whose source has no lines, or no known ones."""
