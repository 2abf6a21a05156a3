"""Finds the sentences of the passages that support a generated sentence, or give another number; pure.

A sentence of a passage, or two consecutive ones together, support a generated sentence if they contain all of its
numbers with their units, its names and its first word, have the same number of negations, and contain most of its
words, weighted by their rarity among the passages. Only the form is compared: a paraphrase in other words counts as
unsupported.

An answer in few words claims nothing without its question, so it is judged with it: a sentence supports it if it
contains its words, numbers and names and is about the question. docs/internals/grounding.md has the measurements.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce
from itertools import chain, pairwise
from math import log
from typing import Final, Protocol

from edge_rag.analysis.languages import ENGLISH_FUNCTION_WORDS
from edge_rag.analysis.numbers import decimal_mark
from edge_rag.core.passage import RankedPassage
from edge_rag.generator.citations.claims import NUMBER_WORDS, Claims, Measure, claims_of, measures_of
from edge_rag.generator.citations.conflicts import difference

MIN_SHARE: Final = 2 / 3
"""Minimum share of a sentence's word weight that its support must contain."""

MIN_QUESTION_SHARE: Final = 0.35
"""Minimum share of the question's words that a sentence must contain to support a short answer to it."""

CONFLICT_SHARE: Final = 0.8
"""Minimum share of each other's word weight that two sentences must contain which give different numbers for the same
thing, where one of them supports the answer."""

SHORT_WORDS: Final = 6
"""Most words of a short answer. A name or a number is in many sentences, so that it is judged with the question."""

_WORD: Final = re.compile(r"[^\W_]+")
_NO_NUMBERS: Final = ENGLISH_FUNCTION_WORDS | NUMBER_WORDS.keys() - {"one"}
_OPENERS: Final = frozenset({"yes", "however", "therefore", "thus", "hence", "furthermore", "moreover", "finally"})
"""Connectives without a claim of their own."""


@dataclass(frozen=True, slots=True)
class Support:
    """A sentence of a passage.

    Attributes:
        passage: 0-based position of the passage.
        start: First character in the passage's text.
        end: One past the last.
    """

    passage: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another number in the passages than in a sentence.

    Attributes:
        claimed: The number in the judged sentence: ``64 days``.
        stated: The number in the passage: ``46 days``.
    """

    place: Support
    claimed: str
    stated: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What the passages say about a sentence.

    Attributes:
        support: The sentences that support it, in order; empty if none do.
        conflict: Another number than the sentence's in a sentence that otherwise says the same; where the sentence has
            support, in another passage than that.
    """

    support: tuple[Support, ...] = ()
    conflict: Conflict | None = None


@dataclass(frozen=True, slots=True)
class _SourceSentence:
    """A sentence that may support others, with the words and stems of the headings above it, if those count."""

    place: Support
    stems: frozenset[str]
    claims: Claims
    measures: tuple[Measure, ...]
    headings: frozenset[str] = frozenset()


class Stemmer(Protocol):
    """Compares words by their stems. For one thread at a time."""

    def stems(self, text: str) -> list[str]:
        """Returns the stem of every word of a text, in order."""
        ...


