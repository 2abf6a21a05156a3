"""Which format a document is in, found from its content, then its name, then its media type."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import PurePosixPath

from edge_rag.errors import BrokenDocument, UnsupportedFormat
from edge_rag.ingest.parsing import signatures

_OFFICE = "application/vnd.openxmlformats-officedocument."
_OPEN_DOCUMENT = "application/vnd.oasis.opendocument."


class DocumentFormat(Enum):
    """Formats that can be read; the value is the media type that documents of the format are stored under."""

    MARKDOWN = "text/markdown"
    PLAIN = "text/plain"
    HTML = "text/html"
    PDF = "application/pdf"
    DOCX = _OFFICE + "wordprocessingml.document"
    PPTX = _OFFICE + "presentationml.presentation"
    XLSX = _OFFICE + "spreadsheetml.sheet"
    XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
    XLS = "application/vnd.ms-excel"
    ODT = _OPEN_DOCUMENT + "text"
    ODP = _OPEN_DOCUMENT + "presentation"
    ODS = _OPEN_DOCUMENT + "spreadsheet"
    EPUB = "application/epub+zip"
    MAIL = "message/rfc822"
    MAILBOX = "application/mbox"
    CSV = "text/csv"
    TSV = "text/tab-separated-values"
    RTF = "application/rtf"


BY_SUFFIX = {
    ".md": DocumentFormat.MARKDOWN,
    ".markdown": DocumentFormat.MARKDOWN,
    ".txt": DocumentFormat.PLAIN,
    ".text": DocumentFormat.PLAIN,
    ".log": DocumentFormat.PLAIN,
    ".html": DocumentFormat.HTML,
    ".htm": DocumentFormat.HTML,
    ".xhtml": DocumentFormat.HTML,
    ".pdf": DocumentFormat.PDF,
    ".docx": DocumentFormat.DOCX,
    ".docm": DocumentFormat.DOCX,
    ".pptx": DocumentFormat.PPTX,
    ".pptm": DocumentFormat.PPTX,
    ".xlsx": DocumentFormat.XLSX,
    ".xlsm": DocumentFormat.XLSX,
    ".xlsb": DocumentFormat.XLSB,
    ".xls": DocumentFormat.XLS,
    ".odt": DocumentFormat.ODT,
    ".odp": DocumentFormat.ODP,
    ".ods": DocumentFormat.ODS,
    ".epub": DocumentFormat.EPUB,
    ".eml": DocumentFormat.MAIL,
    ".mbox": DocumentFormat.MAILBOX,
    ".csv": DocumentFormat.CSV,
    ".tsv": DocumentFormat.TSV,
    ".tab": DocumentFormat.TSV,
    ".rtf": DocumentFormat.RTF,
}
"""What a name's ending says of a document whose content does not show what it is."""

_BY_MEDIA_TYPE: Mapping[str, DocumentFormat] = {
    **{document_format.value: document_format for document_format in DocumentFormat},
    "text/x-markdown": DocumentFormat.MARKDOWN,
    "application/xhtml+xml": DocumentFormat.HTML,
    "application/csv": DocumentFormat.CSV,
    "text/rtf": DocumentFormat.RTF,
}
_BY_ZIP_KIND: Mapping[str, DocumentFormat] = {
    "docx": DocumentFormat.DOCX,
    "pptx": DocumentFormat.PPTX,
    "xlsx": DocumentFormat.XLSX,
    "xlsb": DocumentFormat.XLSB,
    DocumentFormat.EPUB.value: DocumentFormat.EPUB,
    **{
        found.value + template: found
        for found in (DocumentFormat.ODT, DocumentFormat.ODP, DocumentFormat.ODS)
        for template in ("", "-template")
    },
}
_TEXT = frozenset(
    (
        DocumentFormat.MARKDOWN,
        DocumentFormat.PLAIN,
        DocumentFormat.HTML,
        DocumentFormat.MAIL,
        DocumentFormat.MAILBOX,
        DocumentFormat.CSV,
        DocumentFormat.TSV,
    )
)
_LOOSE_TEXT = frozenset((DocumentFormat.PLAIN, DocumentFormat.CSV, DocumentFormat.TSV))


def find_format(name: str, media_type: str, content: bytes) -> DocumentFormat:
    """Finds the format of a document.

    Content that shows what it is counts for what it is, whatever it is called. Text shows little, so there the name
    decides, then the media type; text without either is looked at, and what no rule recognizes is plain text.

    Args:
        name: Name of the document, usually a relative path.
        media_type: What the client believes it is, or empty; parameters such as ``charset`` are ignored.
        content: The bytes.

    Raises:
        BrokenDocument: Name or media type say that it is of a format that it is not.
        EncryptedDocument: It is encrypted.
        UnsupportedFormat: It is of a known format that is not read; says which.
    """
    shown = _shown(content)
    if shown is not None:
        return shown
    claimed = BY_SUFFIX.get(PurePosixPath(name.replace("\\", "/")).suffix.lower())
    if claimed is None:
        claimed = _BY_MEDIA_TYPE.get(media_type.partition(";")[0].strip().lower())
    if signatures.is_html(content) and (claimed in _LOOSE_TEXT or claimed not in _TEXT):
        return DocumentFormat.HTML
    if claimed in _TEXT:
        return claimed
    signatures.refuse_unreadable(content)
    if claimed is not None:
        raise BrokenDocument(f"it is said to be of format {claimed.name}, but its content does not start as one does")
    if signatures.is_mbox(content):
        return DocumentFormat.MAILBOX
    return DocumentFormat.MAIL if signatures.is_mail(content) else DocumentFormat.PLAIN


def _shown(content: bytes) -> DocumentFormat | None:
    """The format that the content shows beyond doubt, or None."""
    if signatures.is_zip(content):
        kind = signatures.zip_kind(content)
        if kind not in _BY_ZIP_KIND:
            raise UnsupportedFormat(f"it is of type {kind[:80]!r}, which is not read")
        return _BY_ZIP_KIND[kind]
    if signatures.is_compound_file(content):
        signatures.compound_kind(content)
        return DocumentFormat.XLS
    if signatures.is_rtf(content):
        return DocumentFormat.RTF
    return DocumentFormat.PDF if signatures.is_pdf(content) else None
