"""Markdown parser: CommonMark with tables; YAML front matter becomes metadata.

Front matter values follow the core schema of YAML 1.2 and not PyYAML's 1.1, where ``no`` is false, ``12:30`` is 750 and
a class name creates an object. A value with a leading zero or too many digits is a text, because a number would not
preserve it. Keys of nested maps are joined with dots.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from itertools import accumulate
from math import isfinite
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.core.documents.metadata import MetadataValue, validate_metadata
from edge_rag.errors import BrokenDocument, InvalidRequest
from edge_rag.ingest.parsing.document_builder import DocumentBuilder
from edge_rag.ingest.parsing.document_format import Format
from edge_rag.ingest.parsing.text.html import add_html
from edge_rag.ingest.parsing.text.plain import decode_text

_FENCED = re.compile(r"\A---[^\S\n]*\n(.*?)(?<=\n)(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", re.DOTALL)
_LONGEST = 65_536
_LINE_BREAK = re.compile(r"\r\n?|\n")
_NEAR = 2048
"""Characters of markup within which the next piece of a text is looked for."""
_MAX_DEPTH = 8
_MAX_EVENTS = 4096
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,15})")
_REAL = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_DIGITS = re.compile(r"[-+]?[0-9]+")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d.*)?")
_EMPTY_VALUES = ("", "~", "null", "Null", "NULL")
_FLAGS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def take_front_matter(source: str) -> tuple[dict[str, MetadataValue], str]:
    """Splits the front matter off a Markdown text.

    Keys become lower case with ``_`` for spaces. Empty values are left out. Content between the fences that is not a
    YAML map is text, because a fence is also a Markdown rule.

    Returns:
        Metadata of the front matter, empty without one, and the rest of the text.

    Raises:
        BrokenDocument: It has aliases or tags, is nested too deeply, or a key or value is not valid metadata.
    """
    fenced = _FENCED.match(source[: _LONGEST + 8])
    if fenced is None:
        return {}, source
    try:
        _require_plain(fenced.group(1))
        root = yaml.compose(fenced.group(1), yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, OverflowError):  # the last two from invalid character escapes
        return {}, source
    if root is None:
        return {}, source[fenced.end() :]
    if not isinstance(root, yaml.MappingNode):
        return {}, source
    values: dict[str, Any] = {}
    for key, value in _entries(root, ""):
        if key in values:
            raise BrokenDocument(f"its front matter has {key!r} twice")
        values[key] = value
    try:
        return validate_metadata(values), source[fenced.end() :]
    except InvalidRequest as error:
        raise BrokenDocument(f"its front matter is invalid: {error}") from error


def _require_plain(text: str) -> None:
    """Rejects constructs whose expansion could be much larger than the text, before anything is built."""
    depth = 0
    for number, event in enumerate(yaml.parse(text, yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            raise BrokenDocument(f"its front matter has an alias (*{event.anchor}); write the value out")
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            raise BrokenDocument(f"its front matter has a tag ({event.tag}); only plain values are allowed")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise BrokenDocument(f"its front matter is nested deeper than {_MAX_DEPTH} levels")
        if number >= _MAX_EVENTS:
            raise BrokenDocument(f"its front matter has more than {_MAX_EVENTS:,} values")


def _entries(node: yaml.MappingNode, prefix: str) -> Iterator[tuple[str, Any]]:
    for key_node, value_node in node.value:
        name = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
        key = prefix + re.sub(r"\s+", "_", name.strip().lower())
        if isinstance(value_node, yaml.MappingNode):
            yield from _entries(value_node, f"{key}.")
        else:
            value = str(value_node.value) if key == "title" else _value(key, value_node)
            if value is not None and value != []:
                yield key, value


def _value(key: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        items = [_value(key, item) for item in node.value]
        if any(isinstance(item, list) for item in items) or any(isinstance(n, yaml.MappingNode) for n in node.value):
            raise BrokenDocument(f"its front matter is invalid: metadata[{key!r}]: a list may hold plain values only")
        return [str(item.value) for item in node.value if _value(key, item) is not None]
    quoted = isinstance(node, yaml.ScalarNode) and node.style is not None
    return (str(node.value) or None) if quoted else _scalar(str(node.value))


def _scalar(text: str) -> str | int | float | bool | date | None:
    """Returns the value of an unquoted scalar in YAML 1.2's core schema, or a date in ISO 8601."""
    if text in _EMPTY_VALUES:
        return None
    if text in _FLAGS:
        return _FLAGS[text]
    if _INTEGER.fullmatch(text):
        return int(text) if abs(int(text)) <= 2**53 else text
    if _REAL.fullmatch(text) and not _DIGITS.fullmatch(text):
        return float(text) if isfinite(float(text)) else text
    if _MOMENT.fullmatch(text):
        with suppress(ValueError):
            return date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
    return text


