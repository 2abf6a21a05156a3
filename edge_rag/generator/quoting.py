"""Quoted answers: which sentences of the passages answer the question, by their evidence alone; pure.

The sentence with the most evidence is quoted first, then each that has little less, so that an answer of several
sentences begins with the best. Two kinds of sentences are no answer by themselves:

    a question, and a sentence that only repeats the question (a heading, an entry of a list of questions):
        the sentence that follows it gets its evidence, and it is not quoted
    a sentence that announces what follows, with a colon, or at the end of a block without an end mark:
        it is quoted together with the lines that follow it (a command, the items of a list)

Nothing is generated, so no length of a sentence and no script is too much for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.analysis.terms import terms_of
from edge_rag.core.passage import RankedPassage, Sentence

MAX_ANNOUNCED_CHARACTERS: Final = 1000
"""Most characters quoted after a sentence that announces them; whole sentences and lines."""

_HEADING_SHARE: Final = 0.75
"""Share of a heading's words that a question has if the heading only repeats it."""

_BLOCK_END: Final = "\n\n"
"""Between two blocks of a stored text; lines of one block have a single line break between them."""

_QUESTION: Final = re.compile("[?\uff1f\u061f\u055e\u1367\u2e2e]$|[\u0370-\u03ff\u1f00-\u1fff];$")
"""The end of a question; a Greek question mark is a semicolon in normal form C."""

_COLONS: Final = (":", "\uff1a")
_CLOSING: Final = "\"'”’»)]*_ "


@dataclass(frozen=True, slots=True)
class Quote:
    """A range of a passage that is quoted.

    Attributes:
        passage: 0-based rank of the passage.
        sentences: 0-based positions of its sentences in the passage, in order; adjacent ones.
        start: First character in the passage's text.
        end: One past the last.
    """

    passage: int
    sentences: range
    start: int
    end: int

    def overlaps(self, other: Quote) -> bool:
        """Whether both hold the same characters of a passage."""
        return self.passage == other.passage and self.start < other.end and other.start < self.end


def choose_quotes(
    question: str, passages: Sequence[RankedPassage], max_sentences: int, margin: float
) -> tuple[Quote, ...]:
    """Returns the quotes of an answer, in its order; none only if no passage has a sentence.

    Candidates are compared by evidence, then by the rank of the passage, then by position. A text that is in several
    places is quoted once, with the largest of their evidence, from the passage of the best rank.

    Args:
        question: The question.
        passages: Best first.
        max_sentences: Most quotes, at least 1.
        margin: How far below the first quote the evidence of a second one may be, at least 0; half of it for a third, a
            third of it for a fourth.
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
    quotes: list[Quote] = []
    order = sorted(evidence, key=lambda text: (-evidence[text], first_places[text]))
    for text in order:
        if quotes and (len(quotes) == max_sentences or evidence[text] < evidence[order[0]] - margin / len(quotes)):
            break
        quote = _quote(passages, *first_places[text])
        if not any(each.overlaps(quote) for each in quotes):
            quotes.append(quote)
    return tuple(quotes)


def _candidates(
    rank: int, ranked: RankedPassage, repeats: Callable[[RankedPassage, int], bool]
) -> Iterator[tuple[float, int, int]]:
    """Yields (evidence, rank, position) of the sentences that can be an answer."""
    inherited: float | None = None
    for number, sentence in enumerate(ranked.sentences):
        if repeats(ranked, number):
            inherited = sentence.evidence if inherited is None else max(inherited, sentence.evidence)
        else:
            yield sentence.evidence if inherited is None else max(inherited, sentence.evidence), rank, number
            inherited = None


def _quote(passages: Sequence[RankedPassage], rank: int, number: int) -> Quote:
    """Returns the quote of a sentence, with what it announces."""
    ranked = passages[rank]
    last = number + _announced(ranked, number)
    return Quote(rank, range(number, last + 1), ranked.sentences[number].start, ranked.sentences[last].end)


def _announced(ranked: RankedPassage, number: int) -> int:
    """Returns how many sentences a sentence announces: lines of one block, or one sentence of a paragraph."""
    following = ranked.sentences[number + 1 :]
    if not following:
        return 0
    text, end = ranked.passage.text, ranked.sentences[number].end
    colon = _text(ranked, number).rstrip(_CLOSING).endswith(_COLONS)
    if not colon and not _is_heading(ranked, number):
        return 0
    whole_block = colon or _is_open(ranked, number + 1)
    count = 0
    for sentence in following:
        if sentence.end > end + MAX_ANNOUNCED_CHARACTERS:
            break
        if count and (not whole_block or _BLOCK_END in text[following[count - 1].end : sentence.start]):
            break
        count += 1
    return count


def _is_open(ranked: RankedPassage, number: int) -> bool:
    """Whether a sentence has no end mark, and is not one of several lines (a list, a table, a program)."""
    before = ranked.sentences[number - 1].end if number else 0
    gap = ranked.passage.text[before : ranked.sentences[number].start]
    one_of_lines = number > 0 and "\n" in gap and _BLOCK_END not in gap
    return not one_of_lines and _text(ranked, number).rstrip(_CLOSING)[-1:].isalnum()


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
    """Whether a sentence is a block of its own without an end mark, and another block follows."""
    following = ranked.sentences[number + 1 : number + 2]
    ends_block = (
        bool(following) and _BLOCK_END in ranked.passage.text[ranked.sentences[number].end : following[0].start]
    )
    return ends_block and _is_open(ranked, number)


def _text(ranked: RankedPassage, number: int) -> str:
    sentence: Sentence = ranked.sentences[number]
    return ranked.passage.text[sentence.start : sentence.end]
