"""PPTX parser: one page per slide with its title, text, tables and notes."""

from __future__ import annotations

from collections.abc import Mapping

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.errors import DocumentTooLarge
from edge_rag.ingest.parsing.document_builder import BlockWriter, DocumentBuilder
from edge_rag.ingest.parsing.document_format import Format, UnpackedBytes, ZipKind
from edge_rag.ingest.parsing.office.package import Container, main_part, office_properties, read_xml, relations_of

_TITLES = frozenset(("title", "ctrTitle"))
_PLACEHOLDERS = frozenset(("sldNum", "dt", "ftr", "hdr", "sldImg"))
_LISTS = frozenset(("body", "obj", ""))


def parse_pptx(content: bytes, unpacked: UnpackedBytes, max_pages: int) -> ParsedDocument:
    """Reads the slides in presentation order, each once, followed by its notes.

    Slide numbers, dates and footers are left out, as are pictures, charts and diagrams.
    """
    container = Container(content, unpacked)
    main = main_part(container) or "ppt/presentation.xml"
    order = _Order()
    with container.open(main) as part:
        read_xml(part, main, order)
    if len(order.slides) > max_pages:
        raise DocumentTooLarge(f"it has {len(order.slides):,} slides, at most {max_pages:,} are read")
    relations = relations_of(container, main)
    slides = list(dict.fromkeys(relations[slide].target for slide in order.slides if slide in relations))
    builder = DocumentBuilder()
    writer = BlockWriter(builder)
    notes_read: set[str] = set()
    for number, slide in enumerate(slides, start=1):
        writer.page = number
        with container.open(slide) as part:
            read_xml(part, slide, _Slide(writer))
        for relation in relations_of(container, slide).values():
            unread = relation.target in container and relation.target not in notes_read
            if relation.kind == "notesSlide" and unread:
                notes_read.add(relation.target)
                with container.open(relation.target) as part:
                    read_xml(part, relation.target, _Notes(writer))
    properties = office_properties(container)
    return builder.build(str(properties.get("title", "")), len(slides), metadata=properties)


class _Order:
    """Collects the relation ids of the slides in order."""

    def __init__(self) -> None:
        self.slides: list[str] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "p:sldId":
            self.slides.append(attributes.get("r:id", ""))

    def end(self, name: str) -> None:
        """Ignored."""

    def text(self, text: str) -> None:
        """Ignored."""


class _Slide:
    """Handles the XML events of a slide."""

    def __init__(self, writer: BlockWriter) -> None:
        self._writer = writer
        self._role: str | None = None
        self._left_out = 0
        self._in_text = False
        self._in_cell = False
        self._text: list[str] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._left_out or name == "mc:Fallback" or (name == "a:fld" and attributes.get("type") == "slidenum"):
            self._left_out += 1
            return
        match name:
            case "p:sp" | "p:graphicFrame":
                self._role = None
            case "p:ph":
                self._role = attributes.get("type", "")
            case "a:tr":
                self._writer.open_row()
            case "a:tc":
                self._writer.open_cell()
                self._in_cell = True
            case "a:p":
                self._text.clear()
            case "a:br" | "a:tab":
                self._text.append(" ")
            case "a:t":
                self._in_text = True
            case _:
                pass

    def end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
            return
        match name:
            case "a:p":
                self._close(self._role, "".join(self._text))
                self._text.clear()
            case "a:tc":
                self._in_cell = False
            case "a:tr":
                self._writer.close_row()
            case "a:t":
                self._in_text = False
            case _:
                pass

    def text(self, text: str) -> None:
        if self._in_text and not self._left_out:
            self._text.append(text)

    def _close(self, role: str | None, text: str) -> None:
        if role in _PLACEHOLDERS:
            return
        if role in _TITLES:
            self._writer.add(BlockKind.HEADING, text, 1)
        elif role in _LISTS and not self._in_cell:
            self._writer.add(BlockKind.LIST_ITEM, text)
        else:
            self._writer.add(BlockKind.PARAGRAPH, text)


class _Notes(_Slide):
    """Handles the XML events of a slide's notes; the slide image and page placeholders are left out."""

    def _close(self, role: str | None, text: str) -> None:
        if role == "body":
            self._writer.add(BlockKind.PARAGRAPH, text)


PPTX = Format(
    name="PPTX",
    title="PowerPoint",
    media_type="application/vnd.openxmlformats-officedocument.presentationml.presentation",
    suffixes=(".pptx", ".pptm"),
    reads="one page per slide: title, text, lists, tables, speaker notes",
    parse=lambda content, context: parse_pptx(content, context.unpacked, context.limits.max_pages),
    zip_kind=ZipKind(part="ppt/presentation.xml", folder="ppt/"),
)
