"""The parts of a stored text: headings, tables and other text, found in a range of it; pure.

The blocks that a text was built of are not stored, but can be found exactly: a blank line ends a block, except in
code, where each piece is then a part. Chunks hold all text but headings, so the text between two chunks is a heading;
its level follows from the headings of the next chunk. Rows of a table are lines whose cells are divided by ``" | "``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_RANGE_CHARACTERS: Final = 16_384
"""Most characters of a range whose parts are found."""

MARGIN_CHARACTERS: Final = 4_096
"""Characters within which the begin of the first part and the end of the last one are looked for."""

_HEADER_SEARCH_ROWS: Final = 10
_SEPARATORS: Final = ("\n\n", "\n")
_BLANK_LINES: Final = re.compile(r"\n\n+")
_DIGIT: Final = re.compile(r"\d")
_CELL_END: Final = re.compile(r"(?:^| )\|(?= |$)")


class PartKind(Enum):
    """The kind of a part of a text."""

    HEADING = "heading"
    TABLE = "table"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell of a table. Where a row's label is the column's header, it is no part of the cell.

    Attributes:
        start: First character in the document's stored text.
        end: One past the last character.
        column: 0-based column.
        columns: Columns that it spans: all of them where it is not known which cells of a row are empty.
    """

    start: int
    end: int
    column: int
    columns: int = 1


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a document's text.

    Attributes:
        start: First character in the document's stored text.
        end: One past the last character.
        level: Level of a heading, 1 for the topmost; 0 for any other part.
        header: 0-based row of a table that has the names of its columns: the row whose cells label the rows below it,
            or a first row of different texts without digits above rows with digits. Null if there is none.
        rows: Rows of a table, each with its cells from left to right; empty cells at any place may be left out.
    """

    kind: PartKind
    start: int
    end: int
    level: int = 0
    columns: int = 0
    header: int | None = None
    rows: tuple[tuple[TableCell, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """The place of a chunk in the text, from which headings are found."""

    start: int
    end: int
    headings: tuple[str, ...]
    page: int | None = None


def whole_parts(text: str, at: int, start: int, end: int, characters: int) -> tuple[int, int]:
    """Returns a range that begins and ends between two parts, or else between two lines; ranges fit together.

    Args:
        at: Position of its first character in the document.
        end: One past the last one, after ``start``.
    """
    return at + _border(text, start - at, at, characters)[0], at + _border(text, end - at, at, characters)[1]


def _border(text: str, inside: int, at: int, characters: int) -> tuple[int, int]:
    """Returns the last border before a position of the text and the first one after it, or twice the position.

    A position is a border itself at the begin of a line, and in a line that is long on one side of it.
    """
    if at + inside in (0, characters) or text[inside - 1] == "\n":
        return inside, inside
    least, most = max(0, inside - MARGIN_CHARACTERS), min(len(text), inside + MARGIN_CHARACTERS)
    before = after = None
    for separator in _SEPARATORS:
        if before is None and (found := text.rfind(separator, least, inside)) >= 0:
            before = found + len(separator)
        if after is None and (found := text.find(separator, inside, most)) >= 0:
            after = found + len(separator)
        # The ends of the document are ends of parts.
        before = 0 if before is None and at + least == 0 else before
        after = characters - at if after is None and at + most == characters else after
    return (inside, inside) if before is None or after is None else (before, after)


def parts_of(text: str, at: int, chunks: Sequence[ChunkPlace]) -> Iterator[TextPart]:
    """Yields the parts of a range of a text in order; they hold all of it but white space between them.

    Args:
        at: Position of its first character in the document.
        chunks: Chunks of the document that have text in the range, and the next one, in order.
    """
    number = begin = 0
    while begin < len(text):
        found = _BLANK_LINES.search(text, begin)
        end = found.start() if found else len(text)
        start = at + begin
        block = text[begin:end]
        begin = found.end() if found else len(text)
        stripped = block.rstrip()
        if not stripped:
            continue
        skipped = len(block) - len(block.lstrip("\n"))
        stripped, start = stripped[skipped:], start + skipped
        past = start + len(stripped)
        while number < len(chunks) and chunks[number].end <= start:
            number += 1
        following = chunks[number] if number < len(chunks) else None
        if following is not None and past <= following.start:
            yield TextPart(PartKind.HEADING, start, past, _level(stripped, following.headings))
        else:
            yield _table(stripped, start) or TextPart(PartKind.TEXT, start, past)


def _level(heading: str, path: Sequence[str]) -> int:
    """Returns the 1-based position of a heading in the headings of the chunk below it; 1 if it was left out there."""
    return next((level for level in range(len(path), 0, -1) if path[level - 1] == heading), 1)


_Span = tuple[int, int]


def _table(block: str, start: int) -> TextPart | None:
    lines = list(_lines(block))
    if len(lines) < 2 or any(block[first].isspace() for first, _ in lines):
        return None
    rows = [_cells(block, *line) for line in lines]
    columns = max(map(len, rows))
    if columns < 2:
        return None
    labelled = _header(block, rows)
    labels = [] if labelled is None else _labels(block, rows[labelled])
    if labelled is not None:
        columns = len(labels)
    elif 2 * sum(len(row) == columns for row in rows) < len(rows):
        return None
    made: list[tuple[TableCell, ...]] = []
    for number, (row, line) in enumerate(zip(rows, lines, strict=True)):
        cells: Sequence[tuple[int, _Span]] | None = list(enumerate(row)) if len(row) == columns else None
        if labelled is not None and number > labelled:
            cells = _labelled(block, row, labels)
        if cells is None:
            made.append((TableCell(start + line[0], start + line[1], 0, columns),))
        else:
            made.append(tuple(TableCell(start + first, start + past, column) for column, (first, past) in cells))
    header = 0 if labelled is None and _names_columns(block, rows, columns) else labelled
    return TextPart(PartKind.TABLE, start, start + len(block), 0, columns, header, tuple(made))


def _names_columns(block: str, rows: Sequence[Sequence[_Span]], columns: int) -> bool:
    names = {block[first:past] for first, past in rows[0]}
    if len(names) != columns or "" in names or any(map(_DIGIT.search, names)):
        return False
    return any(_DIGIT.search(block, row[0][0], row[-1][1]) for row in rows[1:])


def _lines(block: str) -> Iterator[_Span]:
    begin = 0
    while begin < len(block):
        end = block.find("\n", begin)
        end = len(block) if end < 0 else end
        yield begin, end
        begin = end + 1


def _cells(block: str, begin: int, end: int) -> list[_Span]:
    """Returns where the cells of a line are, without the spaces around them; a cell may be empty."""
    line = block[begin:end]
    cells: list[_Span] = []
    first = 0
    for found in _CELL_END.finditer(line):
        cells.append(_stripped(block, begin + first, begin + found.start()))
        first = found.end()
    cells.append(_stripped(block, begin + first, end))
    return cells


def _stripped(block: str, begin: int, end: int) -> _Span:
    while begin < end and block[begin] == " ":
        begin += 1
    while begin < end and block[end - 1] == " ":
        end -= 1
    return begin, end


def _labels(block: str, row: Sequence[_Span]) -> list[str]:
    return [block[first:past].rstrip(":") for first, past in row]


def _header(block: str, rows: Sequence[Sequence[_Span]]) -> int | None:
    """Returns the row whose cells are the labels of the cells below it; None if there is none."""
    for number, row in enumerate(rows[:_HEADER_SEARCH_ROWS]):
        labels = _labels(block, row)
        if len(row) < 2 or number + 1 == len(rows) or not all(labels):
            continue
        if _labelled(block, rows[number + 1], labels) is not None:
            return number
    return None


def _labelled(block: str, row: Sequence[_Span], labels: Sequence[str]) -> list[tuple[int, _Span]] | None:
    """Returns the cells of a row like ``Part: Seal | Number: P-101`` with their columns; None if they have no labels.

    A piece without a label is the rest of the cell before it, whose text held the divider.
    """
    cells: list[tuple[int, _Span]] = []
    for first, past in row:
        if first == past:
            continue
        last = cells[-1][0] if cells else -1
        text = block[first:past]
        column = next((at for at in range(last + 1, len(labels)) if text.startswith(f"{labels[at]}: ")), None)
        if column is not None:
            cells.append((column, (first + len(labels[column]) + 2, past)))
        elif cells:
            cells[-1] = (last, (cells[-1][1][0], past))
        else:
            return None
    return cells
