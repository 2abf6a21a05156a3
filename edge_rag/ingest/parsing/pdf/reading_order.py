"""The order in which the text of a page is read; pure.

The page is cut recursively, as in the XY-cut of G. Nagy and S. Seth, "Hierarchical representation of optically scanned
documents" (ICPR 1984), but led by the white between columns (``gutters``): the gutter with the most lines beside it
parts its stretch of the page into two columns, each cut on in the same way; what is above and below is read before and
after. So a heading or a figure's caption across all columns stays between what stands above and below it. Where no
gutter is between columns, lines are read from top to bottom, and a table's rows stay lines with their cells.

White gutters between columns of text; pure.

A gutter is a tall empty rectangle with text on both of its sides. All that are as tall as they can be are found in one
sweep down the page: the maximal white rectangles of T. Breuel, "Two Geometric Algorithms for Layout Analysis" (DAS
2002), on lines of text instead of single letters, so that a gutter is an interval that goes on from line to line.

Whether the white is between columns or inside a table is told by what stands on its sides: columns hold running text,
which fills them line by line, or lines that do not face each other; cells are short and do.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from statistics import median

from edge_rag.ingest.parsing.pdf.elements import Edge, Piece
from edge_rag.ingest.parsing.pdf.layout import Line
from edge_rag.ingest.parsing.pdf.tables import gather_ruled_rows

_LEAST_WIDTH = 0.55
_EASY_WIDTH = 1.0
_LINES = 3
_LINES_IF_NARROW = 6
_GUTTERS_AT_ONCE = 16
_GUTTERS_COUNTED = 64
_FACING = 0.7
_SHORT_CELL = 3.5
_RUNNING_TEXT = 7.0
_FILLED = 0.7
_FILLING_LINES = 0.5
_MARKER = re.compile(r"[-*•◦▪‣·●○–]|\(?[\dA-Za-z]{1,3}[.):]?")
_MARKER_WIDTH = 2.2
_CROSSING_RULES = 3


class White(Enum):
    """What a gutter stands between."""

    COLUMNS = "columns"
    CELLS = "cells"
    MARKERS = "markers"


@dataclass(frozen=True, slots=True)
class Band:
    """Pieces that stand beside each other: no horizontal cut goes between them."""

    pieces: tuple[Piece, ...]
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Gutter:
    """A white rectangle between pieces.

    Attributes:
        low: Left edge.
        high: Right edge.
        first: Its first band.
        last: Its last band.
    """

    low: float
    high: float
    first: int
    last: int


def bands(pieces: Sequence[Piece]) -> list[Band]:
    """Cuts a region horizontally wherever that is possible, from top to bottom."""
    found: list[Band] = []
    current: list[Piece] = []
    low = high = 0.0
    for piece in sorted(pieces, key=lambda piece: -piece.core[1]):
        bottom, top = piece.core
        if current and top <= low:
            found.append(Band(tuple(current), low, high))
            current = []
        if not current:
            low, high = bottom, top
        current.append(piece)
        low = min(low, bottom)
    if current:
        found.append(Band(tuple(current), low, high))
    return found


def gutters(region: Sequence[Band]) -> list[Gutter]:
    """Finds the gutters of a region that are tall enough to part columns, most lines on both sides first."""
    size = median(piece.size for band in region for piece in band.pieces)
    left = min(piece.left for band in region for piece in band.pieces)
    right = max(piece.right for band in region for piece in band.pieces)
    least = _LEAST_WIDTH * size
    found: list[Gutter] = []
    growing: dict[tuple[float, float], int] = {}
    for number, band in enumerate(region):
        white = _white(band, left, right, least)
        grown: dict[tuple[float, float], int] = {}
        for (low, high), first in growing.items():
            for start, end in white:
                part = max(low, start), min(high, end)
                if part[1] - part[0] >= least:
                    grown[part] = min(first, grown.get(part, number))
            if (low, high) not in grown:
                found.append(Gutter(low, high, first, number - 1))
        for part in white:
            grown.setdefault(part, number)
        oldest = sorted(grown.items(), key=lambda item: (item[1], item[0][0] - item[0][1]))
        growing = dict(oldest[:_GUTTERS_AT_ONCE])
    found += [Gutter(low, high, first, len(region) - 1) for (low, high), first in growing.items()]
    counts = _SideCounts(region)
    found.sort(key=lambda gutter: gutter.first - gutter.last)
    ranked = [(counts.lines(gutter), gutter) for gutter in found[:_GUTTERS_COUNTED]]
    tall = [
        (lines, gutter)
        for lines, gutter in ranked
        if lines >= (_LINES if gutter.high - gutter.low >= _EASY_WIDTH * size else _LINES_IF_NARROW)
    ]
    tall.sort(key=lambda item: (-item[0], item[1].first - item[1].last, item[1].low - item[1].high, item[1].low))
    return [gutter for _, gutter in tall]


def judge(region: Sequence[Band], gutter: Gutter, edges: Sequence[Edge]) -> White:
    """Says what a gutter stands between.

    Args:
        region: The bands that it was found in.
        gutter: A gutter of them.
        edges: Lines drawn on the page.
    """
    inside = region[gutter.first : gutter.last + 1]
    left = _Side.of([piece for band in inside for piece in band.pieces if piece.right <= gutter.low])
    right = _Side.of([piece for band in inside for piece in band.pieces if piece.left >= gutter.high])
    if left.is_markers():
        return White.MARKERS
    if _crossing(inside, gutter, edges) >= _CROSSING_RULES:
        return White.CELLS
    if min(left.usual_width, right.usual_width) < _SHORT_CELL:
        return White.CELLS
    if _facing(left, right) < _FACING or (left.is_running_text() and right.is_running_text()):
        return White.COLUMNS
    lines = sorted((piece.place, piece.left) for piece in (*left.pieces, *right.pieces))
    sides = [position >= gutter.high for _, position in lines]
    changes = sum(1 for before, after in pairwise(sides) if before != after)
    drawn_one_after_the_other = changes < min(len(left.baselines), len(right.baselines))
    return White.COLUMNS if drawn_one_after_the_other else White.CELLS


class _SideCounts:
    """Tells how many bands of a gutter have text on its left and on its right."""

    def __init__(self, region: Sequence[Band]) -> None:
        self._lefts = [min(piece.left for piece in band.pieces) for band in region]
        self._rights = [max(piece.right for piece in band.pieces) for band in region]

    def lines(self, gutter: Gutter) -> int:
        numbers = range(gutter.first, gutter.last + 1)
        left = sum(1 for number in numbers if self._lefts[number] < gutter.low)
        right = sum(1 for number in numbers if self._rights[number] > gutter.high)
        return min(left, right)


@dataclass(frozen=True, slots=True)
class _Side:
    """The lines on one side of a gutter; widths in heights of type, white inside a line not counted."""

    pieces: tuple[Piece, ...]
    baselines: tuple[float, ...]
    widths: tuple[float, ...]
    size: float

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> _Side:
        size = median(piece.size for piece in pieces)
        baselines: list[float] = []
        widths: list[float] = []
        for piece in sorted(pieces, key=lambda piece: piece.bottom):
            if baselines and piece.bottom - baselines[-1] < 0.3 * size:
                widths[-1] += (piece.right - piece.left) / size
            else:
                baselines.append(piece.bottom)
                widths.append((piece.right - piece.left) / size)
        return cls(tuple(pieces), tuple(baselines), tuple(widths), size)

    @property
    def usual_width(self) -> float:
        return median(self.widths)

    def is_markers(self) -> bool:
        short = max(piece.right - piece.left for piece in self.pieces) < _MARKER_WIDTH * self.size
        return short and all(_MARKER.fullmatch(" ".join(piece.cells)) for piece in self.pieces)

    def is_running_text(self) -> bool:
        most = (max(piece.right for piece in self.pieces) - min(piece.left for piece in self.pieces)) / self.size
        filling = sum(1 for width in self.widths if width >= _FILLED * most)
        return self.usual_width >= _RUNNING_TEXT and filling >= _FILLING_LINES * len(self.widths)


def _facing(left: _Side, right: _Side) -> float:
    """Share of the lines of the side with fewer that stand level with one of the other's."""
    few, many = sorted((left, right), key=lambda side: len(side.baselines))
    level = 0
    for baseline in few.baselines:
        position = bisect_left(many.baselines, baseline)
        near = many.baselines[max(position - 1, 0) : position + 1]
        level += any(abs(other - baseline) < 0.15 * few.size for other in near)
    return level / len(few.baselines)


