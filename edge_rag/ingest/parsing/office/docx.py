"""DOCX parser: the text of a Word document with all tracked changes accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.errors import BrokenDocument
from edge_rag.ingest.parsing.document_builder import BlockWriter, DocumentBuilder
from edge_rag.ingest.parsing.document_format import Format, UnpackedBytes, ZipKind
from edge_rag.ingest.parsing.office.package import Container, main_part, office_properties, read_xml, relations_of

_LEFT_OUT = frozenset(
    (
        "w:del",
        "w:moveFrom",
        "w:instrText",
        "w:delText",
        "mc:Fallback",
        "w:sectPr",
        "w:tblPr",
        "w:pPrChange",
        "w:rPrChange",
    )
)
_WHITE_SPACE = frozenset(("w:tab", "w:br", "w:cr", "w:ptab"))
_NOTE_REFERENCES = {"w:footnoteReference": "footnotes", "w:endnoteReference": "endnotes"}
_OFF = frozenset(("0", "false", "off"))
_BODY_OUTLINE_LEVEL = 9
_LONGEST_STYLE_CHAIN = 20


@dataclass(frozen=True, slots=True)
class _Style:
    """A paragraph style; ``level`` is the heading level, 0 for none."""

    level: int = 0
    is_list: bool = False


@dataclass(slots=True)
class _Paragraph:
    """An open paragraph; ``level`` and ``is_list`` are its own, None if its style decides."""

    style: str = ""
    level: int | None = None
    is_list: bool | None = None
    text: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def parse_docx(content: bytes, unpacked: UnpackedBytes) -> ParsedDocument:
    """Reads headings, paragraphs, list items and table rows; a footnote or endnote follows the paragraph that first
    refers to it.

    Text boxes precede the paragraph they are anchored in. Page headers and footers, comments, and deleted or hidden
    text are left out. A Word file has no pages until it is printed, so page numbers are None.
    """
    container = Container(content, unpacked)
    main = main_part(container) or "word/document.xml"
    further = {relation.kind: relation.target for relation in relations_of(container, main).values()}
    styles = _read_styles(container, further.get("styles", ""))
    notes = {
        (kind, note): texts
        for kind in _NOTE_REFERENCES.values()
        for note, texts in _read_notes(container, further.get(kind, "")).items()
    }
    builder = DocumentBuilder()
    with container.open(main) as part:
        read_xml(part, main, _Body(BlockWriter(builder), styles, notes))
    properties = office_properties(container)
    return builder.build(str(properties.get("title", "")), metadata=properties)


class _Body:
    """Handles the XML events of the document's text."""

    def __init__(
        self, writer: BlockWriter, styles: Mapping[str, _Style], notes: dict[tuple[str, str], list[str]]
    ) -> None:
        self._writer = writer
        self._styles = styles
        self._notes = notes
        self._paragraphs: list[_Paragraph] = []
        self._left_out = 0
        self._in_text = False
        self._in_run = False
        self._hidden = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._left_out or name in _LEFT_OUT:
            self._left_out += 1
            return
        match name:
            case "w:p":
                self._paragraphs.append(_Paragraph())
            case "w:tr":
                self._writer.open_row()
            case "w:tc":
                self._writer.open_cell()
            case "w:r":
                self._in_run, self._hidden = True, False
            case "w:vanish" if self._in_run:
                self._hidden = attributes.get("w:val", "1") not in _OFF
            case "w:t" | "m:t":
                self._in_text = not self._hidden
            case _ if self._paragraphs:
                self._start_in_paragraph(self._paragraphs[-1], name, attributes)
            case _:
                pass

    def _start_in_paragraph(self, paragraph: _Paragraph, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "w:pStyle":
                paragraph.style = attributes.get("w:val", "")
            case "w:outlineLvl":
                paragraph.level = _level(attributes)
            case "w:numId":
                paragraph.is_list = attributes.get("w:val") != "0"
            case "w:noBreakHyphen":
                paragraph.text.append("-")
            case _ if name in _WHITE_SPACE and self._in_run:
                paragraph.text.append(" ")
            case _ if name in _NOTE_REFERENCES:
                note = _NOTE_REFERENCES[name], attributes.get("w:id", "")
                paragraph.notes.extend(self._notes.pop(note, ()))
            case _:
                pass

    def end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
            return
        match name:
            case "w:p" if self._paragraphs:
                self._close(self._paragraphs.pop())
            case "w:tr":
                self._writer.close_row()
            case "w:r":
                self._in_run = self._hidden = False
            case "w:t" | "m:t":
                self._in_text = False
            case _:
                pass

    def text(self, text: str) -> None:
        if self._in_text and self._paragraphs and not self._left_out:
            self._paragraphs[-1].text.append(text)

    def _close(self, paragraph: _Paragraph) -> None:
        style = self._styles.get(paragraph.style, _Style())
        level = style.level if paragraph.level is None else paragraph.level
        is_list = style.is_list if paragraph.is_list is None else paragraph.is_list
        text = "".join(paragraph.text)
        if level:
            self._writer.add(BlockKind.HEADING, text, level)
        else:
            self._writer.add(BlockKind.LIST_ITEM if is_list else BlockKind.PARAGRAPH, text)
        for note in paragraph.notes:
            self._writer.add(BlockKind.PARAGRAPH, note)


class _Styles:
    """Collects the properties of each style and the style it is based on."""

    def __init__(self) -> None:
        self.own: dict[str, tuple[str, int | None, bool]] = {}
        self._id = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "w:style":
            self._id = attributes.get("w:styleId", "") if attributes.get("w:type") == "paragraph" else ""
            self.own.setdefault(self._id, ("", None, False))
        if not self._id:
            return
        base, level, is_list = self.own[self._id]
        match name:
            case "w:name":
                level = _level_named(attributes.get("w:val", "")) if level is None else level
            case "w:basedOn":
                base = attributes.get("w:val", "")
            case "w:outlineLvl":
                level = _level(attributes)
            case "w:numId":
                is_list = attributes.get("w:val") != "0"
            case _:
                return
        self.own[self._id] = (base, level, is_list)

    def end(self, name: str) -> None:
        if name == "w:style":
            self._id = ""

    def text(self, text: str) -> None:
        """Ignored: styles have no text."""


class _Notes:
    """Collects the text of footnotes or endnotes as paragraphs by id."""

    def __init__(self) -> None:
        self._paragraphs: dict[str, list[list[str]]] = {}
        self._id: str | None = None
        self._in_text = False
        self._left_out = 0

    @property
    def found(self) -> dict[str, list[str]]:
        return {note: ["".join(parts) for parts in paragraphs] for note, paragraphs in self._paragraphs.items()}

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._left_out or name in _LEFT_OUT:
            self._left_out += 1
        elif name in ("w:footnote", "w:endnote"):
            self._id = attributes.get("w:id") if attributes.get("w:type", "normal") == "normal" else None
        elif name == "w:p" and self._id is not None:
            self._paragraphs.setdefault(self._id, []).append([])
        elif name in _WHITE_SPACE:
            self._append(" ")
        self._in_text = name in ("w:t", "m:t")

    def end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
        elif name in ("w:footnote", "w:endnote"):
            self._id = None
        self._in_text = False

    def text(self, text: str) -> None:
        if self._in_text and not self._left_out:
            self._append(text)

    def _append(self, text: str) -> None:
        if self._id is not None and self._paragraphs.get(self._id):
            self._paragraphs[self._id][-1].append(text)


def _read_styles(container: Container, name: str) -> dict[str, _Style]:
    if name not in container:
        return {}
    styles = _Styles()
    with container.open(name) as part:
        read_xml(part, name, styles)
    return {style: _inherited(styles.own, style) for style in styles.own}


def _inherited(own: Mapping[str, tuple[str, int | None, bool]], style: str) -> _Style:
    level: int | None = None
    is_list = False
    for _ in range(_LONGEST_STYLE_CHAIN):
        if style not in own:
            break
        style, own_level, listed = own[style]
        level = own_level if level is None else level
        is_list = is_list or listed
    return _Style(level or 0, is_list)


def _read_notes(container: Container, name: str) -> dict[str, list[str]]:
    if name not in container:
        return {}
    notes = _Notes()
    with container.open(name) as part:
        read_xml(part, name, notes)
    return notes.found


def _level(attributes: Mapping[str, str]) -> int:
    value = attributes.get("w:val", "")
    if not (value.isascii() and value.isdigit()):
        raise BrokenDocument(f"it has the outline level {value[:20]!r}, which is not a number")
    return 0 if int(value[:3]) >= _BODY_OUTLINE_LEVEL else int(value[:3]) + 1


def _level_named(name: str) -> int | None:
    words = name.lower().split()
    if words == ["title"]:
        return 1
    if len(words) == 2 and words[0] == "heading" and words[1] in "123456789":
        return int(words[1])
    return None


DOCX = Format(
    name="DOCX",
    title="Word",
    media_type="application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    suffixes=(".docx", ".docm"),
    reads="headings, paragraphs, lists, tables, footnotes and endnotes; tracked changes count as accepted",
    parse=lambda content, context: parse_docx(content, context.unpacked),
    zip_kind=ZipKind(part="word/document.xml", folder="word/"),
)
