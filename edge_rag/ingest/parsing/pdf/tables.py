"""Tables drawn with lines around their cells; pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from edge_rag.ingest.parsing.pdf.elements import Edge, TextElement

_TOUCH = 2.5
_LOWEST_ROW = 4.0
_ROWS_OF_A_TABLE = 2


@dataclass(frozen=True, slots=True)
class _Row:
    left: float
    right: float
    bottom: float
    top: float
    separators: tuple[float, ...]

    def holds(self, element: TextElement) -> bool:
        across, up = (element.left + element.right) / 2, (element.bottom + element.top) / 2
        return self.left <= across <= self.right and self.bottom <= up <= self.top


def gather_ruled_rows(elements: Sequence[TextElement], edges: Sequence[Edge]) -> list[TextElement]:
    """Replaces the elements in each row of a ruled table by one element for the row.

    A table has at least two rows between horizontal lines of one length, most of which vertical lines divide. All lines
    of text in one field form one cell. Other elements are returned unchanged.
    """
    rows = sorted(_rows(edges), key=lambda row: row.bottom)
    if not rows:
        return list(elements)
    bottoms = [row.bottom for row in rows]
    tallest = max(row.top - row.bottom for row in rows)
    held: dict[int, list[TextElement]] = {}
    kept: list[TextElement] = []
    for element in elements:
        up = (element.bottom + element.top) / 2
        first, last = bisect_left(bottoms, up - tallest), bisect_left(bottoms, up)
        number = next((number for number in range(first, last) if rows[number].holds(element)), None)
        if number is None:
            kept.append(element)
        else:
            held.setdefault(number, []).append(element)
    kept += [_row_element(rows[number], inside) for number, inside in held.items()]
    return sorted(kept, key=lambda element: element.position)


def _row_element(row: _Row, inside: Sequence[TextElement]) -> TextElement:
    fields: list[list[TextElement]] = [[] for _ in range(len(row.separators) + 1)]
    for element in inside:
        fields[bisect_left(row.separators, (element.left + element.right) / 2)].append(element)
    ordered = [_in_lines(field) for field in fields if field]
    cells = tuple(" ".join(cell for element in field for cell in element.cells) for field in ordered)
    characters = tuple(each for field in ordered for element in field for each in element.characters)
    size = max(element.size for element in inside)
    bottom, top = min(element.bottom for element in inside), max(element.top for element in inside)
    first = min(inside, key=lambda element: element.position)
    return TextElement(cells, row.left, row.right, bottom, top, size, first.line, first.position, characters)


def _in_lines(field: Sequence[TextElement]) -> list[TextElement]:
    """Returns the elements of a field: lines from top to bottom, each in drawing order."""
    lines: list[list[TextElement]] = []
    for element in sorted(field, key=lambda element: -element.bottom):
        if lines and abs(lines[-1][0].bottom - element.bottom) < 0.3 * element.size:
            lines[-1].append(element)
        else:
            lines.append([element])
    return [element for line in lines for element in sorted(line, key=lambda p: p.position)]


def _rows(edges: Sequence[Edge]) -> Iterator[_Row]:
    rules: dict[tuple[int, int], list[Edge]] = {}
    for rule in _joined([edge for edge in edges if edge.is_horizontal]):
        rules.setdefault((round(rule.start / (2 * _TOUCH)), round(rule.end / (2 * _TOUCH))), []).append(rule)
    vertical = sorted((edge for edge in edges if not edge.is_horizontal), key=lambda edge: edge.at)
    places = [edge.at for edge in vertical]
    for same in rules.values():
        if len(same) <= _ROWS_OF_A_TABLE:
            continue
        left, right = max(rule.start for rule in same), min(rule.end for rule in same)
        between = vertical[bisect_left(places, left + 2 * _TOUCH) : bisect_left(places, right - 2 * _TOUCH)]
        levels = sorted(rule.at for rule in same)
        rows = [
            _Row(left, right, bottom, top, tuple(_separators(between, bottom, top)))
            for bottom, top in pairwise(levels)
            if top - bottom >= _LOWEST_ROW
        ]
        divided = sum(1 for row in rows if row.separators)
        if divided >= _ROWS_OF_A_TABLE and 2 * divided >= len(rows):
            yield from rows


def _separators(vertical: Sequence[Edge], bottom: float, top: float) -> Iterator[float]:
    before = None
    for edge in vertical:
        if edge.start <= bottom + _TOUCH and edge.end >= top - _TOUCH and (before is None or edge.at - before > _TOUCH):
            before = edge.at
            yield edge.at


def _joined(horizontal: Sequence[Edge]) -> Iterator[Edge]:
    """Joins horizontal lines that continue each other."""
    levels: list[list[Edge]] = []
    for edge in sorted(horizontal, key=lambda edge: edge.at):
        if levels and edge.at - levels[-1][0].at <= _TOUCH:
            levels[-1].append(edge)
        else:
            levels.append([edge])
    for level in levels:
        start = end = None
        for edge in sorted(level, key=lambda edge: edge.start):
            if start is None or end is None or edge.start > end + _TOUCH:
                if start is not None and end is not None:
                    yield Edge(level[0].at, start, end, is_horizontal=True)
                start, end = edge.start, edge.end
            else:
                end = max(end, edge.end)
        if start is not None and end is not None:
            yield Edge(level[0].at, start, end, is_horizontal=True)
