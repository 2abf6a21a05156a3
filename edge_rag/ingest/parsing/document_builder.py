"""Builds the stored text of a document from blocks, table rows and properties of any format."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from itertools import pairwise

from edge_rag.core.documents.document import Block, BlockKind, ParsedDocument
from edge_rag.core.documents.lines import UNKNOWN, LineMap
from edge_rag.core.documents.metadata import MetadataValue

LONGEST_TITLE = 1_000
"""Most characters of a title; a longer one is cut."""

_NEWLINE = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b\u2060\ufeff\ufffe\uffff]")
_SOURCE_BREAK = re.compile("\r\n|[\r\n\x0b\x0c\x85\u2028\u2029]")
_WORD = re.compile(r"\S+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WHITE_SPACE = re.compile(r"\s+")
_UNSPACED = (
    "\u2e80-\u303f\u3041-\u312f\u3190-\u4dbf\u4e00-\ua4cf\uf900-\ufaff\ufe10-\ufe1f\ufe30-\ufe4f\uff01-\uff9f"
    "\U0001b000-\U0001b2ff\U00020000-\U0003fffd"
)
"""Han, kana, their punctuation and full-width forms: a line break between two of them separates no words (CSS Text 3,
4.1.3). Not Hangul, which has spaces.
"""
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_UNSPACED_BREAK = re.compile(rf"(?<=[{_UNSPACED}])[^\S\n]*\n\s*(?=[{_UNSPACED}])")
_MOST_MARKS = 30
_GRAPHEME_JOINER = "\u034f"
_DEEPEST_HEADING = 6
_COMPACT = (BlockKind.LIST_ITEM, BlockKind.TABLE_ROW)


@cache
def _many_marks() -> re.Pattern[str]:
    """Returns the pattern of marks in a row; the daemon, which imports this and parses nothing, need not make it."""
    marks = "".join(chr(code) for code in range(0x300, 0x1F000) if unicodedata.combining(chr(code)))
    return re.compile(f"[{re.escape(marks)}]{{{_MOST_MARKS}}}")


def normalize(text: str) -> str:
    """Returns a text in Unicode normal form C, with ``\\n`` as its only line break and without invisible characters.

    Control characters, soft hyphens, zero-width spaces and byte order marks are removed; joiners stay, because scripts
    need them. Unpaired surrogates become U+FFFD. After each 30 combining marks in a row a combining grapheme joiner is
    inserted (Stream-Safe Text Format, Unicode Standard Annex 15): marks are sorted, which takes quadratic time.
    """
    text = _INVISIBLE.sub("", _NEWLINE.sub("\n", text))
    if text.isascii():
        return text
    text = _many_marks().sub(lambda marks: marks.group() + _GRAPHEME_JOINER, text)
    return unicodedata.normalize("NFC", _SURROGATE.sub("\ufffd", text))


def line_numbers(source: str) -> Sequence[int]:
    """Returns the 1-based line of a source that each line of its normalized text is on.

    Editors count ``\\n``, ``\\r\\n`` and ``\\r``; the other line breaks that ``normalize`` knows are within a line.
    """
    numbers = [1]
    for found in _SOURCE_BREAK.finditer(source):
        numbers.append(numbers[-1] + (found.group() in ("\n", "\r\n", "\r")))
    return numbers


def space_between(before: str, after: str) -> str:
    return "" if _UNSPACED_CHARACTER.match(before[-1:]) and _UNSPACED_CHARACTER.match(after) else " "


class DocumentBuilder:
    """Collects blocks; ``build`` joins them with blank lines, items of a list and rows of a table with line breaks.

    A line break never composes with the next character, so a text of normalized blocks is itself normalized.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._blocks: list[Block] = []
        self._length = 0
        self._marks: list[tuple[int, int]] = []

    def add(
        self,
        kind: BlockKind,
        text: str,
        level: int = 0,
        page: int | None = None,
        lines: Sequence[tuple[int, int]] = (),
    ) -> Block | None:
        """Appends a block and returns it; a block without visible text is left out.

        Args:
            kind: Structural role. White space becomes one space, and a line break between ideographs or kana nothing,
                except in CODE, where lines stay.
            level: Heading level, 1 for the topmost; 0 for any other block.
            page: 1-based page number, or None.
            lines: (character of ``text``, 1-based line of the source) where a line of the source begins, in order, the
                first at 0; empty if unknown.
        """
        given = text
        text = normalize(text)
        if kind is BlockKind.CODE:
            text = "\n".join(line.rstrip() for line in text.expandtabs(4).split("\n")).strip("\n")
        else:
            text = _WHITE_SPACE.sub(" ", _UNSPACED_BREAK.sub("", text)).strip()
        if not text or text.isspace():
            return None
        if self._blocks:
            compact = kind in _COMPACT and self._blocks[-1].kind is kind
            self._append("\n" if compact else "\n\n")
        start = self._length
        self._append(text)
        if lines or self._marks:
            self._mark(start, given, text, lines or ((0, UNKNOWN),))
        added = Block(kind, start, self._length, level, page)
        self._blocks.append(added)
        return added

    def append(self, document: ParsedDocument, below: int) -> None:
        """Appends the blocks of an embedded document, without its page numbers."""
        for block in document.blocks:
            level = min(below + block.level, _DEEPEST_HEADING) if block.level else 0
            self.add(block.kind, document.text[block.start : block.end], level)

    def build(
        self, title: str = "", pages: int | None = None, metadata: Mapping[str, MetadataValue] | None = None
    ) -> ParsedDocument:
        """Returns the document; its title is ``title`` or, if that is empty, its first heading of level 1."""
        text = "".join(self._parts)
        title = _WHITE_SPACE.sub(" ", normalize(title)).strip()
        if not title:
            top = next((block for block in self._blocks if block.level == 1), None)
            title = text[top.start : top.end] if top else ""
        lines = LineMap(self._marks)
        return ParsedDocument(title[:LONGEST_TITLE], text, tuple(self._blocks), pages, metadata or {}, lines=lines)

    def _mark(self, start: int, given: str, text: str, lines: Sequence[tuple[int, int]]) -> None:
        """Notes where lines of the source begin in a block: only white space differs from the text that was given."""
        found = [(0, lines[0][1])]
        if len(lines) > 1:
            words = _WORD.finditer(text)
            word = next(words, None)
            before = passed = 0  # visible characters before the line, and before the word
            for (at, _), (until, line) in pairwise(lines):
                before += _visible(normalize(given[at:until]))
                while word is not None and passed + len(word.group()) <= before:
                    passed += len(word.group())
                    word = next(words, None)
                if word is None:
                    break
                place = word.start() + before - passed
                begin = text.rfind("\n", 0, place) + 1
                found.append((begin if text[begin:place].isspace() else place, line))
        for place, line in found:
            if self._marks and self._marks[-1][0] >= start + place:
                self._marks.pop()
            if not self._marks or self._marks[-1][1] != line:
                self._marks.append((start + place, line))

    def _append(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)


