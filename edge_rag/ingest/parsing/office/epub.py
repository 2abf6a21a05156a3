"""EPUB parser: the chapters of a book in reading order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.errors import EncryptedDocument
from edge_rag.ingest.parsing.document_builder import DocumentBuilder, iso_moment, properties
from edge_rag.ingest.parsing.document_format import Format, UnpackedBytes, ZipKind
from edge_rag.ingest.parsing.office.package import Container, XmlHandler, read_xml, resolve
from edge_rag.ingest.parsing.text.html import add_html, declared_encoding
from edge_rag.ingest.parsing.text.plain import decode_text

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_PAGE_TYPES = frozenset(("application/xhtml+xml", "text/html"))
_HEADING = re.compile(r"<h[1-6][\s>]", re.IGNORECASE)
_MOST_CHARACTERS_OF_A_PROPERTY = 1_000


def parse_epub(content: bytes, unpacked: UnpackedBytes) -> ParsedDocument:
    """Reads the chapters in the spine; one without a heading gets its entry in the table of contents as heading.

    Raises:
        EncryptedDocument: Its text is encrypted.
    """
    container = Container(content, unpacked)
    root = _RootFile()
    _read(container, _CONTAINER, root)
    package = _Package(root.path)
    _read(container, root.path, package)
    encrypted = _Encrypted()
    if _ENCRYPTION in container:
        _read(container, _ENCRYPTION, encrypted)
    contents = _Contents(package.contents)
    if package.contents in container:
        _read(container, package.contents, contents)
    builder = DocumentBuilder()
    for chapter in package.chapters():
        if chapter in encrypted.parts:
            raise EncryptedDocument("its text is encrypted (DRM); only the reader of its shop can open it")
        if chapter in container:
            raw = container.read(chapter)
            source = decode_text(raw, declared_encoding(raw))
            if not _HEADING.search(source):
                builder.add(BlockKind.HEADING, contents.labels.get(chapter, ""), 1)
            add_html(builder, source)
    found = package.properties
    title = found.get("dc:title", "")
    return builder.build(
        title,
        metadata=properties(title, found.get("dc:creator", ""), iso_moment(found.get("dc:date", ""))),
    )


def _read(container: Container, name: str, handler: XmlHandler) -> None:
    with container.open(name) as part:
        read_xml(part, name, handler)


class _RootFile:
    """Finds the path of the package document."""

    def __init__(self) -> None:
        self.path = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "container:rootfile" and not self.path:
            self.path = resolve("", unquote(attributes.get("full-path", "")))

    def end(self, name: str) -> None:
        """Ignored."""

    def text(self, text: str) -> None:
        """Ignored."""


class _Package:
    """Collects the parts, their reading order, and the properties of the book."""

    def __init__(self, path: str) -> None:
        self.properties: dict[str, str] = {}
        self.contents = ""
        self._path = path
        self._parts: dict[str, str] = {}
        self._spine: list[str] = []
        self._open = ""

    def chapters(self) -> list[str]:
        """Returns the names of the parts in reading order, each once."""
        return list(dict.fromkeys(self._parts[part] for part in self._spine if part in self._parts))

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._open = name if name.startswith("dc:") and name not in self.properties else ""
        if name == "opf:itemref":
            self._spine.append(attributes.get("idref", ""))
        elif name == "opf:item":
            part = resolve(self._path, unquote(attributes.get("href", "")))
            kind = attributes.get("media-type", "")
            is_contents = "nav" in attributes.get("properties", "").split()
            if kind in _PAGE_TYPES and not is_contents:
                self._parts[attributes.get("id", "")] = part
            if is_contents or (kind == "application/x-dtbncx+xml" and not self.contents):
                self.contents = part

    def end(self, name: str) -> None:
        self._open = ""

    def text(self, text: str) -> None:
        if self._open:
            self.properties[self._open] = (self.properties.get(self._open, "") + text)[:_MOST_CHARACTERS_OF_A_PROPERTY]


class _Contents:
    """Collects the entries of the table of contents, of either kind, by the part they link to."""

    def __init__(self, path: str) -> None:
        self.labels: dict[str, str] = {}
        self._path = path
        self._label: list[str] = []
        self._link = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "?:a":
            self._link = attributes.get("href", "")
            self._label.clear()
        elif name == "ncx:navLabel":
            self._label.clear()
        elif name == "ncx:content":
            self._enter(attributes.get("src", ""))

    def end(self, name: str) -> None:
        if name == "?:a":
            self._enter(self._link)

    def text(self, text: str) -> None:
        self._label.append(text)

    def _enter(self, link: str) -> None:
        self.labels.setdefault(resolve(self._path, unquote(link)), "".join(self._label))


class _Encrypted:
    """Collects the encrypted parts, obfuscated fonts included."""

    def __init__(self) -> None:
        self.parts: set[str] = set()

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "enc:CipherReference":
            self.parts.add(resolve("", unquote(attributes.get("URI", ""))))

    def end(self, name: str) -> None:
        """Ignored."""

    def text(self, text: str) -> None:
        """Ignored."""


EPUB = Format(
    name="EPUB",
    title="EPUB book",
    media_type="application/epub+zip",
    suffixes=(".epub",),
    reads="chapters in reading order with headings, paragraphs, lists, tables; encrypted books are rejected",
    parse=lambda content, context: parse_epub(content, context.unpacked),
    zip_kind=ZipKind(media_types=("application/epub+zip",), part="META-INF/container.xml"),
)
