"""The order in which the text of a page is read; pure.

The page is cut recursively, as in the XY-cut of G. Nagy and S. Seth, "Hierarchical representation of optically scanned
documents" (ICPR 1984), but led by the white between columns (``gutters``): the gutter with the most lines beside it
parts its stretch of the page into two columns, each cut on in the same way; what is above and below is read before and
after. So a heading or a figure's caption across all columns stays between what stands above and below it. Where no
gutter is between columns, lines are read from top to bottom, and a table's rows stay lines with their cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from edge_rag.ingest.parsing.pdf.elements import Edge, Piece
from edge_rag.ingest.parsing.pdf.gutters import Band, Gutter, White, bands, gutters, judge
from edge_rag.ingest.parsing.pdf.layout import Line
from edge_rag.ingest.parsing.pdf.tables import gather_ruled_rows

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
