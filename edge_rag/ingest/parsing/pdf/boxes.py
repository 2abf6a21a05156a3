"""Where the characters of a document's text are on its pages.

The text is made again by the same code from the same bytes, which keeps for each block of it the characters of the
pages that it was made of. Between the two there are only a few steps, which are all followed here: white space
and invisible characters, a bullet or number at the beginning of an item, a hyphen at the end of a line, bars between
the cells of a table, and Unicode normalization.
"""

from __future__ import annotations

import ctypes
import hashlib
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pypdfium2
import pypdfium2.raw as pdfium

from edge_rag.core.documents.document import ParsedDocument
from edge_rag.errors import BrokenDocument
from edge_rag.ingest.parsing.document_builder import normalize
from edge_rag.ingest.parsing.pages import PACKED, DocumentBoxes, PageBoxes, RelativeBox, relative_box
from edge_rag.ingest.parsing.pdf.layout import PlacedBlock
from edge_rag.ingest.parsing.pdf.ocr import Word
from edge_rag.ingest.parsing.pdf.page import DrawnText

MAX_CHARACTERS: Final = 200_000
"""Most characters whose boxes are read at once; a page that has more is read alone and whole."""

_HYPHENS: Final = "-\u2010"
_LINE_END: Final = "\x02\ufffe"
"""PDFium's marks for a hyphen at the end of a line."""

_BAR: Final = "|"
_PROBE: Final = 1 << 24
_PROBE_POINTS: Final = 100.0
"""Width and height of a device, and the length of an edge, by which the axes of a page are found."""


def document_boxes(
    document: pypdfium2.PdfDocument,
    parsed: ParsedDocument,
    placed: Sequence[PlacedBlock],
    scans: Mapping[int, Sequence[Word]],
    page: int,
) -> DocumentBoxes:
    """Returns the boxes of a page, and of the pages nearest to it as far as ``MAX_CHARACTERS`` go.

    Args:
        scans: Words of the pages that were read by OCR, by 1-based page.
        page: 1-based page number.
    """
    chosen = _nearest(placed, page)
    found = {number: bytearray() for number in sorted(chosen)}
    with ExitStack() as opened:
        pages: dict[int, _Page] = {}

        def characters_of(number: int) -> _Page:
            if number not in pages:
                pages[number] = _Page(document, number, scans.get(number), opened)
            return pages[number]

        for each in placed:
            if any(number in chosen for number, _ in each.lines):
                for position, number, line, source in _sources(each, parsed.text, characters_of):
                    box = pages[number].box(source) if number in chosen else None
                    if box is not None:
                        found[number] += PACKED.pack(position, line, *box)
        boxes = tuple(PageBoxes(number, *characters_of(number).size, bytes(each)) for number, each in found.items())
    return DocumentBoxes(hashlib.sha256(parsed.text.encode()).hexdigest(), boxes)


def _nearest(placed: Sequence[PlacedBlock], page: int) -> set[int]:
    sizes: dict[int, int] = {}
    for each in placed:
        for number, line in each.lines:
            sizes[number] = sizes.get(number, 0) + sum(end - first for first, end in line.characters)
    chosen, characters = {page}, sizes.get(page, 0)
    for number in sorted(sizes.keys() - chosen, key=lambda other: (abs(other - page), other)):
        characters += sizes[number]
        if characters > MAX_CHARACTERS:
            break
        chosen.add(number)
    return chosen


def _sources(
    placed: PlacedBlock, text: str, characters_of: Callable[[int], _Page]
) -> Iterator[tuple[int, int, int, int]]:
    """Yields for each character of a block: its position in the text, its page, line and position on the page."""
    units: list[Unit] = []
    places: list[tuple[int, int, int]] = []
    for number, line in placed.lines:
        for first, end in line.characters:
            for position, character in _code_points(characters_of(number).characters[first:end], first):
                ends_line = position == end - 1
                # Within a stretch of text, PDFium has joined the word itself.
                hyphen = "-" if ends_line else ""
                units.append(Unit(hyphen if character in _LINE_END else character, ends_line))
                places.append((number, first, position))
    block = placed.block
    for at, unit in enumerate(align(units, text[block.start : block.end], placed.dropped)):
        if unit is not None:
            yield (block.start + at, *places[unit])


