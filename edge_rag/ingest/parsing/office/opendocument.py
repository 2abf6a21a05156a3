"""OpenDocument parser for text documents and presentations (ODT, ODP), and properties of all OpenDocument files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.core.documents.metadata import MetadataValue
from edge_rag.errors import DocumentTooLarge, EncryptedDocument
from edge_rag.ingest.parsing.document_builder import BlockWriter, DocumentBuilder, iso_moment, properties
from edge_rag.ingest.parsing.document_format import Format, ParseContext, UnpackedBytes, ZipKind
from edge_rag.ingest.parsing.office.package import Container, read_properties, read_xml

_CONTENT = "content.xml"
_META = "meta.xml"
_MANIFEST = "META-INF/manifest.xml"
_LEFT_OUT = frozenset(
    ("text:tracked-changes", "office:annotation", "office:automatic-styles", "text:note-citation", "text:page-number")
)
_MOST_SPACES = 100


def parse_opendocument(content: bytes, unpacked: UnpackedBytes, max_pages: int) -> ParsedDocument:
    """Reads headings, paragraphs, list items and table rows; a note follows its paragraph.

    In a presentation a slide is a page; a text document has no pages until it is printed. Deleted text of tracked
    changes and comments are left out.
    """
    container = Container(content, unpacked)
    if _MANIFEST in container and b"encryption-data" in container.read(_MANIFEST):
        raise EncryptedDocument("it is encrypted and needs a password; save a copy without one")
    builder = DocumentBuilder()
    body = _Body(BlockWriter(builder), max_pages)
    with container.open(_CONTENT) as part:
        read_xml(part, _CONTENT, body)
    stored_properties = opendocument_properties(container)
    return builder.build(str(stored_properties.get("title", "")), body.pages or None, stored_properties)


def opendocument_properties(container: Container) -> dict[str, MetadataValue]:
    """Returns the properties of an OpenDocument file as metadata."""
    stored_properties = read_properties(container, _META)
    author = stored_properties.get("meta:initial-creator") or stored_properties.get("dc:creator", "")
    created, modified = (
        iso_moment(stored_properties.get("meta:creation-date", "")),
        iso_moment(stored_properties.get("dc:date", "")),
    )
    return properties(stored_properties.get("dc:title", ""), author, created, modified)


@dataclass(slots=True)
class _Paragraph:
    level: int
    in_note: bool
    text: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Body:
    """Handles the XML events of ``content.xml``."""

    def __init__(self, writer: BlockWriter, max_pages: int) -> None:
        self.pages = 0
        self._writer = writer
        self._max_pages = max_pages
        self._paragraphs: list[_Paragraph] = []
        self._lists = 0
        self._notes = 0
        self._left_out = 0
        self._is_title = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._left_out or name in _LEFT_OUT:
            self._left_out += 1
            return
        match name:
            case "text:h" | "text:p":
                level = _number(attributes.get("text:outline-level", "1"), 6) if name == "text:h" else 0
                self._paragraphs.append(_Paragraph(1 if self._is_title else level, self._notes > 0))
            case "text:list":
                self._lists += 1
            case "text:note":
                self._notes += 1
            case "table:table-row":
                self._writer.open_row()
            case "table:table-cell" | "table:covered-table-cell":
                self._writer.open_cell()
            case "draw:frame":
                self._is_title = attributes.get("presentation:class") == "title"
            case "draw:page":
                self.pages += 1
                self._writer.page = self.pages
                if self.pages > self._max_pages:
                    raise DocumentTooLarge(f"it has more than {self._max_pages:,} slides")
            case "text:s":
                self._append(" " * _number(attributes.get("text:c", "1"), _MOST_SPACES))
            case "text:tab" | "text:line-break":
                self._append(" ")
            case _:
                pass

    def end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
            return
        match name:
            case "text:h" | "text:p" if self._paragraphs:
                self._close(self._paragraphs.pop())
            case "text:list":
                self._lists -= 1
            case "text:note":
                self._notes -= 1
            case "table:table-row":
                self._writer.close_row()
            case "draw:frame":
                self._is_title = False
            case _:
                pass

    def text(self, text: str) -> None:
        if not self._left_out:
            self._append(text)

    def _append(self, text: str) -> None:
        if self._paragraphs:
            self._paragraphs[-1].text.append(text)

    def _close(self, paragraph: _Paragraph) -> None:
        text = "".join(paragraph.text)
        if paragraph.in_note and self._paragraphs:
            self._paragraphs[-1].notes.append(text)
        elif paragraph.level:
            self._writer.add(BlockKind.HEADING, text, paragraph.level)
        else:
            self._writer.add(BlockKind.LIST_ITEM if self._lists else BlockKind.PARAGRAPH, text)
        for note in paragraph.notes:
            self._writer.add(BlockKind.PARAGRAPH, note)


def _number(text: str, limit: int) -> int:
    return min(max(int(text[:6]), 1), limit) if text.isascii() and text.isdigit() else 1


def opendocument_zip_kind(media_type: str) -> ZipKind:
    return ZipKind(media_types=(media_type, f"{media_type}-template"))


def _parse(content: bytes, context: ParseContext) -> ParsedDocument:
    return parse_opendocument(content, context.unpacked, context.limits.max_pages)


ODT = Format(
    name="ODT",
    title="OpenDocument text",
    media_type="application/vnd.oasis.opendocument.text",
    suffixes=(".odt",),
    reads="headings, paragraphs, lists, tables, notes; tracked changes count as accepted",
    parse=_parse,
    zip_kind=opendocument_zip_kind("application/vnd.oasis.opendocument.text"),
)
ODP = Format(
    name="ODP",
    title="OpenDocument presentation",
    media_type="application/vnd.oasis.opendocument.presentation",
    suffixes=(".odp",),
    reads="one page per slide: title, text, lists, tables, notes",
    parse=_parse,
    zip_kind=opendocument_zip_kind("application/vnd.oasis.opendocument.presentation"),
)
