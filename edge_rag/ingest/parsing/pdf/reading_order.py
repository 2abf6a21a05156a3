"""The reading order of the text on a page; pure.

The page is cut recursively, as in the XY-cut of G. Nagy and S. Seth, "Hierarchical representation of optically scanned
documents" (ICPR 1984), but led by the gaps between columns: the gap with the most lines on both sides divides its part
of the page into two columns, and each is cut again; parts above and below are read before and after. A heading or a
caption across all columns therefore stays in place. Without such gaps, lines are read from top to bottom, and rows of a
table stay lines with cells.

A column gap is a tall empty rectangle with text on both sides. All maximal ones are found in one sweep down the page:
the maximal white rectangles of T. Breuel, "Two Geometric Algorithms for Layout Analysis" (DAS 2002), on lines of text
instead of letters, so that a gap is an interval that continues from line to line. The text on both sides decides
whether a gap separates columns or cells of a table: columns hold running text, which fills their lines, or lines that
are not level with each other; cells are short and level.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from statistics import median

from edge_rag.ingest.parsing.pdf.elements import Edge, TextElement
from edge_rag.ingest.parsing.pdf.layout import Line
from edge_rag.ingest.parsing.pdf.tables import gather_ruled_rows

_LEAST_WIDTH = 0.55
_EASY_WIDTH = 1.0
_LINES = 3
_LINES_IF_NARROW = 6
_MAX_OPEN_GAPS = 16
_MAX_COUNTED_GAPS = 64
_FACING = 0.7
_SHORT_CELL = 3.5
_RUNNING_TEXT = 7.0
_FILLED = 0.7
_FILLING_LINES = 0.5
_MARKER = re.compile(r"[-*•◦▪‣·●○–]|\(?[\dA-Za-z]{1,3}[.):]?")
_MARKER_WIDTH = 2.2
_CROSSING_RULES = 3


class GapKind(Enum):
    """The parts that a gap separates."""

    COLUMNS = "columns"
    CELLS = "cells"
    MARKERS = "markers"


@dataclass(frozen=True, slots=True)
class Band:
    """Elements beside each other: no horizontal cut is possible between them."""

    elements: tuple[TextElement, ...]
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ColumnGap:
    """A white rectangle between elements."""

    low: float
    high: float
    first: int
    last: int


def bands(elements: Sequence[TextElement]) -> list[Band]:
    """Cuts a region horizontally wherever possible, from top to bottom."""
    found: list[Band] = []
    current: list[TextElement] = []
    low = high = 0.0
    for element in sorted(elements, key=lambda element: -element.core[1]):
        bottom, top = element.core
        if current and top <= low:
            found.append(Band(tuple(current), low, high))
            current = []
        if not current:
            low, high = bottom, top
        current.append(element)
        low = min(low, bottom)
    if current:
        found.append(Band(tuple(current), low, high))
    return found


def column_gaps(region: Sequence[Band]) -> list[ColumnGap]:
    """Finds the gaps of a region that are tall enough to separate columns; most lines on both sides first."""
    size = median(element.size for band in region for element in band.elements)
    left = min(element.left for band in region for element in band.elements)
    right = max(element.right for band in region for element in band.elements)
    least = _LEAST_WIDTH * size
    found: list[ColumnGap] = []
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
                found.append(ColumnGap(low, high, first, number - 1))
        for part in white:
            grown.setdefault(part, number)
        oldest = sorted(grown.items(), key=lambda item: (item[1], item[0][0] - item[0][1]))
        growing = dict(oldest[:_MAX_OPEN_GAPS])
    found += [ColumnGap(low, high, first, len(region) - 1) for (low, high), first in growing.items()]
    counts = _SideCounts(region)
    found.sort(key=lambda gap: gap.first - gap.last)
    ranked = [(counts.lines(gap), gap) for gap in found[:_MAX_COUNTED_GAPS]]
    tall = [
        (lines, gap)
        for lines, gap in ranked
        if lines >= (_LINES if gap.high - gap.low >= _EASY_WIDTH * size else _LINES_IF_NARROW)
    ]
    tall.sort(key=lambda item: (-item[0], item[1].first - item[1].last, item[1].low - item[1].high, item[1].low))
    return [gap for _, gap in tall]


def judge(region: Sequence[Band], gap: ColumnGap, edges: Sequence[Edge]) -> GapKind:
    """Decides which parts a gap separates."""
    inside = region[gap.first : gap.last + 1]
    left = _Side.of([element for band in inside for element in band.elements if element.right <= gap.low])
    right = _Side.of([element for band in inside for element in band.elements if element.left >= gap.high])
    if left.is_markers():
        return GapKind.MARKERS
    if _crossing(inside, gap, edges) >= _CROSSING_RULES:
        return GapKind.CELLS
    if min(left.typical_width, right.typical_width) < _SHORT_CELL:
        return GapKind.CELLS
    if _facing(left, right) < _FACING or (left.is_running_text() and right.is_running_text()):
        return GapKind.COLUMNS
    lines = sorted((element.position, element.left) for element in (*left.elements, *right.elements))
    sides = [position >= gap.high for _, position in lines]
    changes = sum(1 for before, after in pairwise(sides) if before != after)
    drawn_in_sequence = changes < min(len(left.baselines), len(right.baselines))
    return GapKind.COLUMNS if drawn_in_sequence else GapKind.CELLS


class _SideCounts:
    """Counts the bands of a gap with text on its left and on its right."""

    def __init__(self, region: Sequence[Band]) -> None:
        self._lefts = [min(element.left for element in band.elements) for band in region]
        self._rights = [max(element.right for element in band.elements) for band in region]

    def lines(self, gap: ColumnGap) -> int:
        numbers = range(gap.first, gap.last + 1)
        left = sum(1 for number in numbers if self._lefts[number] < gap.low)
        right = sum(1 for number in numbers if self._rights[number] > gap.high)
        return min(left, right)


@dataclass(frozen=True, slots=True)
class _Side:
    """The lines on one side of a gap; widths in type sizes, without white space inside a line."""

    elements: tuple[TextElement, ...]
    baselines: tuple[float, ...]
    widths: tuple[float, ...]
    size: float

    @classmethod
    def of(cls, elements: Sequence[TextElement]) -> _Side:
        size = median(element.size for element in elements)
        baselines: list[float] = []
        widths: list[float] = []
        for element in sorted(elements, key=lambda element: element.bottom):
            if baselines and element.bottom - baselines[-1] < 0.3 * size:
                widths[-1] += (element.right - element.left) / size
            else:
                baselines.append(element.bottom)
                widths.append((element.right - element.left) / size)
        return cls(tuple(elements), tuple(baselines), tuple(widths), size)

    @property
    def typical_width(self) -> float:
        return median(self.widths)

    def is_markers(self) -> bool:
        short = max(element.right - element.left for element in self.elements) < _MARKER_WIDTH * self.size
        return short and all(_MARKER.fullmatch(" ".join(element.cells)) for element in self.elements)

    def is_running_text(self) -> bool:
        most = (
            max(element.right for element in self.elements) - min(element.left for element in self.elements)
        ) / self.size
        filling = sum(1 for width in self.widths if width >= _FILLED * most)
        return self.typical_width >= _RUNNING_TEXT and filling >= _FILLING_LINES * len(self.widths)


def _facing(left: _Side, right: _Side) -> float:
    few, many = sorted((left, right), key=lambda side: len(side.baselines))
    level = 0
    for baseline in few.baselines:
        position = bisect_left(many.baselines, baseline)
        near = many.baselines[max(position - 1, 0) : position + 1]
        level += any(abs(other - baseline) < 0.15 * few.size for other in near)
    return level / len(few.baselines)


def _crossing(inside: Sequence[Band], gap: ColumnGap, edges: Sequence[Edge]) -> int:
    low, high = inside[-1].low, inside[0].high
    levels = {
        round(edge.at / 3)
        for edge in edges
        if edge.is_horizontal and low <= edge.at <= high and edge.start < gap.low and edge.end > gap.high
    }
    return len(levels)


def _white(band: Band, left: float, right: float, least: float) -> list[tuple[float, float]]:
    """Returns the widest white intervals of a band, from left to right; those at its ends are unbounded."""
    parts: list[tuple[float, float]] = []
    reached = left - 10 * least
    for element in sorted(band.elements, key=lambda element: element.left):
        if element.left - reached >= least:
            parts.append((reached, element.left))
        reached = max(reached, element.right)
    if right + 10 * least - reached >= least:
        parts.append((reached, right + 10 * least))
    widest = sorted(parts, key=lambda part: part[0] - part[1])[:_MAX_OPEN_GAPS]
    return sorted(widest)


MAX_ELEMENTS = 8_000
"""Most elements of a page that are ordered; a page with more is unreadable and stays in drawing order."""

RIGHT_TO_LEFT_LETTERS = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
"""Letters of right-to-left scripts: Hebrew, Arabic, Syriac, Thaana, N'Ko."""

