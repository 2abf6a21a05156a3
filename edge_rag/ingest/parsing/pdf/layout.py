"""From lines on pages to paragraphs, headings, items and table rows; pure.

A PDF states where letters are, not what they form. The rules are few and prefer joining too little:

- a short line in larger type than the body is a heading; the sizes found give the levels;
- a bullet or a small number starts a list item; wide gaps inside a line make it a table row;
- a line continues the paragraph above unless the gap between them is wide, the type changes, it is indented, or the
  line above ends a sentence well before the margin;
- a paragraph that is incomplete at the end of a page or column continues on the next one;
- a header or footer line that is on most pages is kept only where it is first found; page numbers are dropped.

A bold title in the size of the body counts as a paragraph.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from edge_rag.core.documents.document import Block, BlockKind
from edge_rag.ingest.parsing.document_builder import DocumentBuilder, space_between

_ITEM_START = re.compile(r"(?:[-*•◦▪‣·●○–]|\d{1,2}[.)])\s+(?=\S)")
_SENTENCE_END = re.compile(r"[.!?:;…。．！？：；؟؛۔।॥][\"'”’)\]»」』）】]*$")
_HYPHEN_AT_END = re.compile(r"([^\W\d_]+)[-\u2010]$")
_WORD_AT_START = re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_HEADING_SIZE = 1.12
_HEADING_CHARACTERS = 120
_SAME_SIZE = 0.08
_WIDE_GAP = 1.3
_INDENT_EM = 0.8
_SHORT_OF_MARGIN_EM = 4.0
_RUNNING_LINE_PAGES = 3
_TAIL = 100
_PAGE_NUMBER = re.compile(r"[\W_]*#[\W_#]*")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text on a page; lengths in points, y upwards.

    Attributes:
        size: Type size, above 0.
        characters: Ranges of the page's characters that its cells hold, in order.
    """

    cells: tuple[str, ...]
    left: float
    right: float
    bottom: float
    size: float
    margin: float
    characters: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block and the lines that it was made of.

    Attributes:
        lines: Its lines in order, each with its 1-based page.
        dropped: Visible characters at its beginning that are not in its text: a bullet or a number.
    """

    block: Block
    lines: tuple[tuple[int, Line], ...]
    dropped: int


@dataclass(slots=True)
class _OpenBlock:
    kind: BlockKind
    text: str
    lines: list[tuple[int, Line]]
    level: int
    dropped: int

    @property
    def last(self) -> Line:
        return self.lines[-1][1]


def add_pages(builder: DocumentBuilder, pages: Sequence[Sequence[Line]]) -> list[PlacedBlock]:
    """Appends the blocks of a document and returns them with their lines.

    Args:
        builder: Receives the blocks, each with the 1-based page on which it starts.
    """
    kept = _without_repeated_running_lines(pages)
    style = _Style.of(kept)
    placed: list[PlacedBlock] = []
    block: _OpenBlock | None = None

    def close() -> None:
        if block is None:
            return
        added = builder.add(block.kind, block.text, block.level, block.lines[0][0])
        if added is not None:
            placed.append(PlacedBlock(added, tuple(block.lines), block.dropped))

    for number, page in enumerate(kept, start=1):
        for position, line in enumerate(page):
            kind, text, level = style.classify(line)
            if block is not None and _continues(block, line, kind, text, position == 0, style):
                block.text = _join_lines(block.text, text, style.words)
                block.lines.append((number, line))
                continue
            close()
            dropped = len("".join(" ".join(line.cells).split())) - len("".join(text.split()))
            block = _OpenBlock(kind, text, [(number, line)], level, max(0, dropped))
    close()
    return placed


def body_size(pages: Sequence[Sequence[Line]]) -> float:
    """Returns the type size of most characters of a document, points."""
    characters = _characters_by_size(pages)
    return max(characters, key=lambda size: (characters[size], -size), default=10.0)


@dataclass(frozen=True, slots=True)
class _Style:
    """Typical values of the document: type size of the body, line pitch, heading sizes and vocabulary."""

    body: float
    pitch: float
    heading_sizes: tuple[float, ...]
    words: frozenset[str]

    @classmethod
    def of(cls, pages: Sequence[Sequence[Line]]) -> _Style:
        characters = _characters_by_size(pages)
        body = body_size(pages)
        larger = sorted((size for size in characters if size > _HEADING_SIZE * body), reverse=True)
        words = frozenset(
            word.lower() for page in pages for line in page for cell in line.cells for word in _WORD.findall(cell)
        )
        return cls(body, _pitch(pages, body), tuple(larger), words)

    def classify(self, line: Line) -> tuple[BlockKind, str, int]:
        """Returns kind, text without bullet, and heading level of a line considered alone."""
        text = " ".join(line.cells)
        if line.size > _HEADING_SIZE * self.body and len(text) <= _HEADING_CHARACTERS:
            rank = self.heading_sizes.index(_rounded(line.size)) if _rounded(line.size) in self.heading_sizes else 0
            return BlockKind.HEADING, text, min(rank + 1, 6)
        item = _ITEM_START.match(text)
        if item:
            return BlockKind.LIST_ITEM, text[item.end() :], 0
        if len(line.cells) > 1:
            return BlockKind.TABLE_ROW, " | ".join(line.cells), 0
        return BlockKind.PARAGRAPH, text, 0


def _continues(block: _OpenBlock, line: Line, kind: BlockKind, text: str, new_page: bool, style: _Style) -> bool:
    """Whether a line continues the block before it."""
    if not _same_size(block.last.size, line.size):
        return False
    if block.kind is BlockKind.HEADING:
        return kind is BlockKind.HEADING and not new_page and block.last.bottom - line.bottom < 1.5 * line.size
    if kind is not BlockKind.PARAGRAPH or block.kind is BlockKind.TABLE_ROW:
        return False
    ends_sentence = _SENTENCE_END.search(block.text, max(0, len(block.text) - _TAIL)) is not None
    if new_page or line.bottom > block.last.bottom:
        return not ends_sentence and text[0].islower()
    if block.last.bottom - line.bottom > _WIDE_GAP * style.pitch:
        return False
    if ends_sentence and block.last.right < block.last.margin - _SHORT_OF_MARGIN_EM * line.size:
        return False
    return block.kind is BlockKind.LIST_ITEM or line.left < block.last.left + _INDENT_EM * line.size


def _join_lines(above: str, below: str, words: frozenset[str]) -> str:
    """Joins two lines of a paragraph; a word hyphenated at the line break becomes whole.

    The hyphen stays if the document writes the word with a hyphen elsewhere, or if the next part is not lower case.
    """
    hyphen = _HYPHEN_AT_END.search(above, max(0, len(above) - _TAIL))
    rest = _WORD_AT_START.match(below)
    if not hyphen or not rest:
        return f"{above}{space_between(above, below)}{below}"
    head, tail = hyphen.group(1), rest.group()
    if f"{head}-{tail}".lower() in words or not tail[0].islower():
        return above + below
    return above[:-1] + below


def _without_repeated_running_lines(pages: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """Drops header and footer lines that most pages have, except on their first page, and all page numbers.

    If such a line is set apart from the body, digits are ignored in the comparison; otherwise only an identical line is
    a repetition, because lines of a log may differ in digits only.
    """
    pitch = _pitch(pages, body_size(pages))
    edges: Counter[str] = Counter()
    for page in pages:
        edges.update({_as_running_line(page, position, pitch) for position in {0, len(page) - 1} if page})
    running = {text for text, count in edges.items() if count >= _RUNNING_LINE_PAGES and 2 * count > len(pages)}
    met = {text for text in running if _PAGE_NUMBER.fullmatch(text)}
    kept: list[list[Line]] = []
    for page in pages:
        dropped: set[int] = set()
        for position in {0, len(page) - 1} if page else ():
            text = _as_running_line(page, position, pitch)
            if text in running:
                if text in met:
                    dropped.add(position)
                met.add(text)
        kept.append([line for position, line in enumerate(page) if position not in dropped])
    return kept


def _as_running_line(page: Sequence[Line], position: int, pitch: float) -> str:
    line = page[position]
    text = " ".join(line.cells)
    if len(page) == 1:
        return text
    beside = page[1 if position == 0 else position - 1]
    apart = abs(line.bottom - beside.bottom) > _WIDE_GAP * pitch or not _same_size(line.size, beside.size)
    return re.sub(r"\d+", "#", text) if apart else text


def _pitch(pages: Sequence[Sequence[Line]], body: float) -> float:
    pitches = [
        upper.bottom - lower.bottom
        for page in pages
        for upper, lower in pairwise(page)
        if _same_size(upper.size, lower.size) and 0 < upper.bottom - lower.bottom < 2.5 * lower.size
    ]
    return median(pitches) if pitches else 1.2 * body


def _characters_by_size(pages: Sequence[Sequence[Line]]) -> Counter[float]:
    characters: Counter[float] = Counter()
    for page in pages:
        for line in page:
            characters[_rounded(line.size)] += sum(len(cell) for cell in line.cells)
    return characters


def _same_size(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME_SIZE * max(one, other)


def _rounded(size: float) -> float:
    return round(2 * size) / 2
