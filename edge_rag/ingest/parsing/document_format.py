"""The declaration of a parser about the format it reads, and the limits of reading one document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Final

from edge_rag.core.documents.document import ParsedDocument
from edge_rag.errors import DocumentTooLarge
from edge_rag.ingest.parsing.pdf.ocr import Recognizer

_MIB = 2**20

AttachmentReader = Callable[[str, str, bytes], ParsedDocument]
"""Reads a document inside another one by name, media type and content, or raises DocumentRejected."""


PARSER_MEMORY_BYTES: Final = 1 << 30
"""Most address space of a parser process, about 100 MB of its own included."""


@dataclass(frozen=True, slots=True)
class ParsingLimits:
    """Limits of parsing one document; a document that exceeds one is rejected.

    Attributes:
        max_bytes: Largest document, bytes.
        max_unpacked_bytes: Most bytes of all compressed parts of a file together.
        max_blocks: Most headings, paragraphs, items and rows.
        cpu_seconds_per_mib: Processor time that each MiB adds.
        memory_bytes: Address space of the parser process, about 100 MB of its own included.
        documents_per_process: Documents after which a new process is started, to bound leaks.
    """

    max_bytes: int = 64 * 2**20
    max_unpacked_bytes: int = 256 * 2**20
    max_characters: int = 20_000_000
    max_blocks: int = 500_000
    max_pages: int = 5_000
    max_scanned_pages: int = 500
    max_scan_pixels: int = 25_000_000
    wall_seconds: int = 60
    cpu_seconds: int = 60
    base_cpu_seconds: int = 10
    cpu_seconds_per_mib: int = 10
    memory_bytes: int = PARSER_MEMORY_BYTES
    documents_per_process: int = 500

    def processor_seconds(self, size: int) -> int:
        """Returns the most processor time, seconds, for parsing a document of a size in bytes, with all inside it.

        An ordinary document takes at most 6 s per MiB on a desktop processor (a PDF of text; most formats take less
        than 1 s), and up to five times as much on a small board.
        """
        return min(self.cpu_seconds, self.base_cpu_seconds + ceil(self.cpu_seconds_per_mib * size / _MIB))


class UnpackedBytes:
    """Counts the bytes that are unpacked from a document and from all documents inside it.

    Args:
        limit: Most bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._remaining = limit

    def count(self, size: int) -> None:
        """Counts so many bytes more.

        Raises:
            DocumentTooLarge: They exceed the limit.
        """
        self._remaining -= size
        if self._remaining < 0:
            raise DocumentTooLarge(f"it unpacks to more than {self._limit // 2**20:,} MiB")


@dataclass(frozen=True, slots=True)
class ParseContext:
    """Tools of a parser, besides the bytes."""

    limits: ParsingLimits
    unpacked: UnpackedBytes
    recognizer: Recognizer
    read_attachment: AttachmentReader


@dataclass(frozen=True, slots=True)
class ZipKind:
    """How a ZIP container shows that it is of a format.

    Attributes:
        part: Name of a part that only this format has; empty if none.
        folder: Start of part names in an Office Open XML container whose main part has another name; empty if none.
    """

    media_types: tuple[str, ...] = ()
    part: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    """A document format. ``docs/guide/formats.md`` lists all of them from these values.

    Attributes:
        parse: Parses the bytes of a document.
        zip_kind: How a ZIP container shows that it is of this format; None if it is not a ZIP format.
        sniff: Whether bytes are of this format. A binary format is recognized under any name. A text format is
            recognized if neither name nor media type state a format. May raise DocumentRejected for bytes of a related
            format that is not read.
    """

    name: str
    title: str
    media_type: str
    suffixes: tuple[str, ...]
    reads: str
    parse: Callable[[bytes, ParseContext], ParsedDocument]
    aliases: tuple[str, ...] = ()
    zip_kind: ZipKind | None = None
    sniff: Callable[[bytes], bool] | None = None
    is_text: bool = False
    weak_name: bool = False
    overrides_weak_names: bool = False