_MAX_NESTING = 10_000
"""Above the recursion limit of the parser, so that deeper nesting raises an error. The parser's default of 20, ten
nested lists, would drop text silently.
"""


def parse_markdown(content: bytes) -> ParsedDocument:
    """Reads headings, paragraphs, list items, table rows and code; inline markup is removed.

    The title in the front matter is the title of the document.
    """
    whole = decode_text(content).replace("\r\n", "\n")
    metadata, source = take_front_matter(whole)
    title = metadata.get("title", "")
    builder = DocumentBuilder()
    _add_blocks(
        builder,
        MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).enable(["table", "strikethrough"]).parse(source),
        1 + len(_LINE_BREAK.findall(whole[: len(whole) - len(source)])),
    )
    return replace(builder.build(title if isinstance(title, str) else ""), metadata=metadata)


def _add_blocks(builder: DocumentBuilder, tokens: Sequence[Token], first_line: int) -> None:
    """Appends the blocks of tokens; ``first_line`` is the line of the document that they begin on."""
    heading_level = 0
    list_depth = 0
    row: list[str] | None = None
    begin = None  # line of the row
    for token in tokens:
        line = None if token.map is None else first_line + token.map[0]
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
                row, begin = [], line
            case "tr_close":
                builder.add(BlockKind.TABLE_ROW, " | ".join(row or ()), lines=() if begin is None else ((0, begin),))
                row = None
            case "inline" if row is not None:
                row.append(_plain(token.children or ()))
            case "inline" if heading_level:
                builder.add(BlockKind.HEADING, _plain(token.children or ()), heading_level, lines=_lines(token, line))
            case "inline":
                kind = BlockKind.LIST_ITEM if list_depth else BlockKind.PARAGRAPH
                builder.add(kind, _plain(token.children or ()), lines=_lines(token, line))
            case "fence" | "code_block":
                builder.add(BlockKind.CODE, token.content, lines=_code_lines(token, line))
            case "html_block":
                add_html(builder, token.content)
            case _:
                pass


def _lines(token: Token, line: int | None) -> list[tuple[int, int]]:
    """Returns where in the plain text of an inline token lines of the source begin, for ``DocumentBuilder.add``.

    Each piece of the text is looked for in the source, since markup that is removed may go over several lines.
    """
    if line is None:
        return []
    source, marks = token.content, [(0, line)]
    at = length = 0

    def pass_to(position: int) -> int:
        nonlocal at, line
        assert line is not None
        line, at = line + source.count("\n", at, position), position
        if line != marks[-1][1]:
            marks.append((length, line))
        return line

    for piece in _flat(token.children or ()) if "\n" in source else ():
        shown = _plain([piece])
        if piece.type in ("softbreak", "hardbreak"):
            length += len(shown)
            pass_to(source.find("\n", at) + 1 or at)
        elif (found := _place_of(piece.content, source, at)) < 0:
            length += len(shown)
        else:
            pass_to(found)
            begin = length
            for each in _LINE_BREAK.finditer(source, found, found + len(piece.content) if shown else found):
                length = begin + each.end() - found
                pass_to(each.end())
            length = begin + len(shown)
            pass_to(found + len(piece.content))
    return marks


def _place_of(piece: str, source: str, at: int) -> int:
    """Returns where a piece of a source begins that is near; -1 if it is not found as it is written.

    In code, a line break was replaced by a space.
    """
    until = at + len(piece) + _NEAR
    found = source.find(piece, at, until) if piece else -1
    if found < 0 and " " in piece:
        found = source[at:until].replace("\n", " ").find(piece)
        found = found if found < 0 else found + at
    return found


def _flat(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        if token.type == "image":
            yield from _flat(token.children or ())
        else:
            yield token


def _code_lines(token: Token, line: int | None) -> list[tuple[int, int]]:
    if line is None:
        return []
    lines = token.content.split("\n")
    first = line + (token.type == "fence")
    begins = accumulate((len(each) + 1 for each in lines[:-1]), initial=0)
    return [(at, first + number) for number, at in enumerate(begins) if lines[number].strip()] or [(0, first)]


def _plain(tokens: Sequence[Token]) -> str:
    parts: list[str] = []
    for token in tokens:
        match token.type:
            case "text" | "code_inline" | "text_special":
                parts.append(token.content)
            case "softbreak":
                parts.append("\n")
            case "hardbreak":
                parts.append(" ")
            case "image":
                parts.append(_plain(token.children or ()))
            case "html_inline" if token.content.lower().startswith("<br"):
                parts.append(" ")
            case _:
                pass
    return "".join(parts)


MARKDOWN = Format(
    name="MARKDOWN",
    title="Markdown",
    media_type="text/markdown",
    suffixes=(".md", ".markdown"),
    reads="headings, paragraphs, lists, tables, code; YAML front matter becomes metadata",
    parse=lambda content, _: parse_markdown(content),
    aliases=("text/x-markdown",),
    is_text=True,
)