def _crossing(inside: Sequence[Band], gutter: Gutter, edges: Sequence[Edge]) -> int:
    low, high = inside[-1].low, inside[0].high
    levels = {
        round(edge.at / 3)
        for edge in edges
        if edge.lies and low <= edge.at <= high and edge.start < gutter.low and edge.end > gutter.high
    }
    return len(levels)


def _white(band: Band, left: float, right: float, least: float) -> list[tuple[float, float]]:
    """The widest white parts of a band, from left to right; beyond its text they go on without end."""
    parts: list[tuple[float, float]] = []
    reached = left - 10 * least
    for piece in sorted(band.pieces, key=lambda piece: piece.left):
        if piece.left - reached >= least:
            parts.append((reached, piece.left))
        reached = max(reached, piece.right)
    if right + 10 * least - reached >= least:
        parts.append((reached, right + 10 * least))
    widest = sorted(parts, key=lambda part: part[0] - part[1])[:_GUTTERS_AT_ONCE]
    return sorted(widest)


MOST_PIECES = 8_000
"""Most pieces of a page that are put in order; where there are more, which no reader could read, they stay as drawn."""

LEFTWARD_LETTERS = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
"""Letters of scripts that are written from right to left: Hebrew, Arabic, Syriac, Thaana, N'Ko."""

