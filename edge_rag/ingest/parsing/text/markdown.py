"""Markdown: CommonMark with tables, read to plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from markdown_it import MarkdownIt
from markdown_it.token import Token

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.ingest.parsing.document_builder import DocumentBuilder
from edge_rag.ingest.parsing.text.encodings import decode_text
from edge_rag.ingest.parsing.text.front_matter import take_front_matter
from edge_rag.ingest.parsing.text.html import add_html

_DEEPEST = 10_000
"""More than the parser's recursion can do, so that what is nested too deeply is refused. Its own bound of 20, ten lists
in lists, would leave text out without a word."""


def parse_markdown(content: bytes) -> ParsedDocument:
    """Reads Markdown: headings, paragraphs, list items, table rows and code; inline markup is removed.

    A YAML front matter is taken off and becomes metadata; its title is the document's.

    Raises:
        UnsupportedFormat: The bytes are not text.
        BrokenDocument: The front matter cannot be used.
    """
    metadata, source = take_front_matter(decode_text(content).replace("\r\n", "\n"))
    title = metadata.get("title", "")
    builder = DocumentBuilder()
    _add_blocks(
        builder, MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable(["table", "strikethrough"]).parse(source)
    )
    return replace(builder.build(title if isinstance(title, str) else ""), metadata=metadata)


def _add_blocks(builder: DocumentBuilder, tokens: Sequence[Token]) -> None:
    heading_level = 0
    list_depth = 0
    row: list[str] | None = None
    for token in tokens:
        match token.type:
            case "heading_open":
                heading_level = int(token.tag[1:])
            case "heading_close":
                heading_level = 0
            case "list_item_open":
                list_depth += 1
            case "list_item_close":
                list_depth -= 1
            case "tr_open":
                row = []
            case "tr_close":
                builder.add(BlockKind.TABLE_ROW, " | ".join(row or ()))
                row = None
            case "inline" if row is not None:
                row.append(_plain(token.children or ()))
            case "inline" if heading_level:
                builder.add(BlockKind.HEADING, _plain(token.children or ()), heading_level)
            case "inline":
                kind = BlockKind.LIST_ITEM if list_depth else BlockKind.PARAGRAPH
                builder.add(kind, _plain(token.children or ()))
            case "fence" | "code_block":
                builder.add(BlockKind.CODE, token.content)
            case "html_block":
                add_html(builder, token.content)
            case _:
                pass


def _plain(tokens: Sequence[Token]) -> str:
    parts: list[str] = []
    for token in tokens:
        match token.type:
            case "text" | "code_inline" | "text_special":
                parts.append(token.content)
            case "softbreak" | "hardbreak":
                parts.append(" ")
            case "image":
                parts.append(_plain(token.children or ()))
            case "html_inline" if token.content.lower().startswith("<br"):
                parts.append(" ")
            case _:
                pass
    return "".join(parts)
