"""Which format a document is in, found from its content, then its name, then its media type.

What the first bytes of a file show it to be, whatever its name says.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from enum import Enum
from io import BytesIO
from pathlib import PurePosixPath

from edge_rag.errors import BrokenDocument, EncryptedDocument, UnsupportedFormat
from edge_rag.ingest.parsing.office.package import DAMAGED_ZIP

_TEXT_CONTROLS = frozenset(b"\t\n\x0b\x0c\r\x1b")
_LOOKED_AT = 1024
_UNREADABLE: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"BM", "a BMP image"),
    (b"RIFF", "a sound, film or WebP file"),
    (b"OggS", "a sound file"),
    (b"ID3", "a sound file"),
    (b"fLaC", "a sound file"),
    (b"\x1aE\xdf\xa3", "a film"),
    (b"\x1f\x8b", "a gzip archive; unpack it and hand its files over"),
    (b"BZh", "a bzip2 archive; unpack it and hand its files over"),
    (b"\xfd7zXZ\x00", "an xz archive; unpack it and hand its files over"),
    (b"(\xb5/\xfd", "a Zstandard archive; unpack it and hand its files over"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it and hand its files over"),
    (b"Rar!\x1a\x07", "a RAR archive; unpack it and hand its files over"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"\xcf\xfa\xed\xfe", "a program"),
    (b"\x00asm", "a program"),
    (b"SQLite format 3\x00", "a database"),
    (b"PAR1", "a Parquet table"),
)
_FILM_AT_FOUR = b"ftyp"
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_MIMETYPE_PART = "mimetype"
_LONGEST_MIMETYPE = 200
_HTML_OPENING = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]{0,200}\?>\s*)?(?:<!--(?:[^-]|-(?!->))*-->\s*)*<(?:!doctype\s+html|html)\b",
    re.IGNORECASE,
)
_MAIL_HEADER = re.compile(rb"([A-Za-z][A-Za-z0-9-]{1,40}):[ \t]*\S?")
_MAIL_SIGNS = frozenset((b"received", b"message-id", b"mime-version", b"return-path", b"delivered-to", b"date"))
_MBOX_OPENING = re.compile(rb"From \S+ +\S.{10,60}\r?\n[A-Za-z-]+: ")


def is_pdf(content: bytes) -> bool:
    """Whether it is a PDF; something may stand before its header."""
    return b"%PDF-" in content[:_LOOKED_AT]


def is_zip(content: bytes) -> bool:
    """Whether it is a ZIP file, as most office documents are."""
    return content.startswith(_ZIP)


def is_compound_file(content: bytes) -> bool:
    """Whether it is a compound file, the container of Microsoft's older and encrypted documents."""
    return content.startswith(_COMPOUND_FILE)


def is_rtf(content: bytes) -> bool:
    """Whether it is Rich Text."""
    return content.lstrip()[:5] == b"{\\rtf"


def is_html(content: bytes) -> bool:
    """Whether it says that it is a page of HTML."""
    return _HTML_OPENING.match(content[:4096]) is not None


def is_mbox(content: bytes) -> bool:
    """Whether it begins as a mailbox does."""
    return _MBOX_OPENING.match(content) is not None


def is_mail(content: bytes) -> bool:
    """Whether it begins with the header of a message: a sender and two more fields that only mail has."""
    fields: set[bytes] = set()
    for line in content[: 4 * _LOOKED_AT].splitlines():
        if not line:
            break
        header = _MAIL_HEADER.match(line)
        if header:
            fields.add(header.group(1).lower())
        elif not line.startswith((b" ", b"\t")):
            return False
    return b"from" in fields and len(fields & _MAIL_SIGNS) >= 2


def refuse_unreadable(content: bytes) -> None:
    """Refuses a file that is known to be something else than a document.

    Raises:
        UnsupportedFormat: It is; says what.
    """
    start = content[:_LOOKED_AT]
    if start[4:8] == _FILM_AT_FOUR:
        raise UnsupportedFormat("it is a film or sound file, not a document")
    if not any(byte < 32 and byte not in _TEXT_CONTROLS for byte in start):
        return
    for signature, what in _UNREADABLE:
        if start.startswith(signature):
            raise UnsupportedFormat(f"it is {what}, not a document" if ";" not in what else f"it is {what}")


def compound_kind(content: bytes) -> str:
    """Returns ``xls`` for an old spreadsheet.

    Raises:
        EncryptedDocument: It is an encrypted document.
        UnsupportedFormat: It is something else in such a container; says what.
    """
    if _wide("EncryptedPackage") in content:
        raise EncryptedDocument("it is encrypted and needs a password; save a copy without one")
    if _wide("Workbook") in content or _wide("Book") in content:
        return "xls"
    if _wide("WordDocument") in content:
        raise UnsupportedFormat("it is a Word document of the old format; save it as .docx")
    if _wide("PowerPoint Document") in content:
        raise UnsupportedFormat("it is a PowerPoint presentation of the old format; save it as .pptx")
    if _wide("__substg1.0_") in content:
        raise UnsupportedFormat("it is an Outlook message; save it as .eml")
    raise UnsupportedFormat("it is a compound file of an unknown kind, not a document")


def zip_kind(content: bytes) -> str:
    """Returns what a ZIP file is: ``docx``, ``pptx``, ``xlsx``, ``xlsb``, or the media type that it states.

    Raises:
        BrokenDocument: It cannot be opened.
        UnsupportedFormat: It is no document.
    """
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            names = set(archive.namelist())
            if _MIMETYPE_PART in names and archive.getinfo(_MIMETYPE_PART).file_size <= _LONGEST_MIMETYPE:
                with archive.open(_MIMETYPE_PART) as part:
                    return part.read(_LONGEST_MIMETYPE).decode("ascii", "replace").strip()
    except DAMAGED_ZIP as error:
        raise BrokenDocument("it is damaged: its ZIP container cannot be opened") from error
    for part_name, kind in (
        ("word/document.xml", "docx"),
        ("ppt/presentation.xml", "pptx"),
        ("xl/workbook.xml", "xlsx"),
        ("xl/workbook.bin", "xlsb"),
        ("META-INF/container.xml", "application/epub+zip"),
    ):
        if part_name in names:
            return kind
    for folder, kind in (("word/", "docx"), ("ppt/", "pptx"), ("xl/", "xlsx")):
        if "[Content_Types].xml" in names and any(name.startswith(folder) for name in names):
            return kind
    raise UnsupportedFormat("it is a ZIP archive; unpack it and hand its files over")


def _wide(name: str) -> bytes:
    return name.encode("utf-16-le")


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
    if is_html(content) and (claimed in _LOOSE_TEXT or claimed not in _TEXT):
        return DocumentFormat.HTML
    if claimed in _TEXT:
        return claimed
    refuse_unreadable(content)
    if claimed is not None:
        raise BrokenDocument(f"it is said to be of format {claimed.name}, but its content does not start as one does")
    if is_mbox(content):
        return DocumentFormat.MAILBOX
    return DocumentFormat.MAIL if is_mail(content) else DocumentFormat.PLAIN


def _shown(content: bytes) -> DocumentFormat | None:
    """The format that the content shows beyond doubt, or None."""
    if is_zip(content):
        kind = zip_kind(content)
        if kind not in _BY_ZIP_KIND:
            raise UnsupportedFormat(f"it is of type {kind[:80]!r}, which is not read")
        return _BY_ZIP_KIND[kind]
    if is_compound_file(content):
        compound_kind(content)
        return DocumentFormat.XLS
    if is_rtf(content):
        return DocumentFormat.RTF
    return DocumentFormat.PDF if is_pdf(content) else None