def _visible(text: str) -> int:
    return sum(map(len, text.split()))


@dataclass(slots=True)
class _CellText:
    kind: BlockKind
    text: str
    level: int


@dataclass(slots=True)
class _Row:
    cells: list[list[_CellText]] = field(default_factory=list)


_DEEPEST_ROW = 20


class BlockWriter:
    """Writes blocks and table rows; a table inside a cell becomes text of that cell.

    A row of one cell is layout, not a table: its paragraphs and headings are written as such. Rows more than 20 deep
    become text of the cell around them, because the text of a row is copied into each row above it.
    """

    def __init__(self, builder: DocumentBuilder) -> None:
        self.page: int | None = None
        self._builder = builder
        self._rows: list[_Row] = []
        self._rows_below = 0

    def add(self, kind: BlockKind, text: str, level: int = 0) -> None:
        """Appends a block; the heading level is limited to 6."""
        level = min(level, _DEEPEST_HEADING)
        if self._rows and self._rows[-1].cells:
            self._rows[-1].cells[-1].append(_CellText(kind, text, level))
        else:
            self._builder.add(kind, text, level, self.page)

    def open_row(self) -> None:
        if len(self._rows) == _DEEPEST_ROW:
            self._rows_below += 1
        else:
            self._rows.append(_Row())

    def open_cell(self) -> None:
        if self._rows and not self._rows_below:
            self._rows[-1].cells.append([])

    def close_row(self) -> None:
        """Writes the innermost open row."""
        if self._rows_below:
            self._rows_below -= 1
            return
        if not self._rows:
            return
        row = self._rows.pop()
        if len(row.cells) == 1:
            for cell_text in row.cells[0]:
                self.add(cell_text.kind, cell_text.text, cell_text.level)
            return
        texts = (" ".join(cell_text.text.strip() for cell_text in cell).strip() for cell in row.cells)
        self.add(BlockKind.TABLE_ROW, " | ".join(text for text in texts if text))