_DEEPEST_CUT = 12
_GUTTERS_JUDGED = 4
_LOOKS_AT_A_PIECE = 12
_CELL_GAP = 1.0
_SET_APART = 1.6
_PIECES_LOOKED_AT = 100


def reading_order(pieces: Sequence[Piece], edges: Sequence[Edge]) -> list[Line]:
    """Returns the lines of a page in the order of reading; every piece is in exactly one.

    Columns are read from left to right, or from right to left where most letters are of scripts that are.

    Args:
        pieces: In the order of drawing.
        edges: Lines drawn on the page.
    """
    if not pieces:
        return []
    if len(pieces) > MOST_PIECES:
        margin = max(piece.right for piece in pieces)
        return [_line((piece,), margin) for piece in pieces]
    region = bands(gather_ruled_rows(pieces, edges))
    head, foot = _set_apart(region)
    margin = max(piece.right for piece in pieces)
    reader = _Reader(edges, _leftwards(pieces))
    parts = region[:head], region[head:foot], region[foot:]
    return [line for part in parts for line in reader.read(part, margin, _DEEPEST_CUT)]


class _Reader:
    """Cuts the regions of one page.

    Args:
        edges: Lines drawn on it.
        leftwards: Whether its columns and cells are read from right to left.
    """

    def __init__(self, edges: Sequence[Edge], leftwards: bool) -> None:
        self._edges = edges
        self._leftwards = leftwards
        self._pieces_left = _LOOKS_AT_A_PIECE * MOST_PIECES

    def read(self, region: Sequence[Band], margin: float, depth: int) -> Iterator[Line]:
        """Yields the lines of a region; what is below a cut is gone on with in the loop, so it costs no depth."""
        while region:
            cut = self._cut(region) if depth else None
            if cut is None:
                break
            gutter, white = cut
            yield from self.read(region[: gutter.first], margin, depth - 1)
            inside = region[gutter.first : gutter.last + 1]
            if white is White.COLUMNS:
                left = [piece for band in inside for piece in band.pieces if piece.right <= gutter.low]
                right = [piece for band in inside for piece in band.pieces if piece.left >= gutter.high]
                for column in (right, left) if self._leftwards else (left, right):
                    yield from self.read(bands(column), max(piece.right for piece in column), depth - 1)
            else:
                yield from _lines(inside, margin, self._leftwards)
            region = region[gutter.last + 1 :]
        yield from _lines(region, margin, self._leftwards)

    def _cut(self, region: Sequence[Band]) -> tuple[Gutter, White] | None:
        self._pieces_left -= sum(len(band.pieces) for band in region)
        if self._pieces_left < 0:
            return None
        for gutter in gutters(region)[:_GUTTERS_JUDGED]:
            white = judge(region, gutter, self._edges)
            if white is not White.MARKERS:
                return gutter, white
        return None


