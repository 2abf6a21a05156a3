"""HTML parser: the visible text of a page with its structure."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from bs4 import BeautifulSoup, UnusualUsageWarning
from bs4.dammit import EncodingDetector
from bs4.element import NavigableString, PreformattedString, Tag
from bs4.exceptions import ParserRejectedMarkup

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.errors import BrokenDocument
from edge_rag.ingest.parsing.document_builder import DocumentBuilder
from edge_rag.ingest.parsing.document_format import Format
from edge_rag.ingest.parsing.text.plain import decode_text

_DROPPED = re.compile(
    r"script|style|nav|noscript|template|svg|math|head|iframe|object|embed|canvas|audio|video|select|button|form"
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_ITEMS = frozenset(("li", "dt", "dd"))
_CELLS = frozenset(("td", "th"))
_INLINE = re.compile(
    r"a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|img|ins|kbd|label|mark|output|q|rp|rt|ruby|s|"
    r"samp|small|span|strike|strong|sub|sup|time|tt|u|var|wbr"
)


_DECLARATION_BYTES = 4096
"""Where the encoding of a page is looked for; browsers look at 1,024 bytes."""

_COMMENT_END = re.compile(r"--!?\s*>")
_SECTION_ENDS = (
    (re.compile(r"<!\[\s*(?:if|else|endif)\b", re.IGNORECASE), re.compile(r"\]\s*>")),
    (re.compile(r"<!\["), re.compile(r"\]\s*\]\s*>")),
)


def parse_html(content: bytes) -> ParsedDocument:
    """Reads a page: title, headings, paragraphs, list items, table rows and preformatted text.

    Scripts, styles, navigation, forms and elements with the attribute ``hidden`` are left out.
    """
    source = decode_text(content, declared_encoding(content))
    builder = DocumentBuilder()
    return builder.build(add_html(builder, source))


def declared_encoding(content: bytes) -> str | None:
    """Returns the encoding that a page declares near its start, or None."""
    return EncodingDetector.find_declared_encoding(content[:_DECLARATION_BYTES], is_html=True)


def add_html(builder: DocumentBuilder, source: str) -> str:
    """Appends the blocks of a page or a fragment.

    Returns:
        Title of the page, or empty.

    Raises:
        BrokenDocument: The markup cannot be parsed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnusualUsageWarning)
            page = BeautifulSoup(_with_open_markup_as_text(source), "html.parser")
    except ParserRejectedMarkup as error:
        raise BrokenDocument("its markup cannot be parsed") from error
    walk = _Walk(builder)
    for opens, node in _events(page):
        if isinstance(node, Tag):
            walk.open(node) if opens else walk.close(node)
        else:
            walk.text(node)
    walk.flush()
    title = page.find("title")
    return title.get_text() if isinstance(title, Tag) else ""


def _with_open_markup_as_text(source: str) -> str:
    """Escapes what opens a comment, a marked section or a tag that never ends.

    The parser of the standard library reads such markup as text too, but searches the rest of the page for the end each
    time, which takes quadratic time for many of them (CPython issue 135462, CVE-2025-6069).
    """
    source = _escaped(source, "<!--", _end_of_last(_COMMENT_END, source))
    for opening, ending in _SECTION_ENDS:
        end = _end_of_last(ending, source)
        source = source[:end] + opening.sub(lambda found: "&lt;" + found.group()[1:], source[end:])
    return _escaped(source, "<", source.rfind(">") + 1)


def _escaped(source: str, opening: str, start: int) -> str:
    return source[:start] + source[start:].replace(opening, "&lt;" + opening[1:])


def _end_of_last(pattern: re.Pattern[str], source: str) -> int:
    end = 0
    for found in pattern.finditer(source):
        end = found.end()
    return end


def _events(root: Tag) -> Iterator[tuple[bool, Tag | NavigableString]]:
    """Yields (True, node) at the start of a node and (False, tag) at the end of a tag, without recursion."""
    pending = [iter(root.contents)]
    open_tags: list[Tag] = []
    while pending:
        node = next(pending[-1], None)
        if node is None:
            pending.pop()
            if open_tags:
                yield False, open_tags.pop()
        elif isinstance(node, Tag):
            if not _DROPPED.fullmatch(node.name) and not node.has_attr("hidden"):
                yield True, node
                open_tags.append(node)
                pending.append(iter(node.contents))
        elif isinstance(node, NavigableString) and not isinstance(node, PreformattedString):
            yield True, node


class _Walk:
    """Collects text until a block-level tag opens or closes and determines the kind of block."""

    def __init__(self, builder: DocumentBuilder) -> None:
        self._builder = builder
        self._parts: list[str] = []
        self._heading = 0
        self._items = 0
        self._preformatted = 0
        self._cells: list[str] | None = None

    def open(self, tag: Tag) -> None:
        if tag.name == "br":
            self._parts.append("\n" if self._preformatted else " ")
        elif _INLINE.fullmatch(tag.name):
            return
        elif self._cells is not None and tag.name not in ("tr", "table"):
            self._end_cell() if tag.name in _CELLS else self._parts.append(" ")
        else:
            self.flush()
        if tag.name in _HEADINGS:
            self._heading = _HEADINGS[tag.name]
        elif tag.name in _ITEMS:
            self._items += 1
        elif tag.name == "pre":
            self._preformatted += 1
        elif tag.name == "tr":
            self._cells = []

    def close(self, tag: Tag) -> None:
        if _INLINE.fullmatch(tag.name) or tag.name == "br":
            return
        if self._cells is None or tag.name in ("tr", "table"):
            self.flush()
        elif tag.name in _CELLS:
            self._end_cell()
        else:
            self._parts.append(" ")
        if tag.name in _HEADINGS:
            self._heading = 0
        elif tag.name in _ITEMS:
            self._items -= 1
        elif tag.name == "pre":
            self._preformatted -= 1

    def text(self, text: NavigableString) -> None:
        self._parts.append(str(text))

    def flush(self) -> None:
        if self._cells is not None:
            self._end_cell()
            self._builder.add(BlockKind.TABLE_ROW, " | ".join(self._cells))
            self._cells = None
            return
        text = "".join(self._parts)
        self._parts.clear()
        if self._heading:
            self._builder.add(BlockKind.HEADING, text, self._heading)
        elif self._preformatted:
            self._builder.add(BlockKind.CODE, text)
        else:
            self._builder.add(BlockKind.LIST_ITEM if self._items else BlockKind.PARAGRAPH, text)

    def _end_cell(self) -> None:
        text = "".join(self._parts).strip()
        self._parts.clear()
        if text and self._cells is not None:
            self._cells.append(text)


_HTML_OPENING = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]{0,200}\?>\s*)?(?:<!--(?:[^-]|-(?!->))*-->\s*)*<(?:!doctype\s+html|html)\b",
    re.IGNORECASE,
)


def _is_html(content: bytes) -> bool:
    return _HTML_OPENING.match(content[:4096]) is not None


HTML = Format(
    name="HTML",
    title="Web page",
    media_type="text/html",
    suffixes=(".html", ".htm", ".xhtml"),
    reads="title, headings, paragraphs, lists, tables, code; no navigation, forms or hidden elements",
    parse=lambda content, _: parse_html(content),
    aliases=("application/xhtml+xml",),
    sniff=_is_html,
    is_text=True,
    overrides_weak_names=True,
)