_DEEPEST_CUT = 12
_MAX_JUDGED_GAPS = 4
_LOOKUPS_PER_ELEMENT = 12
_CELL_GAP = 1.0
_MARK_OVERLAP = 0.6
_ATTACHED = frozenset(("Mn", "Mc", "Po", "Pe", "Pf"))
"""Categories of marks and of punctuation that follow their word without a space."""
_BODY_GAP = 1.6
_SAMPLED_ELEMENTS = 100


def reading_order(elements: Sequence[TextElement], edges: Sequence[Edge]) -> list[Line]:
    """Returns the lines of a page in reading order; every element is in exactly one line.

    Columns are read from left to right, or from right to left if most letters are of right-to-left scripts.
    """
    if not elements:
        return []
    if len(elements) > MAX_ELEMENTS:
        margin = max(element.right for element in elements)
        return [_line((element,), margin) for element in elements]
    region = bands(gather_ruled_rows(elements, edges))
    head, foot = _body_range(region)
    reader = _RegionReader(edges, _right_to_left(elements))
    margin = reader.margin(elements)
    parts = region[:head], region[head:foot], region[foot:]
    return [line for part in parts for line in reader.read(part, margin, _DEEPEST_CUT)]


class _RegionReader:
    """Cuts the regions of one page."""

    def __init__(self, edges: Sequence[Edge], right_to_left: bool) -> None:
        self._edges = edges
        self._right_to_left = right_to_left
        self._elements_left = _LOOKUPS_PER_ELEMENT * MAX_ELEMENTS

    def margin(self, elements: Sequence[TextElement]) -> float:
        if self._right_to_left:
            return min(element.left for element in elements)
        return max(element.right for element in elements)

    def read(self, region: Sequence[Band], margin: float, depth: int) -> Iterator[Line]:
        """Yields the lines of a region. The part below a cut is handled in the loop, so it adds no recursion."""
        while region:
            cut = self._cut(region) if depth else None
            if cut is None:
                break
            gap, white = cut
            yield from self.read(region[: gap.first], margin, depth - 1)
            inside = region[gap.first : gap.last + 1]
            if white is GapKind.COLUMNS:
                left = [element for band in inside for element in band.elements if element.right <= gap.low]
                right = [element for band in inside for element in band.elements if element.left >= gap.high]
                for column in (right, left) if self._right_to_left else (left, right):
                    yield from self.read(bands(column), self.margin(column), depth - 1)
            else:
                yield from _lines(inside, margin, self._right_to_left)
            region = region[gap.last + 1 :]
        yield from _lines(region, margin, self._right_to_left)

    def _cut(self, region: Sequence[Band]) -> tuple[ColumnGap, GapKind] | None:
        self._elements_left -= sum(len(band.elements) for band in region)
        if self._elements_left < 0:
            return None
        for gap in column_gaps(region)[:_MAX_JUDGED_GAPS]:
            white = judge(region, gap, self._edges)
            if white is not GapKind.MARKERS:
                return gap, white
        return None


