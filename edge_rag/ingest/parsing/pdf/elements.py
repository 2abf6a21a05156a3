"""What a page is made of before it is put in reading order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text that a file draws in one go; lengths in points, y grows upwards, text runs to the right.

    Attributes:
        cells: Its text; more than one only for the row of a ruled table.
        left: Left edge.
        right: Right edge.
        bottom: Lower edge.
        top: Upper edge.
        size: Height of its type, above 0.
        line: Pieces that were drawn as one line have the same number; it grows in the order of drawing.
        place: Its place in the order of drawing; no other piece of the page has it.
    """

    cells: tuple[str, ...]
    left: float
    right: float
    bottom: float
    top: float
    size: float
    line: int
    place: int

    @property
    def core(self) -> tuple[float, float]:
        """Its vertical extent without what may overlap the lines above and below."""
        return self.bottom + 0.3 * self.size, self.top - 0.3 * self.size


@dataclass(frozen=True, slots=True)
class Edge:
    """A thin drawn line, or one side of a drawn rectangle.

    Attributes:
        at: Its y if it lies, its x if it stands.
        start: Where it starts along the other axis.
        end: Where it ends, at or after ``start``.
        lies: Whether it is horizontal.
    """

    at: float
    start: float
    end: float
    lies: bool
