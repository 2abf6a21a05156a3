"""Reads the trace that OCC-RAG models write: quotes become citations, the status decides, the answer is shown.

The format is in ``prompt.profiles``. Its sections are told apart by token ids, so a document that contains the text of
a token cannot open a section. How quotes are written is not published: everything between two neighbouring quotation
marks is taken for one, looked up in the source whose number precedes it, then in the others, and dropped unless it is
found there to the character. Pure; the result does not depend on how the text is chunked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from edge_rag.core.passage import Passage
from edge_rag.generator.citations.attribution import Support
from edge_rag.generator.prompt.profiles import TraceFormat, TraceSection

MAX_SECTION: Final = 1 << 16
"""Characters of a section that are searched for quotes; the rest is ignored."""

MAX_QUOTES: Final = 8
"""Citations of an answer."""

MIN_QUOTE: Final = 8
"""Characters of a quote: a short quoted word names a term and proves nothing."""

_LONGEST_QUOTE: Final = 2000
_LONGEST_STATUS: Final = 100
_SOURCE: Final = "\ue000"
"""Stands for the token before a source's number in a section's text; a private-use character, removed from the text."""

_SOURCE_NUMBER: Final = re.compile(rf"{_SOURCE}\s*(\d{{1,3}})")
_MARKS: Final = re.compile('["“”«»„]')
_EVIDENCE: Final = frozenset({TraceSection.SOURCES, TraceSection.REASONING})


@dataclass(slots=True)
class TraceReader:
    """Reads one trace.

    Attributes:
        numbering: Indices of the passages in the order in which the prompt numbers them, from 1.
        quotes: Verified quotes so far, in order; none is inside another.
    """

    format: TraceFormat
    passages: Sequence[Passage]
    numbering: Sequence[int]
    quotes: list[Support] = field(default_factory=list)
    ended: bool = False
    _section: TraceSection | None = TraceSection.QUERY
    _text: str = ""
    _status: str = ""
    _held: str = ""
    _shown: bool = False

    @property
    def answering(self) -> bool:
        return self._section is TraceSection.ANSWER and not self.ended and self._status == self.format.answerable

    @property
    def answered(self) -> bool:
        return self._shown

    def open(self, section: TraceSection) -> str:
        """Reads a section's start token; returns the text of the answer that this completes."""
        rest = self._close()
        if not self.ended:
            self._section = section
        return rest

    def close(self, section: TraceSection) -> str:
        """Reads a section's end token; of a section that is not open it means nothing."""
        return self._close() if section is self._section else ""

    def source(self) -> None:
        """Reads the token before the number of a source."""
        self._append(_SOURCE)

    def feed(self, text: str) -> str:
        text = text.replace(_SOURCE, "")
        if not self.answering:
            self._append(text)
            return ""
        return self._answer(text)

    def flush(self) -> str:
        """Ends the trace, complete or not; returns the rest of the answer."""
        return self._close()

    def _append(self, text: str) -> None:
        if self._section in _EVIDENCE or self._section is TraceSection.STATUS:
            limit = MAX_SECTION if self._section in _EVIDENCE else _LONGEST_STATUS
            self._text += text[: max(0, limit - len(self._text))]

    def _answer(self, text: str) -> str:
        """Returns the text without blanks at its ends; what may become the refusal is held back."""
        text = self._held + text
        if not self._shown:
            text = text.lstrip()
            if self.format.refusal.startswith(_bare(text)):
                self._held = text
                return ""
        shown = text.rstrip()
        self._held = text[len(shown) :]
        self._shown = self._shown or bool(shown)
        return shown

    def _close(self) -> str:
        section, text, rest = self._section, self._text, ""
        self._section, self._text = None, ""
        if section in _EVIDENCE:
            self._take_quotes(text)
        elif section is TraceSection.STATUS:
            self._status = text.strip()
        elif section is TraceSection.ANSWER and not self.ended:
            self.ended = True
            rest = self._held.strip()
            if not self._shown and _bare(rest) == self.format.refusal:
                rest = ""
            self._shown = self._shown or bool(rest)
        self._held = ""
        return rest

    def _take_quotes(self, section: str) -> None:
        for number, quote in _quoted(section):
            if len(self.quotes) >= MAX_QUOTES:
                return
            found = self._find(number, quote)
            if found is not None and not any(_inside(found, other) for other in self.quotes):
                self.quotes = [other for other in self.quotes if not _inside(other, found)] + [found]

    def _find(self, number: int, quote: str) -> Support | None:
        named = [self.numbering[number - 1]] if 0 < number <= len(self.numbering) else []
        for index in dict.fromkeys((*named, *range(len(self.passages)))):
            for text in dict.fromkeys((quote, quote.rstrip(" .,;:…!?"))):
                if len(text) >= MIN_QUOTE:
                    start = self.passages[index].text.find(text)
                    if start >= 0:
                        return Support(index, start, start + len(text))
        return None


def _quoted(section: str) -> Iterator[tuple[int, str]]:
    """Yields the texts between neighbouring quotation marks, each with the source number before it, or 0."""
    marks = [match.start() for match in _MARKS.finditer(section)]
    numbers = [(match.end(), int(match[1])) for match in _SOURCE_NUMBER.finditer(section)]
    place = number = 0
    for start, end in pairwise(marks):
        while place < len(numbers) and numbers[place][0] <= start:
            number = numbers[place][1]
            place += 1
        quote = section[start + 1 : end].strip()
        if quote and len(quote) <= _LONGEST_QUOTE and _SOURCE not in quote:
            yield number, quote


def _bare(text: str) -> str:
    return text.strip().rstrip(".")


def _inside(one: Support, other: Support) -> bool:
    return one.passage == other.passage and other.start <= one.start and one.end <= other.end
