"""PDF: lines of text with their place on the page, read by PDFium."""

from __future__ import annotations

import pypdfium2
import pypdfium2.raw as pdfium

from edge_rag.core.document import ParsedDocument
from edge_rag.errors import BrokenDocument, DocumentTooLarge, EmptyDocument, EncryptedDocument
from edge_rag.retriever.parsing.builder import DocumentBuilder
from edge_rag.retriever.parsing.layout import Line, add_pages
from edge_rag.retriever.parsing.properties import pdf_moment, properties

_LINE_ENDS = frozenset("\r\n")
_HYPHENS_AT_LINE_END = frozenset("\x02\ufffe")
_CELL_GAP_EM = 1.0


def parse_pdf(content: bytes, max_pages: int) -> ParsedDocument:
    """Reads the text of a PDF, page by page.

    Args:
        content: The bytes.
        max_pages: Most pages that are read.

    Raises:
        EncryptedDocument: It needs a password.
        BrokenDocument: PDFium cannot read it, or one of its pages.
        DocumentTooLarge: It has more than ``max_pages`` pages.
        EmptyDocument: No page holds text.
    """
    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if error.err_code == pdfium.FPDF_ERR_PASSWORD:
            raise EncryptedDocument("it is encrypted and needs a password; save a copy without one") from error
        raise BrokenDocument("it is damaged or no PDF: PDFium cannot open it") from error
    with document:
        if len(document) > max_pages:
            raise DocumentTooLarge(f"it has {len(document)} pages, at most {max_pages} are read")
        pages = [_read_page(document, index) for index in range(len(document))]
        title = document.get_metadata_value("Title")
        said = properties(
            title,
            document.get_metadata_value("Author"),
            pdf_moment(document.get_metadata_value("CreationDate")),
            pdf_moment(document.get_metadata_value("ModDate")),
        )
    builder = DocumentBuilder()
    add_pages(builder, pages)
    parsed = builder.build(title, len(pages), said)
    if not parsed.text:
        raise EmptyDocument(
            f"none of its {len(pages)} pages holds text; if it is a scan, run text recognition (OCR) on it first"
        )
    return parsed


def _read_page(document: pypdfium2.PdfDocument, index: int) -> list[Line]:
    try:
        page = document[index]
        text_page = page.get_textpage()
    except pypdfium2.PdfiumError as error:
        raise BrokenDocument(f"page {index + 1} is damaged: PDFium cannot read it") from error
    lines: list[Line] = []
    first = 0
    count = text_page.count_chars()
    characters = [chr(pdfium.FPDFText_GetUnicode(text_page, position)) for position in range(count)]
    for position in range(count + 1):
        if position == count or characters[position] in _LINE_ENDS:
            line = _read_line(text_page, characters, first, position)
            if line is not None:
                lines.append(line)
            first = position + 1
    text_page.close()
    page.close()
    return lines


def _read_line(text_page: pypdfium2.PdfTextPage, characters: list[str], first: int, end: int) -> Line | None:
    """Reads characters ``first`` to ``end``; a gap wider than a character is high parts table cells."""
    while first < end and characters[first].isspace():
        first += 1
    while end > first and characters[end - 1].isspace():
        end -= 1
    if first == end:
        return None
    left, bottom, _, top = text_page.get_charbox(first, loose=True)
    right = text_page.get_charbox(end - 1, loose=True)[2]
    size = max(top - bottom, 0.1)
    cells: list[str] = []
    cell_start = first
    for position in range(first + 1, end - 1):
        if characters[position] == " ":
            gap = text_page.get_charbox(position + 1)[0] - text_page.get_charbox(position - 1)[2]
            if gap > _CELL_GAP_EM * size:
                cells.append(_join(characters[cell_start:position]))
                cell_start = position + 1
    cells.append(_join(characters[cell_start:end]))
    return Line(tuple(cells), left, right, bottom, size)


def _join(characters: list[str]) -> str:
    """Joins UTF-16 units; PDFium's own mark for a hyphen at a line's end becomes a hyphen again."""
    if characters[-1] in _HYPHENS_AT_LINE_END:
        characters = [*characters[:-1], "-"]
    units = "".join(characters).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "replace")
