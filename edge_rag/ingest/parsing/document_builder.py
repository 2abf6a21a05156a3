"""Builds the stored text of a document, block by block."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from edge_rag.core.documents.document import Block, BlockKind, ParsedDocument
from edge_rag.core.documents.metadata import MetadataValue

LONGEST_TITLE = 1_000
"""Most characters of a title; what is longer is cut."""

_NEWLINE = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b\u2060\ufeff\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WHITE_SPACE = re.compile(r"\s+")
_TRAILING_SPACE = re.compile(r"[^\S\n]+(?=\n|$)")
_DEEPEST_HEADING = 6
_COMPACT = (BlockKind.LIST_ITEM, BlockKind.TABLE_ROW)


def normalize(text: str) -> str:
    """Returns a text in Unicode normal form C with ``\\n`` as its only line end and without invisible characters.

    Control characters, soft hyphens, zero-width spaces and byte order marks go; joiners stay, since scripts need them.
    Halves of surrogate pairs, which no encoding can carry, become U+FFFD.
    """
    text = _INVISIBLE.sub("", _NEWLINE.sub("\n", text))
    return unicodedata.normalize("NFC", _SURROGATE.sub("\ufffd", text))


class DocumentBuilder:
    """Collects blocks; ``build`` joins them with blank lines, items of one list and rows of one table with line ends.

    Because a line end never composes with what follows it, a text of normalized blocks is itself normalized.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._blocks: list[Block] = []
        self._length = 0

    def add(self, kind: BlockKind, text: str, level: int = 0, page: int | None = None) -> None:
        """Appends a block; one without visible text is left out.

        Args:
            kind: Structural role. White space of any kind becomes one space, except in CODE, where lines stay.
            text: Its text, not yet normalized.
            level: Heading depth, 1 for the topmost; 0 for anything that is not a heading.
            page: 1-based page number, or None.
        """
        text = normalize(text)
        if kind is BlockKind.CODE:
            text = _TRAILING_SPACE.sub("", text.expandtabs(4)).strip("\n")
        else:
            text = _WHITE_SPACE.sub(" ", text).strip()
        if not text or text.isspace():
            return
        if self._blocks:
            compact = kind in _COMPACT and self._blocks[-1].kind is kind
            self._append("\n" if compact else "\n\n")
        start = self._length
        self._append(text)
        self._blocks.append(Block(kind, start, self._length, level, page))

    def append(self, document: ParsedDocument, below: int) -> None:
        """Appends the blocks of another document that is part of this one; its pages are not this one's.

        Args:
            document: The other document.
            below: Level of the heading that it stands under.
        """
        for block in document.blocks:
            level = min(below + block.level, _DEEPEST_HEADING) if block.level else 0
            self.add(block.kind, document.text[block.start : block.end], level)

    def build(
        self, title: str = "", pages: int | None = None, metadata: Mapping[str, MetadataValue] | None = None
    ) -> ParsedDocument:
        """Returns the document; its title is ``title`` or, where that is empty, its first heading of level 1."""
        text = "".join(self._parts)
        title = _WHITE_SPACE.sub(" ", normalize(title)).strip()
        if not title:
            top = next((block for block in self._blocks if block.level == 1), None)
            title = text[top.start : top.end] if top else ""
        return ParsedDocument(title[:LONGEST_TITLE], text, tuple(self._blocks), pages, metadata or {})

    def _append(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)
