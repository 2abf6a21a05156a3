"""A page of a PDF: text elements and their positions from PDFium, put in reading order."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Iterator

import pypdfium2
import pypdfium2.raw as pdfium

from edge_rag.errors import BrokenDocument
from edge_rag.ingest.parsing.document_builder import space_between
from edge_rag.ingest.parsing.pdf.elements import Edge, TextElement
from edge_rag.ingest.parsing.pdf.layout import Line
from edge_rag.ingest.parsing.pdf.reading_order import RIGHT_TO_LEFT_LETTERS, reading_order

_LINE = re.compile(r"[^\r\n]+")
_HYPHENS_AT_LINE_END = frozenset("\x02\ufffe")
_ELEMENT_GAP = 0.4
_MAX_OBJECTS = 4_000
_THIN = 2.5
_LEAST_DOWNWARDS = 3
_ALEF_LAM = re.compile("[\u0622\u0623\u0625\u0627]\u0644")
_SEGMENTS_OF_A_RECTANGLE = (4, 5)

Box = tuple[float, float, float, float]


def read_page(document: pypdfium2.PdfDocument, index: int) -> list[Line]:
    """Reads a page. Text in other directions than most of the page follows at the end, one direction after another.

    Args:
        index: 0-based page number.

    Raises:
        BrokenDocument: PDFium cannot read it.
    """
    try:
        page = document[index]
        text_page = page.get_textpage()
    except pypdfium2.PdfiumError as error:
        raise BrokenDocument(f"page {index + 1} is damaged: PDFium cannot read it") from error
    by_direction: dict[int, list[TextElement]] = {}
    for position, (direction, line, text, box, characters) in enumerate(_texts(DrawnText(text_page))):
        by_direction.setdefault(direction, []).append(_element(text, box, line, position, characters))
    edges = _edges(page) if by_direction else []
    text_page.close()
    page.close()
    directions = sorted(by_direction, key=lambda direction: -len(by_direction[direction]))
    return [
        line
        for direction in directions
        for line in reading_order(by_direction[direction], [_turned_edge(edge, direction) for edge in edges])
    ]


class DrawnText:
    """The characters of a page as PDFium lists them, with their positions."""

    def __init__(self, text_page: pypdfium2.PdfTextPage) -> None:
        self._raw = text_page.raw
        read = pdfium.FPDFText_GetUnicode
        self.characters = "".join([chr(read(self._raw, position)) for position in range(text_page.count_chars())])
        self._sides = tuple(ctypes.c_double() for _ in range(4))
        self._references = tuple(ctypes.byref(side) for side in self._sides)
        self._loose = pdfium.FS_RECTF()
        self._loose_reference = ctypes.byref(self._loose)
        self.characters = _ALEF_LAM.sub(self._in_order, self.characters)

    def _in_order(self, found: re.Match[str]) -> str:
        """Puts the letters of an Arabic ligature in order: PDFium turns them around together with their line."""
        alef, lam = self.box(found.start(), 0), self.box(found.start() + 1, 0)
        return found[0][::-1] if alef == lam else found[0]

    def direction(self, position: int) -> int:
        """Returns the quarter turns clockwise that a character is drawn at."""
        angle: float = pdfium.FPDFText_GetCharAngle(self._raw, position)
        return round(2 * angle / math.pi) % 4

    def line_direction(self, first: int, end: int) -> int:
        """Returns the quarter turns clockwise by which a line's text goes to the right.

        East Asian text that is written downwards, in columns from right to left, reads as if turned by one.
        """
        direction = self.direction(first)
        if direction or end - first < _LEAST_DOWNWARDS or space_between(*self.characters[first : first + 2]):
            return direction
        above, below = self.loose_box(first, 0), self.loose_box(end - 1, 0)
        return int(above[1] - below[1] > abs(above[0] - below[0]))

    def box(self, position: int, direction: int) -> Box:
        """Returns the box of a character's ink, rotated so that its line runs to the right: left, bottom, right,
        top.
        """
        pdfium.FPDFText_GetCharBox(self._raw, position, *self._references)
        left, right, bottom, top = self._sides
        return _turned((left.value, bottom.value, right.value, top.value), direction)

    def loose_box(self, position: int, direction: int) -> Box:
        """Returns the box of a character, as wide as its advance and as high as its type."""
        pdfium.FPDFText_GetLooseCharBox(self._raw, position, self._loose_reference)
        box = self._loose
        return _turned((box.left, box.bottom, box.right, box.top), direction)


def _texts(drawn: DrawnText) -> Iterator[tuple[int, int, str, Box, tuple[int, int]]]:
    """Yields text in drawing order: quarter turns clockwise, line number, text, box, range of characters."""
    number = 0
    for found in _LINE.finditer(drawn.characters):
        number += 1
        for direction, characters, box, jumped in _line_texts(drawn, found.start(), found.end()):
            number += jumped
            yield direction, number, _join(drawn.characters[slice(*characters)]), box, characters


def _line_texts(drawn: DrawnText, first: int, end: int) -> Iterator[tuple[int, tuple[int, int], Box, bool]]:
    """Splits a line at gaps wider than a space between words, and reports where it jumps back.

    PDFium treats everything on one level as a line, also if the right column was drawn first or the rest runs in
    another direction. In right-to-left scripts going back is no jump.
    """
    characters = drawn.characters
    while first < end and characters[first].isspace():
        first += 1
    while end > first and characters[end - 1].isspace():
        end -= 1
    if first == end:
        return
    start, jumped, direction = first, False, drawn.line_direction(first, end)
    box = drawn.loose_box(first, direction)
    size = max(box[3] - box[1], 0.1)
    goes_right = not RIGHT_TO_LEFT_LETTERS.search(characters, first, end)
    position = characters.find(" ", first + 1, end - 1)
    while position != -1:
        before = drawn.box(position - 1, direction)
        after = drawn.box(position + 1, direction)
        level = after[1] < before[3] + size and after[3] > before[1] - size
        turned = direction if level else drawn.direction(position + 1)
        jumps = turned != direction or (goes_right and before[0] - after[2] > size)
        if jumps or after[0] - before[2] > _ELEMENT_GAP * size:
            if position > start:
                yield direction, (start, position), (box[0], box[1], before[2], box[3]), jumped
                jumped = False
            start, jumped, direction = position + 1, jumped or jumps, turned
            box = drawn.loose_box(start, direction)
            size = max(box[3] - box[1], 0.1)
        position = characters.find(" ", position + 1, end - 1)
    last = drawn.loose_box(end - 1, direction)
    whole = (min(box[0], last[0]), box[1], max(box[2], last[2]), box[3])
    yield direction, (start, end), whole, jumped


def _element(text: str, box: Box, line: int, position: int, characters: tuple[int, int]) -> TextElement:
    left, bottom, right, top = box
    top = max(top, bottom + 0.1)
    return TextElement((text,), left, max(left, right), bottom, top, top - bottom, line, position, (characters,))


def _turned(box: Box, direction: int) -> Box:
    left, bottom, right, top = box
    match direction:
        case 1:
            return -top, left, -bottom, right
        case 2:
            return -right, -top, -left, -bottom
        case 3:
            return bottom, -right, top, -left
        case _:
            return left, bottom, right, top


def _turned_edge(edge: Edge, direction: int) -> Edge:
    if not direction:
        return edge
    box = (edge.start, edge.at, edge.end, edge.at) if edge.is_horizontal else (edge.at, edge.start, edge.at, edge.end)
    left, bottom, right, top = _turned(box, direction)
    if edge.is_horizontal == (direction == 2):
        return Edge(bottom, left, right, is_horizontal=True)
    return Edge(left, bottom, top, is_horizontal=False)


def _edges(page: pypdfium2.PdfPage) -> list[Edge]:
    """Returns straight lines and sides of rectangles among the first objects of a page."""
    edges: list[Edge] = []
    sides = tuple(ctypes.c_float() for _ in range(4))
    for number in range(min(pdfium.FPDFPage_CountObjects(page), _MAX_OBJECTS)):
        drawn = pdfium.FPDFPage_GetObject(page, number)
        if pdfium.FPDFPageObj_GetType(drawn) != pdfium.FPDF_PAGEOBJ_PATH:
            continue
        if not pdfium.FPDFPageObj_GetBounds(drawn, *(ctypes.byref(side) for side in sides)):
            continue
        left, bottom, right, top = (side.value for side in sides)
        if top - bottom <= _THIN:
            edges.append(Edge((bottom + top) / 2, left, right, is_horizontal=True))
        elif right - left <= _THIN:
            edges.append(Edge((left + right) / 2, bottom, top, is_horizontal=False))
        elif pdfium.FPDFPath_CountSegments(drawn) in _SEGMENTS_OF_A_RECTANGLE:
            edges += (Edge(bottom, left, right, is_horizontal=True), Edge(top, left, right, is_horizontal=True))
            edges += (Edge(left, bottom, top, is_horizontal=False), Edge(right, bottom, top, is_horizontal=False))
    return edges


def _join(characters: str) -> str:
    """Joins UTF-16 units; PDFium's mark for a hyphen at a line end becomes a hyphen again."""
    if characters[-1] in _HYPHENS_AT_LINE_END:
        characters = characters[:-1] + "-"
    if characters.isascii():
        return characters
    return characters.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
