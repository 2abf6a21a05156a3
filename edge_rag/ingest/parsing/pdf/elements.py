"""Elements of a page before they are put in reading order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextElement:
    """A stretch of text drawn in one operation; lengths in points, y upwards, text from left to right.

    Attributes:
        cells: Its text; several only for the row of a ruled table.
        size: Type size, above 0.
        line: Number of the line that it was drawn in; increases in drawing order.
        position: Position in drawing order; unique on the page.
        characters: Ranges of the page's characters that its cells hold, in order.
    """

    cells: tuple[str, ...]
    left: float
    right: float
    bottom: float
    top: float
    size: float
    line: int
    position: int
    characters: tuple[tuple[int, int], ...] = ()

    @property
    def core(self) -> tuple[float, float]:
        """Its vertical extent without the parts that may overlap adjacent lines."""
        return self.bottom + 0.3 * self.size, self.top - 0.3 * self.size


@dataclass(frozen=True, slots=True)
class Edge:
    """A thin drawn line, or one side of a drawn rectangle.

    Attributes:
        at: Its y if it is horizontal, else its x.
        end: End along the other axis, at or after ``start``.
    """

    at: float
    start: float
    end: float
    is_horizontal: bool