def _lines(region: Sequence[Band], margin: float, right_to_left: bool) -> Iterator[Line]:
    """Reads a region without columns: elements drawn as one line stay one; level elements are joined to them."""
    drawn: dict[int, list[TextElement]] = {}
    for band in region:
        for element in band.elements:
            drawn.setdefault(element.line, []).append(element)
    for elements in drawn.values():
        elements.sort(key=lambda element: element.position)
    level: list[list[list[TextElement]]] = []
    for elements in sorted(drawn.values(), key=lambda elements: (-elements[0].bottom, elements[0].line)):
        if level and abs(level[-1][0][0].bottom - elements[0].bottom) < 0.3 * elements[0].size:
            level[-1].append(elements)
        else:
            level.append([elements])
    for row in level:
        beside = sorted((_line(elements, margin) for elements in row), key=lambda line: line.left)
        if right_to_left:
            # Marks above and below letters reach over their neighbours. Lines are mirrored: they start at the left.
            overlap = _MARK_OVERLAP * beside[0].size
            if all(before.right <= after.left + overlap for before, after in pairwise(beside)):
                yield _mirrored(_joined_to_the_left(beside))
            else:
                yield from (_mirrored(_line(elements, margin)) for elements in row)
        elif all(before.right <= after.left for before, after in pairwise(beside)):
            yield _joined(beside)
        else:
            yield from (_line(elements, margin) for elements in row)


