"""Containers of office documents: ZIP packages, XML events, relations between parts, properties, and old compound
files.

Sizes stated in a package are not trusted. XML is read with expat as a stream of events; nothing outside the document is
accessed. XML attacks use entities, and no document format needs to declare any, so an entity declaration is rejected; a
document type is tolerated but never fetched.
"""

from __future__ import annotations

import io
import lzma
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, NoReturn, Protocol
from xml.parsers import expat

from edge_rag.core.documents.metadata import MetadataValue
from edge_rag.errors import BrokenDocument, DocumentTooLarge, EncryptedDocument, UnsupportedFormat
from edge_rag.ingest.parsing.document_builder import iso_moment, properties
from edge_rag.ingest.parsing.document_format import UnpackedBytes

_MAX_PARTS = 20_000
_BLOCK_BYTES = 1 << 16
_ENCRYPTED_FLAG = 0x1
DAMAGED_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
    struct.error,
)
"""Exceptions of reading a damaged ZIP file."""


class Container:
    """The parts of a package by name. Nothing is unpacked to disk, and containers inside parts are not opened.

    Unpacked bytes are counted while parts are read, so a part whose stated size is too small cannot exceed the limit.
    """

    def __init__(self, content: bytes, unpacked: UnpackedBytes) -> None:
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(content))
        except DAMAGED_ZIP as error:
            raise BrokenDocument("it is damaged: its ZIP container cannot be opened") from error
        self._parts = {info.filename.lstrip("/"): info for info in self._archive.infolist()}
        if len(self._parts) > _MAX_PARTS:
            raise DocumentTooLarge(f"it has {len(self._parts):,} parts, at most {_MAX_PARTS:,} are allowed")
        self._unpacked = unpacked

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all parts, in the order of the file."""
        return tuple(self._parts)

    def read(self, name: str) -> bytes:
        with self.open(name) as part:
            return part.read()

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Opens a part; reading it raises the errors of ``read``."""
        info = self._parts.get(name)
        if info is None:
            raise BrokenDocument(f"its part {name!r} is missing")
        if info.flag_bits & _ENCRYPTED_FLAG:
            raise EncryptedDocument("it is encrypted and needs a password; save a copy without one")
        try:
            with self._archive.open(info) as part:
                yield io.BufferedReader(_Counted(part, self._unpacked.count), _BLOCK_BYTES)
        except DAMAGED_ZIP as error:
            raise BrokenDocument(f"its part {name!r} is damaged") from error

    def check_unpacked_size(self) -> None:
        """Unpacks every part once and discards it: for readers that do not count unpacked bytes."""
        for name, info in self._parts.items():
            if not info.is_dir():
                with self.open(name) as part:
                    while part.read(_BLOCK_BYTES):
                        pass


class _Counted(io.RawIOBase):
    def __init__(self, part: IO[bytes], count: Callable[[int], None]) -> None:
        self._part = part
        self._count = count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._part.read(min(len(buffer), _BLOCK_BYTES))
        self._count(len(block))
        buffer[: len(block)] = block
        return len(block)


def resolve(base: str, reference: str) -> str:
    """Returns the name of the part that ``reference`` in part ``base`` points to; never outside the container."""
    reference = reference.partition("#")[0]
    joined = reference if reference.startswith("/") else posixpath.join(posixpath.dirname(base), reference)
    return posixpath.normpath("/" + joined).lstrip("/")


_SEPARATOR = " "
_MOST_OPEN_TAGS = 10_000
_OFFICE = "http://schemas.openxmlformats.org/"
_STRICT = "http://purl.oclc.org/ooxml/"
_OPEN_DOCUMENT = "urn:oasis:names:tc:opendocument:xmlns:"
_PREFIXES: Mapping[str, str] = {
    _OFFICE + "wordprocessingml/2006/main": "w",
    _STRICT + "wordprocessingml/main": "w",
    _OFFICE + "drawingml/2006/main": "a",
    _STRICT + "drawingml/main": "a",
    _OFFICE + "presentationml/2006/main": "p",
    _STRICT + "presentationml/main": "p",
    _OFFICE + "officeDocument/2006/relationships": "r",
    _STRICT + "officeDocument/relationships": "r",
    _OFFICE + "officeDocument/2006/math": "m",
    _STRICT + "officeDocument/math": "m",
    _OFFICE + "markup-compatibility/2006": "mc",
    _OFFICE + "package/2006/relationships": "rel",
    _OFFICE + "package/2006/metadata/core-properties": "cp",
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://purl.org/dc/terms/": "dcterms",
    _OPEN_DOCUMENT + "text:1.0": "text",
    _OPEN_DOCUMENT + "table:1.0": "table",
    _OPEN_DOCUMENT + "office:1.0": "office",
    _OPEN_DOCUMENT + "drawing:1.0": "draw",
    _OPEN_DOCUMENT + "presentation:1.0": "presentation",
    _OPEN_DOCUMENT + "meta:1.0": "meta",
    "http://www.idpf.org/2007/opf": "opf",
    "http://www.daisy.org/z3986/2005/ncx/": "ncx",
    "urn:oasis:names:tc:opendocument:xmlns:container": "container",
    "http://www.w3.org/2001/04/xmlenc#": "enc",
}
"""Prefixes of the known namespaces. Names are given as ``prefix:local``, whichever the document declares."""


