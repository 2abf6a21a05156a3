"""Plain text: paragraphs set apart by blank lines, items by bullets, headings by underlining."""

from __future__ import annotations

import re
from itertools import pairwise

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.ingest.parsing.document_builder import DocumentBuilder, normalize
from edge_rag.ingest.parsing.text.encodings import decode_text

_BULLET = re.compile(r"[-*+•◦▪‣·●○–]\s+(?=\S)")
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n")
_UNDERLINE = re.compile(r"([=-])\1{2,}")
_COLUMNS = re.compile(r"\S(?: {2,}|\t)\S")
_ENTRY = re.compile(r"\s*(?:\d|[^\W\d_][\w ]{0,30}:\s)")
_WIDEST_WRAPPED = 100


def parse_plain(content: bytes) -> ParsedDocument:
    """Reads plain text of any encoding.

    Hard-wrapped lines of a paragraph are joined. A paragraph whose lines were ended on purpose, are set in columns or
    all start with a number or a label (a log, an address, a table of readings) keeps each line as an item, so that no
    two entries become one sentence.

    Raises:
        UnsupportedFormat: The bytes are not text.
    """
    builder = DocumentBuilder()
    add_plain(builder, decode_text(content))
    return builder.build()


def add_plain(builder: DocumentBuilder, source: str) -> None:
    """Appends the blocks of a text, as ``parse_plain`` finds them."""
    for paragraph in _BLANK_LINES.split(normalize(source).strip("\n")):
        for kind, text, level in _blocks([line for line in paragraph.split("\n") if line.strip()] or [""]):
            builder.add(kind, text, level)


def _blocks(lines: list[str]) -> list[tuple[BlockKind, str, int]]:
    """Blocks of one paragraph: an underlined heading, list items, joined prose, or one line each."""
    if len(lines) == 2 and (underline := _UNDERLINE.fullmatch(lines[1].strip())):
        return [(BlockKind.HEADING, lines[0], 1 if underline.group(1) == "=" else 2)]
    if _BULLET.match(lines[0].lstrip()):
        return [(BlockKind.LIST_ITEM, item, 0) for item in _items(lines)]
    if _is_wrapped(lines):
        return [(BlockKind.PARAGRAPH, " ".join(lines), 0)]
    return [(BlockKind.LIST_ITEM, line, 0) for line in lines]


def _items(lines: list[str]) -> list[str]:
    items: list[str] = []
    for line in lines:
        stripped = line.lstrip()
        bullet = _BULLET.match(stripped)
        if bullet:
            items.append(stripped[bullet.end() :])
        else:
            items[-1] += " " + stripped
    return items


def _is_wrapped(lines: list[str]) -> bool:
    """Whether the lines were broken for width.

    A line was ended on purpose if the next one's first word would still have fitted on it and does not go on in lower
    case. Text wrapped by a program has no such lines; a third of them is allowed for text wrapped by hand.
    """
    if len(lines) == 1:
        return True
    width = max(len(line.rstrip()) for line in lines)
    in_columns = any(_COLUMNS.search(line.strip()) for line in lines)
    if width > _WIDEST_WRAPPED or in_columns or all(_ENTRY.match(line) for line in lines):
        return False
    on_purpose = sum(
        len(line.rstrip()) + 1 + len(after.split(maxsplit=1)[0]) <= width and not after.lstrip()[0].islower()
        for line, after in pairwise(lines)
    )
    return 3 * on_purpose <= len(lines) - 1