def _line(elements: Sequence[TextElement], margin: float) -> Line:
    """Makes a line of elements drawn as one; gaps wider than the type size separate its cells."""
    size = elements[0].size
    cells = list(elements[0].cells)
    for before, after in pairwise(elements):
        if max(after.left - before.right, before.left - after.right) > _CELL_GAP * size:
            cells += after.cells
        else:
            cells[-1] += " " + after.cells[0]
            cells += after.cells[1:]
    left, right = min(element.left for element in elements), max(element.right for element in elements)
    characters = tuple(each for element in elements for each in element.characters)
    return Line(tuple(cells), left, right, elements[0].bottom, size, margin, characters)


def _joined(beside: Sequence[Line]) -> Line:
    cells = tuple(cell for line in beside for cell in line.cells)
    size = max(line.size for line in beside)
    characters = tuple(each for line in beside for each in line.characters)
    return Line(cells, beside[0].left, beside[-1].right, beside[0].bottom, size, beside[0].margin, characters)


def _joined_to_the_left(beside: Sequence[Line]) -> Line:
    """Joins parts of a line from right to left. PDFium cuts such lines at marks and signs, so close parts are one."""
    whole = _joined(beside)
    cells = list(beside[-1].cells)
    for before, after in pairwise(reversed(beside)):
        if before.left - after.right > _CELL_GAP * whole.size:
            cells += after.cells
        else:
            attached = unicodedata.category(after.cells[0][:1] or " ") in _ATTACHED
            cells[-1] += ("" if attached else " ") + after.cells[0]
            cells += after.cells[1:]
    characters = tuple(each for line in reversed(beside) for each in line.characters)
    return replace(whole, cells=tuple(cells), characters=characters)


def _mirrored(line: Line) -> Line:
    return replace(line, left=-line.right, right=-line.left, margin=-line.margin)


def _body_range(region: Sequence[Band]) -> tuple[int, int]:
    """Returns where the body of a page starts and ends: a first or last line set apart by white space is not part of
    it.
    """
    steps = [upper.low - lower.low for upper, lower in pairwise(region)]
    if len(steps) < 4:
        return 0, len(region)
    size = median(element.size for band in region for element in band.elements)
    wide = _BODY_GAP * max(size, median(steps))
    return int(steps[0] > wide), len(region) - int(steps[-1] > wide)


def _right_to_left(elements: Sequence[TextElement]) -> bool:
    text = "".join(cell for element in elements[:_SAMPLED_ELEMENTS] for cell in element.cells)
    return 2 * len(RIGHT_TO_LEFT_LETTERS.findall(text)) > sum(map(str.isalpha, text))
