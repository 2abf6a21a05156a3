"""Which sentences of the passages answer a question, by their evidence alone; pure.

The sentence with the most evidence is first, then each that has little less. Questions, and sentences that only repeat
the question (a heading, an entry of a list of questions), are no answer by themselves: the sentence that follows gets
their evidence. The lines of a table of contents are none either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from edge_rag.analysis.terms import terms_of
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.text import is_open

_HEADING_SHARE: Final = 0.75
"""Share of a heading's words that a question has if the heading only repeats it."""

_BLOCK_END: Final = "\n\n"
"""Between two blocks of a stored text; lines of one block have a single line break between them."""

_QUESTION: Final = re.compile("[?\uff1f\u061f\u055e\u1367\u2e2e]$|[\u0370-\u03ff\u1f00-\u1fff];$")
"""The end of a question; a Greek question mark is a semicolon in normal form C."""

_LETTER: Final = re.compile(r"[^\W\d_]")

_ENTRY: Final = re.compile(r"\W*(?:\w+\s)?\d+(?:\.\d+)*\.?(?:\s|$)")
"""The begin of a line of a table of contents: the number of a section."""

_INNER_ENTRY: Final = re.compile(r"\W*(?:\w+\s)?\d+\.\d+(?:\.\d+)*\.?(?:\s|$)")
"""The number of a subsection; every numbered table of contents has some."""

_CONTENTS_LINES: Final = 4
"""Fewest lines of a table of contents."""

_CLOSING: Final = "\"'”’»)]*_ "


def chosen_sentences(
    question: str, passages: Sequence[RankedPassage], margin: float, first: int | None = None
) -> Iterator[tuple[int, int, float]]:
    """Yields (rank of the passage, number of its sentence, evidence below the best) of the sentences to quote.

    Candidates are compared by evidence, then by the rank of the passage, then by position. A text that is in several
    places is chosen once, with the largest of their evidence, from the passage of the best rank.

    Args:
        margin: How far below the first sentence the evidence of another one may be, at least 0.
        first: Rank of the passage whose best sentence is first in any case; None for that with the most evidence.
    """
    repeats = _repeats(question)
    candidates = [found for rank, ranked in enumerate(passages) for found in _candidates(rank, ranked, repeats)]
    if not candidates:  # nothing but questions and headings
        candidates = [
            (each.evidence, rank, number)
            for rank, ranked in enumerate(passages)
            for number, each in enumerate(ranked.sentences)
        ]
    first_places: dict[str, tuple[int, int]] = {}
    evidence: dict[str, float] = {}
    for value, rank, number in candidates:
        text = _text(passages[rank], number)
        first_places.setdefault(text, (rank, number))
        evidence[text] = max(value, evidence.get(text, value))
    order = sorted(evidence, key=lambda text: (-evidence[text], first_places[text]))
    begin = next((text for text in order if first_places[text][0] == first), None)
    if begin is not None:
        yield *first_places[begin], 0.0
    for text in order:
        below = evidence[order[0]] - evidence[text]
        if below > margin:
            return
        if text != begin:
            yield *first_places[text], below


def _candidates(
    rank: int, ranked: RankedPassage, repeats: Callable[[RankedPassage, int], bool]
) -> Iterator[tuple[float, int, int]]:
    """Yields (evidence, rank, position) of the sentences that can be an answer."""
    inherited: float | None = None
    contents = _contents(ranked.passage)
    for number, sentence in enumerate(ranked.sentences):
        if any(start <= sentence.start < end for start, end in contents) or _is_label(_text(ranked, number)):
            continue
        if repeats(ranked, number):
            inherited = sentence.evidence if inherited is None else max(inherited, sentence.evidence)
        else:
            yield sentence.evidence if inherited is None else max(inherited, sentence.evidence), rank, number
            inherited = None


def _is_label(text: str) -> bool:
    """Whether a sentence is only a number, of a section or of a note, and no row of a table."""
    return not _LETTER.search(text) and " | " not in text


def _contents(passage: Passage) -> list[tuple[int, int]]:
    """Returns where a passage is in tables of contents, which name what others say; characters of its text."""
    around = passage.surroundings
    text, begin = (passage.text, 0) if around is None else (around.text, around.start - passage.start)
    found: list[tuple[int, int]] = []
    for block in text.split(_BLOCK_END):
        lines = block.split("\n")
        entries = sum(_ENTRY.match(line) is not None for line in lines)
        inner = sum(_INNER_ENTRY.match(line) is not None for line in lines)
        if len(lines) >= _CONTENTS_LINES and 2 * entries > len(lines) and 3 * inner >= len(lines):
            found.append((begin, begin + len(block)))
        begin += len(block) + len(_BLOCK_END)
    return found


def _repeats(question: str) -> Callable[[RankedPassage, int], bool]:
    """Returns a function that says whether a sentence asks, or has no word that the question does not have.

    Of a heading's words a quarter may be others, such as articles, which no list has to name in every language.
    """
    asked = {term for _, _, term in terms_of(question)}

    def repeats(ranked: RankedPassage, number: int) -> bool:
        sentence = _text(ranked, number)
        if _QUESTION.search(sentence.rstrip(_CLOSING)):
            return True
        terms = [term for _, _, term in terms_of(sentence)]
        known = sum(term in asked for term in terms)
        least = _HEADING_SHARE if _is_heading(ranked, number) else 1.0
        return bool(terms) and known >= least * len(terms)

    return repeats


def _is_heading(ranked: RankedPassage, number: int) -> bool:
    """Whether a sentence is a block of its own without an end mark, and another block or nothing else follows."""
    text, sentence = ranked.passage.text, ranked.sentences[number]
    following = ranked.sentences[number + 1 : number + 2]
    if not following and number == 0:
        return is_open(text)
    if not following or _BLOCK_END not in text[sentence.end : following[0].start]:
        return False
    before = ranked.sentences[number - 1].end if number else 0
    gap = text[before : sentence.start]
    one_of_lines = number > 0 and "\n" in gap and _BLOCK_END not in gap
    return not one_of_lines and is_open(text[sentence.start : sentence.end])


def _text(ranked: RankedPassage, number: int) -> str:
    sentence: Sentence = ranked.sentences[number]
    return ranked.passage.text[sentence.start : sentence.end]
