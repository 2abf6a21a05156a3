"""Values in the sentences of a passage, each a span of its text; pure.

They are identified by their form (``spans.py``), by a name before a colon, or by the header of a table's column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.analysis.values import ValueKind, ValueWords
from edge_rag.core.passage import RankedPassage
from edge_rag.generator.extraction.spans import Span, spans_of

MAX_CANDIDATES: Final = 256
"""Most values of one sentence; the first ones of a longer one."""

MAX_RUN_WORDS: Final = 60
"""Words of a sentence from which runs are made, the first ones."""

_KEY: Final = re.compile(r"^[\s*-]*(?P<key>[^\s:：|][^:：|.!?\n]{0,60})(?::\s+|：\s*)(?P<value>\S[^\n]*)")
_RUN_WORD: Final = re.compile(r"[^\W_](?:\S*[^\W_%°€$£])?[%°€$£]?")
_ROW: Final = " | "
_END_MARKS: Final = " .,;:!?。،؛।"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Span):
    """A value of a sentence; its characters are those of the passage's text.

    Attributes:
        passage: 0-based rank of the passage.
        sentence: 0-based position of the sentence in the passage.
        key: Its name in the text: the header of its column, or the words before its colon; empty without one.
        choice: The text of a choice that it spells; empty of other values.
    """

    passage: int
    sentence: int
    key: str = ""
    choice: str = ""


def candidates_of(
    ranked: RankedPassage, passage: int, sentence: int, words: ValueWords, mark: str = ""
) -> tuple[Candidate, ...]:
    """Returns the values of a sentence.

    Args:
        mark: The character before fractions in the passage (``numbers.decimal_mark``).
    """
    place = ranked.sentences[sentence]
    text = ranked.passage.text[place.start : place.end]
    found: list[Candidate] = []

    def add(span: Span, offset: int, key: str = "") -> None:
        at = place.start + offset
        found.append(
            Candidate(
                at + span.start,
                at + span.end,
                span.kind,
                at + span.bare,
                span.readings,
                span.unit,
                span.part,
                passage=passage,
                sentence=sentence,
                key=key,
            )
        )

    if _ROW in text:
        header = header_of(ranked, sentence)
        if header is None or header[0] == sentence:
            return ()
        at = 0
        for column, cell in enumerate(text.split(_ROW)):
            start = at + len(cell) - len(cell.lstrip())
            stripped = cell.strip()
            if stripped and column < len(header[1]):
                typed = list(spans_of(stripped, words, mark))
                for span in typed:
                    add(span, start, header[1][column])
                if not any((span.start, span.end) == (0, len(stripped)) for span in typed):
                    add(Span(0, len(stripped), ValueKind.CELL, len(stripped)), start, header[1][column])
            at += len(cell) + len(_ROW)
        return tuple(found[:MAX_CANDIDATES])
    keyed = _KEY.match(text)
    value = keyed.start("value") if keyed else len(text)
    for span in spans_of(text, words, mark):
        add(span, 0, keyed["key"].strip() if keyed and span.start >= value else "")
    if keyed:
        end = len(text.rstrip(_END_MARKS))
        if end > value:
            add(Span(value, end, ValueKind.KEYED, end), 0, keyed["key"].strip())
    return tuple(found[:MAX_CANDIDATES])


def choices_of(ranked: RankedPassage, passage: int, sentence: int, choices: Sequence[str]) -> Iterator[Candidate]:
    place = ranked.sentences[sentence]
    for choice in choices:
        pattern = re.compile(rf"(?<!\w){re.escape(choice.strip())}(?!\w)", re.IGNORECASE)
        for match in pattern.finditer(ranked.passage.text, place.start, place.end):
            start, end = match.span()
            yield Candidate(start, end, ValueKind.CHOICE, end, passage=passage, sentence=sentence, choice=choice)


def runs_of(ranked: RankedPassage, passage: int, sentence: int, most: int) -> Iterator[Candidate]:
    """Yields the runs of up to so many words of a sentence, without the marks around them, longer ones first."""
    place = ranked.sentences[sentence]
    words = [*_RUN_WORD.finditer(ranked.passage.text, place.start, place.end)][:MAX_RUN_WORDS]
    for size in range(min(most, len(words)), 0, -1):
        for first in range(len(words) - size + 1):
            start, end = words[first].start(), words[first + size - 1].end()
            yield Candidate(start, end, ValueKind.RUN, end, passage=passage, sentence=sentence)


def header_of(ranked: RankedPassage, sentence: int) -> tuple[int, tuple[str, ...]] | None:
    """Returns the row that names the columns of a row's table and its cells: the first of its adjacent rows."""
    text = ranked.passage.text
    first = sentence
    cells = text[ranked.sentences[sentence].start : ranked.sentences[sentence].end].count(_ROW)
    while first:
        above, here = ranked.sentences[first - 1], ranked.sentences[first]
        if text[above.start : above.end].count(_ROW) != cells or "\n\n" in text[above.end : here.start]:
            break
        first -= 1
    place = ranked.sentences[first]
    header = text[place.start : place.end]
    if first == sentence and (sentence + 1 == len(ranked.sentences) or re.search(r"\d", header)):
        return None  # a row alone, whose columns nothing names
    return first, tuple(cell.strip() for cell in header.split(_ROW))
