"""PDF parser: text, scanned pages and properties, read with PDFium."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pypdfium2
import pypdfium2.raw as pdfium

from edge_rag.core.documents.document import ParsedDocument
from edge_rag.errors import BrokenDocument, DocumentTooLarge, EmptyDocument, EncryptedDocument
from edge_rag.ingest.parsing.document_builder import DocumentBuilder, pdf_moment, properties
from edge_rag.ingest.parsing.document_format import Format, ParsingLimits
from edge_rag.ingest.parsing.pages import DocumentBoxes, Picture, RelativeBox
from edge_rag.ingest.parsing.pdf.boxes import document_boxes
from edge_rag.ingest.parsing.pdf.drawing import draw_page
from edge_rag.ingest.parsing.pdf.layout import Line, PlacedBlock, add_pages, body_size
from edge_rag.ingest.parsing.pdf.ocr import Recognizer, Scan, Word, recognized_lines, recognized_words
from edge_rag.ingest.parsing.pdf.page import read_page

MAX_RECOGNIZED_PAGES = 20
"""Most scanned pages of a document whose boxes are found: all of them are recognized again, each in a few seconds."""

_SCAN_SHARE = 0.25
_PAGES_NAMED = 20
_DEEPEST_OBJECT = 5
_DOTS_PER_INCH = 300
_LEAST_DOTS_PER_INCH = 50


def parse_pdf(content: bytes, limits: ParsingLimits, recognizer: Recognizer) -> ParsedDocument:
    """Reads the text of a PDF page by page; pages that are pictures of text are read by OCR.

    Without OCR, a document that consists mostly of such pages is rejected; otherwise the other pages are read, and a
    note names those that were not.

    Args:
        content: The bytes.
    """
    with open_pdf(content) as document:
        return _parse(document, limits, recognizer)[0]


def pdf_boxes(content: bytes, limits: ParsingLimits, recognizer: Recognizer, page: int) -> DocumentBoxes:
    """Reads a PDF as ``parse_pdf`` does, and where the characters of its text are on a page.

    Args:
        content: The bytes.
        page: 1-based page number; other pages may come along.
    """
    few = replace(limits, max_scanned_pages=min(limits.max_scanned_pages, MAX_RECOGNIZED_PAGES))
    with open_pdf(content) as document:
        _require_page(document, page)
        parsed, placed, scans = _parse(document, few, recognizer)
        return document_boxes(document, parsed, placed, scans, page)


def pdf_picture(content: bytes, page: int, width: int, marks: Sequence[RelativeBox]) -> Picture:
    with open_pdf(content) as document:
        _require_page(document, page)
        return draw_page(document, page - 1, width, marks)


def open_pdf(content: bytes) -> pypdfium2.PdfDocument:
    """Opens a PDF.

    Raises:
        EncryptedDocument: It needs a password.
        BrokenDocument: PDFium cannot read it.
    """
    try:
        return pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if error.err_code == pdfium.FPDF_ERR_PASSWORD:
            raise EncryptedDocument("it is encrypted and needs a password; save a copy without one") from error
        raise BrokenDocument("it is damaged or not a PDF: PDFium cannot open it") from error


def _require_page(document: pypdfium2.PdfDocument, page: int) -> None:
    if not 1 <= page <= len(document):
        raise BrokenDocument(f"it has {len(document):,} pages, there is no page {page:,}")


def _parse(
    document: pypdfium2.PdfDocument, limits: ParsingLimits, recognizer: Recognizer
) -> tuple[ParsedDocument, list[PlacedBlock], dict[int, list[Word]]]:
    """Returns what ``parse_pdf`` does, its blocks with their lines, and the words of scanned pages by number."""
    if len(document) > limits.max_pages:
        raise DocumentTooLarge(f"it has {len(document):,} pages, at most {limits.max_pages:,} are read")
    pages = [read_page(document, index) for index in range(len(document))]
    scans: dict[int, list[Word]] = {}
    note = _recognize(document, pages, limits, recognizer, scans)
    title = document.get_metadata_value("Title")
    properties_found = properties(
        title,
        document.get_metadata_value("Author"),
        pdf_moment(document.get_metadata_value("CreationDate")),
        pdf_moment(document.get_metadata_value("ModDate")),
    )
    builder = DocumentBuilder()
    placed = add_pages(builder, pages)
    parsed = builder.build(title, len(pages), properties_found)
    if not parsed.text:
        raise EmptyDocument(f"none of its {len(pages)} pages has text; run OCR on it first")
    return replace(parsed, note=note), placed, scans


def _recognize(
    document: pypdfium2.PdfDocument,
    pages: list[list[Line]],
    limits: ParsingLimits,
    recognizer: Recognizer,
    words: dict[int, list[Word]],
) -> str:
    """Replaces scanned pages by recognized lines and adds their words; returns a note on those that were not read."""
    scans = [index for index, lines in enumerate(pages) if not lines and _is_scan(document, index)]
    if not scans:
        return ""
    if recognizer.problem:
        if 2 * len(scans) < len(pages):
            return f"not read: {_page_list(scans)}, which are scans; {recognizer.problem}"
        raise EmptyDocument(f"{len(scans)} of its {len(pages)} pages are scans, pictures of text; {recognizer.problem}")
    if len(scans) > limits.max_scanned_pages:
        raise DocumentTooLarge(f"{len(scans):,} of its pages are scans, at most {limits.max_scanned_pages:,} are read")
    size = body_size(pages)
    for index in scans:
        scan = _draw(document, index, limits.max_scan_pixels)
        words[index + 1] = recognized_words(recognizer.read(scan), scan)
        pages[index] = recognized_lines(words[index + 1], size)
    return ""


def _page_list(indexes: Sequence[int]) -> str:
    numbers = ", ".join(f"{index + 1:,}" for index in indexes[:_PAGES_NAMED])
    more = f" and {len(indexes) - _PAGES_NAMED:,} more" if len(indexes) > _PAGES_NAMED else ""
    return f"{'page' if len(indexes) == 1 else 'pages'} {numbers}{more}"


def _is_scan(document: pypdfium2.PdfDocument, index: int) -> bool:
    """Whether a picture covers a large part of the page."""
    page = document[index]
    least = _SCAN_SHARE * page.get_width() * page.get_height()
    try:
        for picture in page.get_objects(filter=(pdfium.FPDF_PAGEOBJ_IMAGE,), max_depth=_DEEPEST_OBJECT):
            left, bottom, right, top = picture.get_bounds()
            if (right - left) * (top - bottom) >= least:
                return True
    except pypdfium2.PdfiumError as error:
        raise BrokenDocument(f"page {index + 1} is damaged: PDFium cannot read it") from error
    finally:
        page.close()
    return False


def _draw(document: pypdfium2.PdfDocument, index: int, max_pixels: int) -> Scan:
    page = document[index]
    inches = page.get_width() * page.get_height() / 72**2
    dots_per_inch = int(min(_DOTS_PER_INCH, math.sqrt(0.98 * max_pixels / max(inches, 1e-6))))
    if dots_per_inch < _LEAST_DOTS_PER_INCH:
        raise DocumentTooLarge(f"page {index + 1} is a scan {math.sqrt(inches):,.0f} inches wide, too large to be read")
    try:
        bitmap = page.render(scale=dots_per_inch / 72, grayscale=True)
    except pypdfium2.PdfiumError as error:
        raise BrokenDocument(f"page {index + 1} is damaged: PDFium cannot draw it") from error
    raw = memoryview(bitmap.buffer).cast("B")
    rows = (raw[row * bitmap.stride : row * bitmap.stride + bitmap.width] for row in range(bitmap.height))
    scan = Scan(bitmap.width, bitmap.height, dots_per_inch, b"".join(rows))
    bitmap.close()
    page.close()
    return scan


def _is_pdf(content: bytes) -> bool:
    """Whether a PDF header is in the first bytes; other bytes may precede it."""
    return b"%PDF-" in content[:1024]


PDF = Format(
    name="PDF",
    title="PDF",
    media_type="application/pdf",
    suffixes=(".pdf",),
    reads="pages, headings, paragraphs, lists, tables; scanned pages by OCR",
    parse=lambda content, context: parse_pdf(content, context.limits, context.recognizer),
    sniff=_is_pdf,
)
