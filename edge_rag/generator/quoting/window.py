"""The stored text that can be quoted for a passage: the passage and what is around it, in its parts; pure.

Positions are characters of the document's stored text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

from edge_rag.core.documents.parts import ChunkPlace, PartKind, TextPart, parts_of
from edge_rag.core.passage import Passage
from edge_rag.core.text import is_open, sentence_spans

Span = tuple[int, int]
"""Characters of a document's stored text: the first one, and one past the last."""

TITLE_CHARACTERS: Final = 120
"""Most characters of a block that is a title without being stored as a heading."""

_COLONS: Final = (":", "\uff1a")
_CLOSING: Final = "\"'”’»)]*_ "


def ends_with_colon(sentence: str) -> bool:
    return sentence.rstrip(_CLOSING).endswith(_COLONS)


class Window:
    """A passage with the text around it, as far as that was read."""

    def __init__(self, passage: Passage) -> None:
        around = passage.surroundings
        self.passage = passage
        self.start = passage.start if around is None else around.start
        self.text = passage.text if around is None else around.text
        own = (ChunkPlace(passage.start, passage.end, passage.context),)
        self.parts: tuple[TextPart, ...] = tuple(
            parts_of(self.text, self.start, own if around is None else around.chunks)
        )

    def read(self, start: int, end: int) -> str:
        return self.text[start - self.start : end - self.start]

    def part_at(self, position: int) -> int:
        """Returns the number of the part that holds a character, which is not white space."""
        return next(number for number, part in enumerate(self.parts) if position < part.end)

    def lines(self, number: int) -> tuple[Span, ...]:
        """Returns the lines of a part."""
        part = self.parts[number]
        found: list[Span] = []
        begin = part.start
        for line in self.read(part.start, part.end).split("\n"):
            if line.strip():
                found.append((begin, begin + len(line)))
            begin += len(line) + 1
        return tuple(found)

    def sentences(self, number: int) -> tuple[Span, ...]:
        part = self.parts[number]
        spans = sentence_spans(self.read(part.start, part.end))
        return tuple((part.start + first, part.start + past) for first, past in spans)

    def is_list(self, number: int) -> bool:
        part = self.parts[number]
        return part.kind is PartKind.TEXT and "\n" in self.read(part.start, part.end)

    def is_title(self, number: int) -> bool:
        """Whether a part says what the parts after it are about: a heading, or a short line without an end mark."""
        part = self.parts[number]
        if part.kind is PartKind.HEADING:
            return True
        if part.kind is not PartKind.TEXT or number + 1 == len(self.parts):
            return False
        text = self.read(part.start, part.end)
        return "\n" not in text and len(text) <= TITLE_CHARACTERS and is_open(text)

    def section(self, number: int) -> range:
        """Returns the numbers of the parts of the section that a part is in, without headings."""
        first = past = number
        while first and self.parts[first - 1].kind is not PartKind.HEADING:
            first -= 1
        while past < len(self.parts) and self.parts[past].kind is not PartKind.HEADING:
            past += 1
        return range(first, max(past, number + 1))

    @cached_property
    def headings(self) -> tuple[Span, ...]:
        wanted = list(self.passage.context)
        return tuple(self._headings_before(wanted))

    def _headings_before(self, wanted: list[str]) -> Iterator[Span]:
        for part in reversed(self.parts):
            if part.kind is not PartKind.HEADING or part.end > self.passage.start:
                continue
            text = self.read(part.start, part.end)
            if text in wanted:
                del wanted[wanted.index(text) :]
                yield part.start, part.end