def _lines(region: Sequence[Band], margin: float, leftwards: bool) -> Iterator[Line]:
    """Reads a region without columns: what was drawn as one line stays one, what is level with it goes with it."""
    drawn: dict[int, list[Piece]] = {}
    for band in region:
        for piece in band.pieces:
            drawn.setdefault(piece.line, []).append(piece)
    for pieces in drawn.values():
        pieces.sort(key=lambda piece: piece.place)
    level: list[list[list[Piece]]] = []
    for pieces in sorted(drawn.values(), key=lambda pieces: (-pieces[0].bottom, pieces[0].line)):
        if level and abs(level[-1][0][0].bottom - pieces[0].bottom) < 0.3 * pieces[0].size:
            level[-1].append(pieces)
        else:
            level.append([pieces])
    for row in level:
        beside = sorted((_line(pieces, margin) for pieces in row), key=lambda line: line.left)
        if all(before.right <= after.left for before, after in pairwise(beside)):
            yield _joined(beside, leftwards)
        else:
            yield from (_line(pieces, margin) for pieces in row)


def _line(pieces: Sequence[Piece], margin: float) -> Line:
    """A line of the pieces that were drawn as one; gaps wider than its type is high part its cells."""
    size = pieces[0].size
    cells = list(pieces[0].cells)
    for before, after in pairwise(pieces):
        if after.left - before.right > _CELL_GAP * size:
            cells += after.cells
        else:
            cells[-1] += " " + after.cells[0]
            cells += after.cells[1:]
    left, right = min(piece.left for piece in pieces), max(piece.right for piece in pieces)
    return Line(tuple(cells), left, right, pieces[0].bottom, size, margin)


def _joined(beside: Sequence[Line], leftwards: bool) -> Line:
    ordered = list(reversed(beside)) if leftwards else beside
    cells = tuple(cell for line in ordered for cell in line.cells)
    size = max(line.size for line in beside)
    return Line(cells, beside[0].left, beside[-1].right, beside[0].bottom, size, beside[0].margin)


def _set_apart(region: Sequence[Band]) -> tuple[int, int]:
    """Where the body of a page begins and ends: a first and a last line with more white than usual are none of it."""
    steps = [upper.low - lower.low for upper, lower in pairwise(region)]
    if len(steps) < 4:
        return 0, len(region)
    size = median(piece.size for band in region for piece in band.pieces)
    wide = _SET_APART * max(size, median(steps))
    return int(steps[0] > wide), len(region) - int(steps[-1] > wide)


def _leftwards(pieces: Sequence[Piece]) -> bool:
    """Whether most letters are of scripts that are written from right to left."""
    text = "".join(cell for piece in pieces[:_PIECES_LOOKED_AT] for cell in piece.cells)
    return 2 * len(LEFTWARD_LETTERS.findall(text)) > sum(map(str.isalpha, text))
