"""All document formats, and the search for the format of a document. Imports every parser: worker process only."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import PurePosixPath
from typing import Final

from edge_rag.errors import BrokenDocument, UnsupportedFormat
from edge_rag.ingest.parsing.document_format import Format
from edge_rag.ingest.parsing.office.docx import DOCX
from edge_rag.ingest.parsing.office.epub import EPUB
from edge_rag.ingest.parsing.office.opendocument import ODP, ODT
from edge_rag.ingest.parsing.office.package import DAMAGED_ZIP
from edge_rag.ingest.parsing.office.pptx import PPTX
from edge_rag.ingest.parsing.office.rtf import RTF
from edge_rag.ingest.parsing.office.spreadsheet import ODS, XLS, XLSB, XLSX
from edge_rag.ingest.parsing.pdf.pdf import PDF
from edge_rag.ingest.parsing.text.html import HTML
from edge_rag.ingest.parsing.text.mail import MAIL, MAILBOX
from edge_rag.ingest.parsing.text.markdown import MARKDOWN
from edge_rag.ingest.parsing.text.plain import CSV, PLAIN, TSV

FORMATS: Final[tuple[Format, ...]] = (
    DOCX,
    PPTX,
    XLSX,
    XLSB,
    XLS,
    ODT,
    ODP,
    ODS,
    EPUB,
    RTF,
    PDF,
    HTML,
    MARKDOWN,
    MAILBOX,
    MAIL,
    CSV,
    TSV,
    PLAIN,
)
"""In the order in which content is compared with them."""

_BY_SUFFIX: Final = {suffix: each for each in FORMATS for suffix in each.suffixes}
_BY_MEDIA_TYPE: Final = {name: each for each in FORMATS for name in (each.media_type, *each.aliases)}

_TEXT_CONTROLS = frozenset(b"\t\n\x0b\x0c\r\x1b")
_SNIFFED_BYTES = 1024
_UNREADABLE: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"BM", "a BMP image"),
    (b"RIFF", "an audio, video or WebP file"),
    (b"OggS", "an audio file"),
    (b"ID3", "an audio file"),
    (b"fLaC", "an audio file"),
    (b"\x1aE\xdf\xa3", "a video"),
    (b"\x1f\x8b", "a gzip archive; unpack it and upload the files in it"),
    (b"BZh", "a bzip2 archive; unpack it and upload the files in it"),
    (b"\xfd7zXZ\x00", "an xz archive; unpack it and upload the files in it"),
    (b"(\xb5/\xfd", "a Zstandard archive; unpack it and upload the files in it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it and upload the files in it"),
    (b"Rar!\x1a\x07", "a RAR archive; unpack it and upload the files in it"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"\xcf\xfa\xed\xfe", "a program"),
    (b"\x00asm", "a program"),
    (b"SQLite format 3\x00", "a database"),
    (b"PAR1", "a Parquet table"),
)
_VIDEO_AT_FOUR = b"ftyp"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_MIMETYPE_PART = "mimetype"
_LONGEST_MIMETYPE = 200


def find_format(name: str, media_type: str, content: bytes) -> Format:
    """Finds the format of a document.

    Content of a binary format decides, regardless of the name. Text shows little, so the suffix decides, then the
    media type. Text without either is compared with the text formats and is plain text if none matches.

    Args:
        name: Name of the document, usually a relative path.
        media_type: What the client states, or empty; parameters such as ``charset`` are ignored.
        content: The bytes.

    Raises:
        BrokenDocument: Name or media type state a format that the content is not of.
    """
    shown = _shown(content)
    if shown is not None:
        return shown
    claimed = _BY_SUFFIX.get(PurePosixPath(name.replace("\\", "/")).suffix.lower())
    if claimed is None:
        claimed = _BY_MEDIA_TYPE.get(media_type.partition(";")[0].strip().lower())
    sniffed = next((each for each in FORMATS if each.is_text and each.sniff is not None and each.sniff(content)), None)
    is_weak = claimed is None or claimed.weak_name or not claimed.is_text
    if sniffed is not None and sniffed.overrides_weak_names and is_weak:
        return sniffed
    if claimed is not None and claimed.is_text:
        return claimed
    _refuse_unreadable(content)
    if claimed is not None:
        raise BrokenDocument(f"its name or media type says {claimed.name}, but its content is not of that format")
    return sniffed or PLAIN


def _shown(content: bytes) -> Format | None:
    """The binary format that the content shows, or None."""
    if content.startswith(_ZIP):
        return _zip_format(content)
    return next((each for each in FORMATS if not each.is_text and each.sniff is not None and each.sniff(content)), None)


def _zip_format(content: bytes) -> Format:
    stated: str | None = None
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            names = set(archive.namelist())
            if _MIMETYPE_PART in names and archive.getinfo(_MIMETYPE_PART).file_size <= _LONGEST_MIMETYPE:
                with archive.open(_MIMETYPE_PART) as part:
                    stated = part.read(_LONGEST_MIMETYPE).decode("ascii", "replace").strip()
    except DAMAGED_ZIP as error:
        raise BrokenDocument("it is damaged: its ZIP container cannot be opened") from error
    kinds = [(each, each.zip_kind) for each in FORMATS if each.zip_kind is not None]
    if stated is not None:
        for each, kind in kinds:
            if stated in kind.media_types:
                return each
        raise UnsupportedFormat(f"it is of type {stated[:80]!r}, which is not read")
    for each, kind in kinds:
        if kind.part in names:
            return each
    for each, kind in kinds:
        if kind.folder and "[Content_Types].xml" in names and any(name.startswith(kind.folder) for name in names):
            return each
    raise UnsupportedFormat("it is a ZIP archive; unpack it and upload the files in it")


def _refuse_unreadable(content: bytes) -> None:
    start = content[:_SNIFFED_BYTES]
    if start[4:8] == _VIDEO_AT_FOUR:
        raise UnsupportedFormat("it is a video or audio file, not a document")
    if not any(byte < 32 and byte not in _TEXT_CONTROLS for byte in start):
        return
    for signature, what in _UNREADABLE:
        if start.startswith(signature):
            raise UnsupportedFormat(f"it is {what}, not a document" if ";" not in what else f"it is {what}")