_FIGURE = re.compile(r"[-+(]?[€$£¥]?\s?\d[\d\s.,:/%()Ee+-]*(?:[a-zA-Z%€$£¥°]{1,4})?")
_LONGEST_HEADER = 100
_HEADER_SEARCH_ROWS = 10


def add_records(builder: DocumentBuilder, rows: Iterable[Sequence[str]], line: Callable[[], int] | None = None) -> None:
    """Appends rows as ``Part: Seal | Number: P-101`` if the table has a header row, else as ``Seal | P-101``.

    The header is the first row with more than one cell, if every cell of it is a short text without digits and no other
    row is wider. Rows above it, such as a title, are written as they are. Empty cells are left out.

    Args:
        rows: Cells of each row, in order; rows may differ in length.
        line: Returns the 1-based line of the source on which the row that was read last begins; None if there are none.
    """
    remaining = ((row, UNKNOWN if line is None else line()) for row in rows)
    first: list[tuple[Sequence[str], int]] = []
    for row, begins in remaining:
        if any(cell.strip() for cell in row):
            first.append((row, begins))
        if len(first) == _HEADER_SEARCH_ROWS:
            break
    position = _header_position([row for row, _ in first])
    header: Sequence[str] = () if position is None else first[position][0]
    for number, (row, begins) in enumerate(first):
        _add(builder, row, header if position is not None and number > position else (), begins)
    for row, begins in remaining:
        _add(builder, row, header, begins)


def _add(builder: DocumentBuilder, row: Sequence[str], header: Sequence[str], line: int) -> None:
    cells: list[str] = []
    for column, cell in enumerate(row):
        text = cell.strip()
        label = header[column].strip().rstrip(":") if column < len(header) else ""
        if text:
            cells.append(f"{label}: {text}" if label else text)
    builder.add(BlockKind.TABLE_ROW, " | ".join(cells), lines=((0, line),) if line else ())


def _header_position(rows: Sequence[Sequence[str]]) -> int | None:
    """Returns the index of the header row, or None."""
    for position, row in enumerate(rows[:-1]):
        filled = [cell.strip() for cell in row if cell.strip()]
        if len(filled) < 2:
            continue
        below = max(sum(bool(cell.strip()) for cell in later) for later in rows[position + 1 :])
        short = all(len(cell) <= _LONGEST_HEADER and not _FIGURE.fullmatch(cell) for cell in filled)
        different = len({cell.lower() for cell in filled}) == len(filled)
        return position if short and different and below <= len(filled) + 1 else None
    return None


_PDF_TIME = re.compile(
    r"D:(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(?:(Z)|([+-])(\d\d)'?(\d\d)?)?",
)


def properties(
    title: str = "", author: str = "", created: datetime | None = None, modified: datetime | None = None
) -> dict[str, MetadataValue]:
    """Returns the properties that are given, under their conventional metadata keys."""
    given: dict[str, MetadataValue | None] = {
        "title": title.strip(),
        "author": author.strip(),
        "created": created,
        "modified": modified,
    }
    return {key: value for key, value in given.items() if value}


def iso_moment(text: str) -> datetime | None:
    """Parses a time of XML or HTML, UTC if it names no zone; None if it is not a time."""
    try:
        return _in_utc(datetime.fromisoformat(text.strip()))
    except ValueError:
        return None


def pdf_moment(text: str) -> datetime | None:
    """Parses a time of PDF (ISO 32000-2, 7.9.4), UTC if it names no zone; None if it is not a time."""
    found = _PDF_TIME.match(text)
    if not found:
        return None
    year, month, day, hour, minute, second, _, sign, hours, minutes = found.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0)) * (-1 if sign == "-" else 1)
    try:
        fields = (int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0))
        return _in_utc(datetime(*fields, tzinfo=timezone(offset)))
    except (ValueError, OverflowError):
        return None


def _in_utc(moment: datetime) -> datetime | None:
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        return None
