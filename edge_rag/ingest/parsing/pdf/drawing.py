"""Pages of a PDF as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pypdfium2
import pypdfium2.raw as pdfium

from edge_rag.errors import BrokenDocument, DocumentTooLarge
from edge_rag.ingest.parsing.pages import BOX_SCALE, MAX_PIXELS, Picture, RelativeBox

_WHITE: Final = (255, 255, 255, 255)
_MARK_GREEN: Final = bytes(level * 230 // 255 for level in range(256))
_MARK_BLUE: Final = bytes(level * 90 // 255 for level in range(256))


def draw_page(document: pypdfium2.PdfDocument, index: int, width: int, marks: Sequence[RelativeBox]) -> Picture:
    """Draws a page as it is shown, on white.

    Args:
        index: 0-based page number.

    Raises:
        BrokenDocument: PDFium cannot draw it.
        DocumentTooLarge: The picture would have more than ``MAX_PIXELS``.
    """
    try:
        page = document[index]
        across, down = page.get_size()
        height = max(1, round(width * down / max(across, 1e-3)))
        if width * height > MAX_PIXELS:
            most = max(1, int((MAX_PIXELS * max(across, 1e-3) / max(down, 1e-3)) ** 0.5))
            raise DocumentTooLarge(
                f"page {index + 1} would have {width:,} x {height:,} pixels, at most {MAX_PIXELS:,} are drawn; ask for "
                f"a width of at most {most:,}"
            )
        bitmap = pypdfium2.PdfBitmap.new_native(width, height, pdfium.FPDFBitmap_BGR, rev_byteorder=True)
        bitmap.fill_rect(_WHITE, 0, 0, width, height)
        flags = pdfium.FPDF_ANNOT | pdfium.FPDF_REVERSE_BYTE_ORDER
        pdfium.FPDF_RenderPageBitmap(bitmap, page, 0, 0, width, height, 0, flags)
    except pypdfium2.PdfiumError as error:
        raise BrokenDocument(f"page {index + 1} is damaged: PDFium cannot draw it") from error
    raw = memoryview(bitmap.buffer).cast("B")
    pixels = bytearray(3 * width * height)
    for row in range(height):
        pixels[3 * row * width : 3 * (row + 1) * width] = raw[row * bitmap.stride : row * bitmap.stride + 3 * width]
    raw.release()
    bitmap.close()
    page.close()
    for mark in marks:
        _mark(pixels, width, height, mark)
    return Picture(width, height, bytes(pixels))


def _mark(pixels: bytearray, width: int, height: int, box: RelativeBox) -> None:
    left, top, right, bottom = box
    first, past = left * width // BOX_SCALE, -(-right * width // BOX_SCALE)
    for row in range(top * height // BOX_SCALE, min(height, -(-bottom * height // BOX_SCALE))):
        start, end = 3 * (row * width + first), 3 * (row * width + min(past, width))
        pixels[start + 1 : end : 3] = pixels[start + 1 : end : 3].translate(_MARK_GREEN)
        pixels[start + 2 : end : 3] = pixels[start + 2 : end : 3].translate(_MARK_BLUE)
