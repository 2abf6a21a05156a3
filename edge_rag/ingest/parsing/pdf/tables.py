"""Tables that are drawn with lines around their cells; pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from edge_rag.ingest.parsing.pdf.elements import Edge, Piece

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

    def holds(self, piece: Piece) -> bool:
        across, up = (piece.left + piece.right) / 2, (piece.bottom + piece.top) / 2
        return self.left <= across <= self.right and self.bottom <= up <= self.top


def gather_ruled_rows(pieces: Sequence[Piece], edges: Sequence[Edge]) -> list[Piece]:
    """Puts each row of a ruled table in the place of the pieces that stand in it.

    A table is two rows or more between horizontal lines of one length, most of which vertical lines divide. What is in
    one field of it, be it several lines, is one cell. Other pieces are returned as they are.

    Args:
        pieces: All of a page, in the order of drawing.
        edges: Lines drawn on the page.
    """
    rows = sorted(_rows(edges), key=lambda row: row.bottom)
    if not rows:
        return list(pieces)
    bottoms = [row.bottom for row in rows]
    tallest = max(row.top - row.bottom for row in rows)
    held: dict[int, list[Piece]] = {}
    kept: list[Piece] = []
    for piece in pieces:
        up = (piece.bottom + piece.top) / 2
        first, last = bisect_left(bottoms, up - tallest), bisect_left(bottoms, up)
        number = next((number for number in range(first, last) if rows[number].holds(piece)), None)
        if number is None:
            kept.append(piece)
        else:
            held.setdefault(number, []).append(piece)
    kept += [_row_piece(rows[number], inside) for number, inside in held.items()]
    return sorted(kept, key=lambda piece: piece.place)


def _row_piece(row: _Row, inside: Sequence[Piece]) -> Piece:
    fields: list[list[Piece]] = [[] for _ in range(len(row.separators) + 1)]
    for piece in inside:
        fields[bisect_left(row.separators, (piece.left + piece.right) / 2)].append(piece)
    cells = tuple(_cell_text(field) for field in fields if field)
    size = max(piece.size for piece in inside)
    bottom, top = min(piece.bottom for piece in inside), max(piece.top for piece in inside)
    first = min(inside, key=lambda piece: piece.place)
    return Piece(cells, row.left, row.right, bottom, top, size, first.line, first.place)


def _cell_text(field: Sequence[Piece]) -> str:
    """Text of one field: lines from top to bottom, as drawn within a line."""
    lines: list[list[Piece]] = []
    for piece in sorted(field, key=lambda piece: -piece.bottom):
        if lines and abs(lines[-1][0].bottom - piece.bottom) < 0.3 * piece.size:
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return " ".join(cell for line in lines for piece in sorted(line, key=lambda p: p.place) for cell in piece.cells)


def _rows(edges: Sequence[Edge]) -> Iterator[_Row]:
    rules: dict[tuple[int, int], list[Edge]] = {}
    for rule in _joined([edge for edge in edges if edge.lies]):
        rules.setdefault((round(rule.start / (2 * _TOUCH)), round(rule.end / (2 * _TOUCH))), []).append(rule)
    standing = sorted((edge for edge in edges if not edge.lies), key=lambda edge: edge.at)
    places = [edge.at for edge in standing]
    for same in rules.values():
        if len(same) <= _ROWS_OF_A_TABLE:
            continue
        left, right = max(rule.start for rule in same), min(rule.end for rule in same)
        between = standing[bisect_left(places, left + 2 * _TOUCH) : bisect_left(places, right - 2 * _TOUCH)]
        levels = sorted(rule.at for rule in same)
        rows = [
            _Row(left, right, bottom, top, tuple(_separators(between, bottom, top)))
            for bottom, top in pairwise(levels)
            if top - bottom >= _LOWEST_ROW
        ]
        divided = sum(1 for row in rows if row.separators)
        if divided >= _ROWS_OF_A_TABLE and 2 * divided >= len(rows):
            yield from rows


def _separators(standing: Sequence[Edge], bottom: float, top: float) -> Iterator[float]:
    before = None
    for edge in standing:
        if edge.start <= bottom + _TOUCH and edge.end >= top - _TOUCH and (before is None or edge.at - before > _TOUCH):
            before = edge.at
            yield edge.at


def _joined(lying: Sequence[Edge]) -> Iterator[Edge]:
    """Horizontal lines with those that go on where another ends made one."""
    levels: list[list[Edge]] = []
    for edge in sorted(lying, key=lambda edge: edge.at):
        if levels and edge.at - levels[-1][0].at <= _TOUCH:
            levels[-1].append(edge)
        else:
            levels.append([edge])
    for level in levels:
        start = end = None
        for edge in sorted(level, key=lambda edge: edge.start):
            if start is None or end is None or edge.start > end + _TOUCH:
                if start is not None and end is not None:
                    yield Edge(level[0].at, start, end, lies=True)
                start, end = edge.start, edge.end
            else:
                end = max(end, edge.end)
        if start is not None and end is not None:
            yield Edge(level[0].at, start, end, lies=True)
