"""Which format a document is in, found from its name, its media type and its first bytes."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import PurePosixPath

from edge_rag.errors import BrokenDocument


class DocumentFormat(Enum):
    """Formats that can be read; the value is the media type that documents of the format are stored under."""

    MARKDOWN = "text/markdown"
    PLAIN = "text/plain"
    HTML = "text/html"
    PDF = "application/pdf"


_BY_SUFFIX = {
    ".md": DocumentFormat.MARKDOWN,
    ".markdown": DocumentFormat.MARKDOWN,
    ".txt": DocumentFormat.PLAIN,
    ".text": DocumentFormat.PLAIN,
    ".log": DocumentFormat.PLAIN,
    ".html": DocumentFormat.HTML,
    ".htm": DocumentFormat.HTML,
    ".xhtml": DocumentFormat.HTML,
    ".pdf": DocumentFormat.PDF,
}
_BY_MEDIA_TYPE = {
    "text/markdown": DocumentFormat.MARKDOWN,
    "text/x-markdown": DocumentFormat.MARKDOWN,
    "text/plain": DocumentFormat.PLAIN,
    "text/html": DocumentFormat.HTML,
    "application/xhtml+xml": DocumentFormat.HTML,
    "application/pdf": DocumentFormat.PDF,
}
_PDF_HEADER_WINDOW = 1024
_HTML_OPENING = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)


def find_format(name: str, media_type: str, content: bytes) -> DocumentFormat:
    """Finds the format of a document: its name decides, then its media type, then its content.

    Content that no rule recognizes is taken for plain text, whose parser refuses what is not text.

    Args:
        name: Name of the document, usually a relative path.
        media_type: What the client believes it is, or empty; parameters such as ``charset`` are ignored.
        content: The bytes.

    Raises:
        BrokenDocument: Name or media type say PDF and the content does not, or the other way round.
    """
    is_pdf = b"%PDF-" in content[:_PDF_HEADER_WINDOW]
    claimed = _BY_SUFFIX.get(PurePosixPath(name.replace("\\", "/")).suffix.lower())
    if claimed is None:
        claimed = _BY_MEDIA_TYPE.get(media_type.partition(";")[0].strip().lower())
    if claimed is DocumentFormat.PDF and not is_pdf:
        raise BrokenDocument("it is said to be a PDF, but its content does not start as a PDF does")
    if claimed is not None and claimed is not DocumentFormat.PDF and content.startswith(b"%PDF-"):
        raise BrokenDocument(
            f"it is said to be {claimed.value}, but its content is a PDF; give it a name ending in .pdf"
        )
    if claimed is not None:
        return claimed
    if is_pdf:
        return DocumentFormat.PDF
    return DocumentFormat.HTML if _HTML_OPENING.match(content[:4096]) else DocumentFormat.PLAIN