class XmlHandler(Protocol):
    """Receives the events of an XML document in order."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """A tag opens. Names in unknown namespaces are ``?:local``; attributes without a namespace are ``local``."""
        ...

    def end(self, name: str) -> None:
        """A tag closes."""
        ...

    def text(self, text: str) -> None:
        """Text between two tags."""
        ...


def read_xml(part: IO[bytes], name: str, handler: XmlHandler) -> None:
    """Parses an XML part.

    Args:
        part: The bytes.

    Raises:
        BrokenDocument: It is not well-formed, declares entities, or is nested too deeply.
    """
    parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
    parser.buffer_text = True
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    names: dict[str, str] = {}
    depth = 0

    def known(found: str) -> str:
        if found not in names:
            uri, separator, local = found.rpartition(_SEPARATOR)
            names[found] = f"{_PREFIXES.get(uri, '?')}:{local}" if separator else local
        return names[found]

    def start(found: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MOST_OPEN_TAGS:
            raise BrokenDocument(f"its part {name!r} is nested more than {_MOST_OPEN_TAGS:,} deep")
        handler.start(known(found), {known(key): value for key, value in attributes.items()})

    def end(found: str) -> None:
        nonlocal depth
        depth -= 1
        handler.end(known(found))

    def refuse_entity(*_: object) -> NoReturn:
        raise BrokenDocument(f"its part {name!r} declares XML entities, which are not allowed")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = handler.text
    parser.EntityDeclHandler = refuse_entity
    parser.UnparsedEntityDeclHandler = refuse_entity
    parser.ExternalEntityRefHandler = refuse_entity
    try:
        while block := part.read(_BLOCK_BYTES):
            parser.Parse(block, False)
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise BrokenDocument(f"its part {name!r} is damaged: {error}") from error


_CORE_PROPERTIES = "docProps/core.xml"
_MOST_PROPERTY_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of one part to another."""

    kind: str
    target: str


class _Relations:
    def __init__(self, source: str) -> None:
        self.found: dict[str, Relation] = {}
        self._source = source

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "rel:Relationship" and attributes.get("TargetMode") != "External":
            kind = attributes.get("Type", "").rpartition("/")[2]
            self.found[attributes.get("Id", "")] = Relation(kind, resolve(self._source, attributes.get("Target", "")))

    def end(self, name: str) -> None:
        """Ignored."""

    def text(self, text: str) -> None:
        """Ignored."""


def relations_of(container: Container, part: str) -> dict[str, Relation]:
    """Returns the internal relations of a part by id; those of the package itself if ``part`` is empty."""
    folder, _, file = part.rpartition("/")
    name = f"{folder}/_rels/{file}.rels".lstrip("/")
    if name not in container:
        return {}
    relations = _Relations(part)
    with container.open(name) as source:
        read_xml(source, name, relations)
    return relations.found


def main_part(container: Container) -> str:
    relations = relations_of(container, "").values()
    return next((relation.target for relation in relations if relation.kind == "officeDocument"), "")


class _Properties:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._open = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._open = name

    def end(self, name: str) -> None:
        self._open = ""

    def text(self, text: str) -> None:
        if self._open:
            self.found[self._open] = (self.found.get(self._open, "") + text)[:_MOST_PROPERTY_CHARACTERS]


def office_properties(container: Container) -> dict[str, MetadataValue]:
    stored = read_properties(container, _CORE_PROPERTIES)
    created, modified = (iso_moment(stored.get(f"dcterms:{name}", "")) for name in ("created", "modified"))
    return properties(stored.get("dc:title", ""), stored.get("dc:creator", ""), created, modified)


def read_properties(container: Container, part: str) -> dict[str, str]:
    if part not in container:
        return {}
    found = _Properties()
    with container.open(part) as source:
        read_xml(source, part, found)
    return found.found


_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_UNREAD_COMPOUND_FILES = (
    ("WordDocument", "it is a Word document of the old format; save it as .docx"),
    ("PowerPoint Document", "it is a PowerPoint presentation of the old format; save it as .pptx"),
    ("__substg1.0_", "it is an Outlook message; save it as .eml"),
)


def is_old_spreadsheet(content: bytes) -> bool:
    """Whether it is an XLS file: a spreadsheet in a compound file, the container of old and of encrypted documents.

    Raises:
        EncryptedDocument: It is an encrypted document.
        UnsupportedFormat: It is another compound file; the message names its kind.
    """
    if not content.startswith(_COMPOUND_FILE):
        return False
    if _utf16("EncryptedPackage") in content:
        raise EncryptedDocument("it is encrypted and needs a password; save a copy without one")
    if _utf16("Workbook") in content or _utf16("Book") in content:
        return True
    for stream, problem in _UNREAD_COMPOUND_FILES:
        if _utf16(stream) in content:
            raise UnsupportedFormat(problem)
    raise UnsupportedFormat("it is a compound file of an unknown kind, not a document")


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-le")