class _Page:
    """The characters of a page, before they are a text, and where they are."""

    def __init__(
        self, document: pypdfium2.PdfDocument, number: int, scan: Sequence[Word] | None, opened: ExitStack
    ) -> None:
        try:
            page = document[number - 1]
            opened.callback(page.close)
            self.size: tuple[float, float] = page.get_size()
            self._words = scan
            if scan is not None:
                self.characters = "".join(word.text for word in scan)
                self._starts = [word.first for word in scan]
                return
            text_page = page.get_textpage()
            opened.callback(text_page.close)
        except pypdfium2.PdfiumError as error:
            raise BrokenDocument(f"page {number} is damaged: PDFium cannot read it") from error
        self._drawn = DrawnText(text_page)
        self.characters = self._drawn.characters
        self._origin, self._right, self._up = _axes(page)

    def box(self, position: int) -> RelativeBox | None:
        """Returns where a character is on the page as it is shown; None if it has no extent."""
        if self._words is not None:
            return self._words[bisect_right(self._starts, position) - 1].box
        left, bottom, right, top = self._drawn.loose_box(position, 0)
        (x, y), (across_x, down_x), (across_y, down_y) = self._origin, self._right, self._up
        across = [x + across_x * h + across_y * v for h in (left, right) for v in (bottom, top)]
        down = [y + down_x * h + down_y * v for h in (left, right) for v in (bottom, top)]
        return relative_box(min(across), min(down), max(across), max(down))


def _axes(page: pypdfium2.PdfPage) -> tuple[tuple[float, float], tuple[float, float], tuple[float, float]]:
    """Returns the relative place of a page's origin, and what a point to the right and a point upwards add to it.

    They carry the rotation of the page, and the part of it that is shown.
    """

    def place(x: float, y: float) -> tuple[float, float]:
        across, down = ctypes.c_int(), ctypes.c_int()
        pdfium.FPDF_PageToDevice(page, 0, 0, _PROBE, _PROBE, 0, x, y, ctypes.byref(across), ctypes.byref(down))
        return across.value / _PROBE, down.value / _PROBE

    origin, right, up = place(0, 0), place(_PROBE_POINTS, 0), place(0, _PROBE_POINTS)
    return (
        origin,
        ((right[0] - origin[0]) / _PROBE_POINTS, (right[1] - origin[1]) / _PROBE_POINTS),
        ((up[0] - origin[0]) / _PROBE_POINTS, (up[1] - origin[1]) / _PROBE_POINTS),
    )


@dataclass(frozen=True, slots=True)
class Unit:
    """A character of a page.

    Attributes:
        text: The character; empty if it stands for nothing.
        ends_line: Whether it is the last one of a stretch of text.
    """

    text: str
    ends_line: bool


def align(units: Sequence[Unit], text: str, dropped: int) -> list[int | None]:
    """Finds the unit that each character of a block came from; pure.

    Args:
        units: The characters that the block was made of, in order.
        dropped: Visible characters at the beginning that are not in the text.

    Returns:
        For each character of the text the index of its unit; None for white space and added characters.
    """
    found: list[int | None] = [None] * len(text)
    source = _decomposed([unit.text for unit in units])
    at, skipped = 0, set[int]()
    while at < len(source) and (source[at][1] in skipped or len(skipped) < dropped):
        skipped.add(source[at][1])
        at += 1
    for character, position in _decomposed(list(text)):
        while at < len(source) and source[at][0] != character and _may_be_missing(units[source[at][1]], source[at][0]):
            at += 1
        if at < len(source) and source[at][0] == character:
            if found[position] is None:
                found[position] = source[at][1]
            at += 1
        elif character != _BAR and not unicodedata.combining(character) and character != "\u034f":
            break  # nothing after this is known
    return found


def _decomposed(characters: Sequence[str]) -> list[tuple[str, int]]:
    """Returns the visible characters in Unicode normal form D, each with the index of the one that it is part of."""
    parts: list[tuple[str, int]] = []
    for index, character in enumerate(characters):
        if "!" <= character <= "~":
            parts.append((character, index))
            continue
        decomposed = unicodedata.normalize("NFD", normalize(character))
        parts += ((part, index) for part in decomposed if not part.isspace())
    return parts


def _may_be_missing(unit: Unit, part: str) -> bool:
    return bool(unicodedata.combining(part)) or (unit.ends_line and part in _HYPHENS)


def _code_points(text: str, first: int) -> Iterator[tuple[int, str]]:
    at = 0
    while at < len(text):
        pair = text[at : at + 2]
        if len(pair) == 2 and "\ud800" <= pair[0] <= "\udbff" and "\udc00" <= pair[1] <= "\udfff":
            yield first + at, pair.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
            at += 2
        else:
            yield first + at, text[at]
            at += 1