class Attributor:
    """Finds support among the passages of one question. For one thread at a time.

    Args:
        passages: Best first, with their sentences.
        question: The question; empty if sentences are judged by themselves.
        headings: Whether a sentence has the words and names of the headings above its passage, which no passage
            crosses, in addition to its own; numbers, negations and opposites only of its own.
    """

    def __init__(
        self, passages: Sequence[RankedPassage], stemmer: Stemmer, question: str = "", headings: bool = False
    ) -> None:
        self._stemmer = stemmer
        self._asked = self._stems(question)
        self._asked_numbers = claims_of(question).loose
        self._sources: list[_SourceSentence] = []
        for number, ranked in enumerate(passages):
            text = ranked.passage.text
            mark = decimal_mark(text)
            above = " ".join(ranked.passage.context) if headings else ""
            stems, words = self._stems(above), claims_of(above).words
            for sentence in ranked.sentences:
                if part := text[sentence.start : sentence.end]:
                    place = Support(number, sentence.start, sentence.end)
                    own, measures = claims_of(part, mark), tuple(measures_of(part, mark))
                    self._sources.append(_SourceSentence(place, self._stems(part) | stems, own, measures, words))
        self._frequency = Counter(stem for source in self._sources for stem in source.stems)

    def support(self, sentence: str, marked: Iterable[int] = ()) -> tuple[Support, ...]:
        """Returns the sentences that support a sentence, in order; empty if none do. Arguments as of ``find``."""
        claim, weights, opener = claims_of(sentence), self._weights(self._stems(sentence)), self._opener(sentence)
        if not weights and not (self._asked and claim.quantities):
            return ()
        preferred = frozenset(marked)
        if self._is_short(sentence):
            return self._as_answer(claim, frozenset(weights), opener, preferred)
        for fitting in self._fitting(claim, weights, opener):
            if fitting:
                # Of equals ``max`` keeps the first.
                _, best = max(fitting, key=lambda fit: (fit[1][0].place.passage in preferred, fit[0]))
                return tuple(part.place for part in best)
        return self._as_answer(claim, frozenset(weights), opener, preferred)

    def find(self, sentence: str, marked: Iterable[int] = ()) -> Finding:
        """Returns what the passages say about a sentence.

        Args:
            sentence: The generated sentence, without markers.
            marked: 0-based passages that its markers name; preferred among those that support it.
        """
        support = self.support(sentence, marked)
        return Finding(support, self._conflict(sentence, support))

    def _is_short(self, sentence: str) -> bool:
        """Whether a sentence claims nothing without its question."""
        return bool(self._asked) and len(_WORD.findall(sentence)) <= SHORT_WORDS

    def _fitting(
        self, claim: Claims, weights: Mapping[str, float], opener: frozenset[str]
    ) -> Iterator[list[tuple[float, tuple[_SourceSentence, ...]]]]:
        for candidates in (((source,) for source in self._sources), self._adjacent_pairs()):
            yield [
                (share, parts)
                for parts in candidates
                if (share := _share(parts, weights)) >= MIN_SHARE
                and opener <= _stems_of(parts)
                and claim.supported_by(_together(parts), parts[0].headings)
                and not _may_mix(claim, parts)
            ]

    def _conflict(self, sentence: str, support: Sequence[Support]) -> Conflict | None:
        """Returns the other number of the sentence that is most like a sentence in all but that number."""
        claimed = measures_of(sentence)
        if not claimed:
            return None
        claim, opener, stems = claims_of(sentence), self._opener(sentence), self._stems(sentence, _NO_NUMBERS)
        weights, short = self._weights(stems), self._is_short(sentence)
        opener = opener & stems - self._asked if short else opener & stems
        elsewhere = {place.passage for place in support}
        best: tuple[float, Conflict] | None = None
        for source in self._sources:
            if not source.measures or source.place.passage in elsewhere or not opener <= source.stems:
                continue
            like = self._about(stems, source) if short else _share((source,), weights)
            if support and not short:
                like = min(like, _known(self._weights(source.stems), stems))
            if like < (CONFLICT_SHARE if support else MIN_SHARE) or (best is not None and like <= best[0]):
                continue
            if claim.agrees_but_for_numbers(source.claims, source.headings):
                found = difference(claim, claimed, source.claims, source.measures)
                if found is not None:
                    best = like, Conflict(source.place, found.claimed, found.stated)
        return None if best is None else best[1]

    def _about(self, stems: frozenset[str], source: _SourceSentence) -> float:
        if not stems - self._asked <= source.stems:
            return 0.0
        return len(self._asked & source.stems) / len(self._asked)

    def _as_answer(
        self, claim: Claims, stems: frozenset[str], opener: frozenset[str], preferred: frozenset[int]
    ) -> tuple[Support, ...]:
        """Returns the sentence that supports an answer to the question.

        A name or a number alone says nothing without the question, and an answer that repeats the question's words says
        nothing new with them. So what is new must all be in one sentence, and that sentence must be about the question.
        """
        new = stems - self._asked
        if not self._asked or not (new or not claim.has_no_number_but(self._asked_numbers)):
            return ()
        fitting = [
            (source.place.passage in preferred, about, source)
            for source in self._sources
            if new <= source.stems
            and (opener - self._asked) <= source.stems
            and (about := len(self._asked & source.stems) / len(self._asked)) >= MIN_QUESTION_SHARE
            and claim.supported_by(source.claims, source.headings)
        ]
        if not fitting:
            return ()
        _, _, best = max(fitting, key=lambda fit: (fit[0], fit[1]))
        return (best.place,)

    def _adjacent_pairs(self) -> Iterator[tuple[_SourceSentence, ...]]:
        for one, other in pairwise(self._sources):
            if one.place.passage == other.place.passage:
                yield one, other

    def _stems(self, text: str, skipped: Set[str] = ENGLISH_FUNCTION_WORDS) -> frozenset[str]:
        words = (word for word in _WORD.findall(text) if not word[0].isdigit() and word.lower() not in skipped)
        return frozenset(self._stemmer.stems(" ".join(words)))

    def _opener(self, sentence: str) -> frozenset[str]:
        """Returns the stem of the first word, which may be a name: its capital letter proves nothing."""
        first = _WORD.search(sentence)
        return frozenset() if first is None or first[0].lower() in _OPENERS else self._stems(first[0])

    def _weights(self, stems: frozenset[str]) -> dict[str, float]:
        """Returns ln((n + 1) / (f + 0.5)) of each stem, where f of the n sentences contain it."""
        return {stem: log((len(self._sources) + 1) / (self._frequency[stem] + 0.5)) for stem in stems}


def _stems_of(parts: Sequence[_SourceSentence]) -> frozenset[str]:
    return frozenset(chain.from_iterable(part.stems for part in parts))


def _share(parts: Sequence[_SourceSentence], weights: Mapping[str, float]) -> float:
    return _known(weights, _stems_of(parts))


def _known(weights: Mapping[str, float], present: frozenset[str]) -> float:
    if not weights:
        return 0.0
    return sum(weight for stem, weight in weights.items() if stem in present) / sum(weights.values())


def _together(parts: Sequence[_SourceSentence]) -> Claims:
    return reduce(Claims.joined, (part.claims for part in parts))


def _may_mix(claim: Claims, parts: Sequence[_SourceSentence]) -> bool:
    """Whether two sentences together might support a claim that neither makes.

    A number may belong to another name, such as P1 from one sentence and 8 mm of P2 from the other: the sentence with
    the number must contain the claim's names too, or no other names. A negation could belong to either sentence.
    """
    if len(parts) < 2:
        return False
    return claim.negations > 0 or any(
        any(not readings.isdisjoint(part.claims.loose) for readings in claim.quantities)
        and not (claim.names <= part.claims.words or part.claims.names <= claim.words)
        for part in parts
    )
