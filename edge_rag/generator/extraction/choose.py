"""Which value of the passages answers a question or fills a field; pure.

Sentences compete by their evidence, as in QUOTE mode, and the values of the best ones by five signs: the kind of value
that is asked for, the unit that the question names, the words of question and field near the value, the name that a
table or a line gives it, and the evidence of the sentence. What the question says itself is no answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import log
from typing import Final

from edge_rag.analysis.languages import ENGLISH_FUNCTION_WORDS, FUNCTION_WORDS, language_of
from edge_rag.analysis.numbers import decimal_mark
from edge_rag.analysis.questions import AskedValue, asked_value
from edge_rag.analysis.terms import terms_of
from edge_rag.analysis.values import ValueKind, value_words
from edge_rag.core.passage import RankedPassage
from edge_rag.generator.extraction.candidates import Candidate, candidates_of, choices_of, runs_of

MAX_SENTENCES: Final = 12
"""Sentences whose values compete: those with the most evidence for the question, and as many for a field's words."""

_UNITED: Final = frozenset((ValueKind.COUNT, ValueKind.AMOUNT, ValueKind.SPAN, ValueKind.SHARE))
"""Kinds of values that may have the counted thing beside them."""

_WORD: Final = re.compile(r"\w+")
_QUESTION_END: Final = re.compile("[?\uff1f\u061f\u055e\u1367\u2e2e]\\W*$|[\u0370-\u03ff\u1f00-\u1fff];\\W*$")


@dataclass(frozen=True, slots=True)
class Weights:
    """How much the signs of a value count, in units of standardized evidence.

    Chosen on the questions of the even articles of XQuAD whose answer is a value.

    Attributes:
        before: The counted thing before the number instead ("bearings: 3"), as a part of ``unit``.
        unitless: Taken off an amount without a unit; twice that if it is a word.
        label: Taken off a number that belongs to a name ("Category 2") or a compound ("5-time").
    """

    evidence: float = 1.5
    kind: float = 2.0
    unit: float = 1.0
    near: float = 2.5
    key: float = 3.0
    field: float = 3.0
    label: float = 0.5
    aside: float = 1.0
    unitless: float = 0.8
    before: float = 1.0
    part: float = 1.0


class ValueType(Enum):
    """Which values a field takes by its schema."""

    TEXT = "text"
    NUMBER = "number"
    INTEGER = "integer"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The purpose of a value.

    Attributes:
        field: Name and description of the field in words; empty for the answer to the question itself.
        alone: Whether it is the only field. Of several, each is found by its own words rather than by the question's.
    """

    question: str
    field: str = ""
    type: ValueType = ValueType.TEXT
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Scored:
    """A value and what speaks for it.

    Attributes:
        score: Larger is better; comparable for one wanted value only.
    """

    candidate: Candidate
    score: float


def _kinds(**fits: float) -> Mapping[ValueKind, float]:
    return {ValueKind(name): fit for name, fit in fits.items()}


_FITS: Final[Mapping[ValueKind, Mapping[ValueKind, float]]] = {
    ValueKind.COUNT: _kinds(count=1.0, amount=1.0, span=0.6, share=0.4, cell=0.1),
    ValueKind.AMOUNT: _kinds(count=1.0, amount=1.0, share=0.9, span=0.8, cell=0.1),
    ValueKind.ORDINAL: _kinds(ordinal=1.0, count=0.3),
    ValueKind.SHARE: _kinds(share=1.0, count=0.3, amount=0.3),
    ValueKind.SPAN: _kinds(span=1.0, time=0.5, count=0.4, amount=0.4),
    ValueKind.RHYTHM: _kinds(rhythm=1.0, span=0.6),
    ValueKind.DATE: _kinds(date=1.0, year=0.9, decade=0.8, month=0.5, weekday=0.5, time=0.4),
    ValueKind.YEAR: _kinds(year=1.0, date=0.4, decade=0.3),
    ValueKind.DECADE: _kinds(decade=1.0, year=0.5),
    ValueKind.MONTH: _kinds(month=1.0, date=0.5),
    ValueKind.WEEKDAY: _kinds(weekday=1.0, date=0.6),
    ValueKind.TIME: _kinds(time=1.0, span=0.3),
    ValueKind.NAME: _kinds(name=1.0, quoted=0.6, cell=0.5, keyed=0.5, code=0.2),
    ValueKind.SENTENCE: _kinds(),
    ValueKind.CODE: _kinds(code=1.0, cell=0.5, count=0.4, amount=0.4, quoted=0.4, keyed=0.4),
}
"""How kinds of values fit a kind of question, 0 to 1."""

_COUNTED_TIME: Final = _kinds(span=1.0, count=0.6, amount=0.4, rhythm=0.3)
"""How values fit a question for the number of units of time."""

_OPEN: Final = _kinds(
    name=0.5,
    code=0.4,
    quoted=0.5,
    cell=0.5,
    keyed=0.6,
    count=0.3,
    amount=0.3,
    ordinal=0.2,
    share=0.3,
    span=0.3,
    rhythm=0.3,
    date=0.3,
    year=0.2,
)
"""How values fit a question whose topic alone is known."""

_NOUN: Final = 0.4
"""How much of the fit of a name is left for one capitalized word where all nouns have capitals."""

_NUMERIC: Final = _kinds(count=1.0, amount=1.0, share=1.0, span=1.0, year=0.3, ordinal=0.3)
_DATED: Final = _kinds(date=1.0)

_SLOPE: Final = (0.15, 0.2)
_OWN_SLOPE: Final = (1.0, 1.5)
"""How fast words count less with their distance before and behind a value: those of the question, and of a field."""

_OWN_WORDS: Final = 2.0
"""How much more the words of a field count, and how much less the evidence for the question, where there are
several."""


class Chooser:
    """Ranks the values of some passages. For one question."""

    def __init__(self, question: str, passages: Sequence[RankedPassage], weights: Weights = Weights()) -> None:
        self._question = question
        self._passages = passages
        self._weights = weights
        self._language = language_of(question)
        self._words = value_words(self._language)
        self._asks_money = not self._words.money.isdisjoint(_WORD.findall(question.lower()))
        self._function_words = ENGLISH_FUNCTION_WORDS | FUNCTION_WORDS.get(self._language, frozenset())
        self._own_words = [value_words(language_of(each.passage.text)) for each in passages]
        self._marks = [decimal_mark(each.passage.text) for each in passages]
        self._sentences = {
            (rank, number): [*terms_of(ranked.passage.text[place.start : place.end])]
            for rank, ranked in enumerate(passages)
            for number, place in enumerate(ranked.sentences)
        }
        counts = Counter(term for terms in self._sentences.values() for term in {each.term for each in terms})
        total = len(self._sentences) + 1
        self._rarity = {term: log(total / count) for term, count in counts.items()}
        self._evidence = self._inherited()
        self._candidates: dict[tuple[int, int], tuple[Candidate, ...]] = {}

    def ranked(self, wanted: Wanted) -> list[Scored]:
        """Returns the values that may answer, best first; none if no sentence holds one."""
        fits, rest = self._fits(wanted)
        counted = {each.term for each in terms_of(rest) if rest[each.start : each.end] not in self._function_words}
        if wanted.type in (ValueType.NUMBER, ValueType.INTEGER):
            counted |= {each.term for each in terms_of(wanted.field)}
        weights = self._weights
        asked, named = self._terms(wanted.question), self._terms(wanted.field)
        found = []
        for place, base in self._bases(named, wanted.alone).items():
            for candidate in self._values(place):
                fit = fits.get(candidate.kind, 0.0)
                if not fit or self._is_repeated(candidate):
                    continue
                if fits is _OPEN and self._is_noun(candidate):
                    fit *= _NOUN
                score = base + weights.kind * fit
                score += weights.unit * self._unit(candidate, counted)
                score += weights.near * self._near(candidate, place, asked, named)
                if candidate.key and wanted.field and not self._keyed(candidate, named):
                    score -= weights.key  # the document calls it something else
                score += weights.key * self._keyed(candidate, {**asked, **named})
                score -= self._oddity(candidate)
                if candidate.kind is ValueKind.COUNT and fits is _FITS[ValueKind.AMOUNT]:
                    digits = self._text(candidate.passage, candidate.start, candidate.end)[-1:].isdigit()
                    score -= weights.unitless * (1 if digits else 2)
                if candidate.part and wanted.type is ValueType.TEXT:
                    score -= weights.part
                if wanted.alone or fits is not _OPEN or self._is_named(candidate, place, named):
                    found.append(Scored(candidate, score))
        return _sorted(found)

    def spelled(self, wanted: Wanted, choices: Sequence[str]) -> list[Scored]:
        """Returns where the passages spell one of some choices, best first."""
        asked, named = self._terms(wanted.question), self._terms(wanted.field)
        near = self._weights.near
        return _sorted(
            Scored(candidate, base + near * self._near(candidate, place, asked, named))
            for place, base in self._bases(named, wanted.alone).items()
            for candidate in choices_of(self._passages[place[0]], *place, choices)
        )

    def runs(self, wanted: Wanted, sentences: int, words: int) -> list[Scored]:
        """Returns the runs of words in the best sentences, longer ones first: values that only a pattern identifies."""
        bases = self._bases(self._terms(wanted.field), wanted.alone)
        best = sorted(bases, key=lambda place: (-bases[place], place))[:sentences]
        return [
            Scored(candidate, bases[place])
            for place in best
            for candidate in runs_of(self._passages[place[0]], *place, words)
        ]

    def extent(self, candidate: Candidate) -> tuple[int, int]:
        """Returns where the answer to the question alone begins and ends, characters of the passage's text.

        A unit that "how many" names already is left out; a date that bounds a time ("after 1850") has the word that
        says so.
        """
        start, end = candidate.start, candidate.end
        asked = asked_value(self._question, self._language)
        kind = None if asked is None else asked.kind
        if kind is ValueKind.COUNT and candidate.bare < end:
            known = {each.term for each in terms_of(self._question)}
            unit = [each.term for each in terms_of(self._text(candidate.passage, candidate.bare, end))]
            if unit and known.issuperset(unit):
                end = candidate.bare
        elif kind is ValueKind.DATE:
            words = self._own_words[candidate.passage]
            sentence_start = self._passages[candidate.passage].sentences[candidate.sentence].start
            before = self._text(candidate.passage, sentence_start, start)
            if words.bounds is not None and (bound := words.bounds.search(before)):
                start = sentence_start + bound.start()
        return start, end

    def best_sentence(self) -> tuple[int, int] | None:
        """Returns passage and position of the sentence with the most evidence; None if there is none."""
        return min(self._evidence, key=lambda place: (-self._evidence[place], place), default=None)

    def _inherited(self) -> dict[tuple[int, int], float]:
        """Returns the evidence of the sentences; one that asks gives its evidence to the sentence after it."""
        evidence: dict[tuple[int, int], float] = {}
        for rank, ranked in enumerate(self._passages):
            given: float | None = None
            for number, sentence in enumerate(ranked.sentences):
                if _QUESTION_END.search(ranked.passage.text[sentence.start : sentence.end]):
                    given = sentence.evidence if given is None else max(given, sentence.evidence)
                    continue
                evidence[rank, number] = sentence.evidence if given is None else max(given, sentence.evidence)
                given = None
        return evidence

    def _bases(self, named: Mapping[str, float], alone: bool) -> dict[tuple[int, int], float]:
        """Returns what speaks for the sentences that compete: their evidence, and the words of the field in them."""
        if not self._evidence:
            return {}
        total = sum(named.values()) or 1.0
        shares = {
            place: sum(
                weight for term, weight in named.items() if term in {each.term for each in self._sentences[place]}
            )
            / total
            for place in self._evidence
        }
        order = sorted(self._evidence, key=lambda place: (-self._evidence[place], place))[:MAX_SENTENCES]
        if named:
            more = sorted(shares, key=lambda place: (-shares[place], -self._evidence[place], place))
            order += [place for place in more[:MAX_SENTENCES] if place not in order]
        best = max(self._evidence.values())
        evidence, field = self._weights.evidence, self._weights.field
        if not alone:
            evidence, field = evidence / _OWN_WORDS, field * _OWN_WORDS
        return {place: evidence * (self._evidence[place] - best) + field * shares[place] for place in order}

    def _is_named(self, candidate: Candidate, place: tuple[int, int], named: Mapping[str, float]) -> bool:
        terms = {each.term for each in self._sentences[place]} | {each.term for each in terms_of(candidate.key)}
        return any(term in terms for term in named)

    def _values(self, place: tuple[int, int]) -> tuple[Candidate, ...]:
        if place not in self._candidates:
            rank, number = place
            self._candidates[place] = candidates_of(
                self._passages[rank], rank, number, self._own_words[rank], self._marks[rank]
            )
        return self._candidates[place]

    def _terms(self, text: str) -> dict[str, float]:
        """Returns the terms of a text that some sentence has, by how rare they are; function words of English hardly
        count, as do others by their frequency."""
        return {
            each.term: self._rarity[each.term]
            for each in terms_of(text)
            if each.term in self._rarity and text[each.start : each.end].lower() not in self._function_words
        }

    def _fits(self, wanted: Wanted) -> tuple[Mapping[ValueKind, float], str]:
        """Returns how the kinds fit, and the words that follow the asking phrase of the question."""
        for text in filter(
            None, (wanted.field, "" if wanted.field and wanted.type is not ValueType.TEXT else wanted.question)
        ):
            asked = asked_value(text, self._language)
            if asked is not None:
                fits = self._fits_of(asked)
                rest = asked.after
                if wanted.type in (ValueType.NUMBER, ValueType.INTEGER):
                    kept = {kind: fit for kind, fit in fits.items() if kind in _NUMERIC}
                    return {**{kind: fit / 3 for kind, fit in _NUMERIC.items()}, **kept}, rest
                if wanted.type is ValueType.DATE:
                    return _DATED, rest
                return fits, rest
            if wanted.field:
                break
        if wanted.type in (ValueType.NUMBER, ValueType.INTEGER):
            return _NUMERIC, ""
        if wanted.type is ValueType.DATE:
            return _DATED, ""
        return _OPEN, ""

    def _fits_of(self, asked: AskedValue) -> Mapping[ValueKind, float]:
        """Returns how the kinds fit the question; "how many hours" asks for a time, not for a number."""
        counted = asked.after.split()[:1]
        if asked.kind is ValueKind.COUNT and not self._words.spans.isdisjoint(counted):
            return _COUNTED_TIME
        return _FITS[asked.kind]

    def _is_repeated(self, candidate: Candidate) -> bool:
        text = self._text(candidate.passage, candidate.start, candidate.bare)
        terms = [each.term for each in terms_of(text)]
        known = {each.term for each in terms_of(self._question)}
        return bool(terms) and all(term in known for term in terms)

    def _is_noun(self, candidate: Candidate) -> bool:
        is_name = candidate.kind is ValueKind.NAME and self._own_words[candidate.passage].capital_nouns
        return is_name and self._text(candidate.passage, candidate.start, candidate.end).isalpha()

    def _unit(self, candidate: Candidate, counted: set[str]) -> float:
        """Returns 1 if what the question counts follows the number or is part of its unit, less if it is farther."""
        if self._asks_money and candidate.unit in self._own_words[candidate.passage].currencies:
            return 1.0
        if not counted or candidate.kind not in _UNITED:
            return 0.0
        text = self._passages[candidate.passage].passage.text
        place = self._passages[candidate.passage].sentences[candidate.sentence]
        after = text[candidate.bare : min(place.end, candidate.bare + 60)]
        following = [each.term for each in terms_of(after)][:4]
        for distance, term in enumerate(following):
            if term in counted:
                return 1.0 / (1 + 0.3 * distance)
        ahead = [each.term for each in terms_of(text[place.start : candidate.start])]
        return self._weights.before if any(term in counted for term in ahead[-2:]) else 0.0

    def _oddity(self, candidate: Candidate) -> float:
        """Returns the deduction for a number that is part of a name or a compound, or for any value in brackets."""
        ranked = self._passages[candidate.passage]
        place = ranked.sentences[candidate.sentence]
        before, after = (
            ranked.passage.text[place.start : candidate.start],
            ranked.passage.text[candidate.end : place.end],
        )
        odd = self._weights.aside if before.rfind("(") > before.rfind(")") and ")" in after else 0.0
        if candidate.kind is ValueKind.COUNT and not candidate.key:
            named = re.search(r"(?<=[\w,;] )[^\W\d_]\w+ $", before)
            if (named is not None and named[0][0].isupper()) or re.match(r"-[^\W\d_]", after):
                odd += self._weights.label
        return odd

    def _near(
        self, candidate: Candidate, place: tuple[int, int], asked: Mapping[str, float], named: Mapping[str, float]
    ) -> float:
        """Returns the share of the weight of words that are near a value, 0 to 1, and twice that of the field's words.

        Words count less the farther they are. Those of a field do so faster: they are next to its value rather than to
        that of another field.
        """
        start = self._passages[place[0]].sentences[place[1]].start
        terms = self._sentences[place]
        before = [each.term for each in terms if start + each.end <= candidate.start]
        after = [each.term for each in terms if start + each.start >= candidate.end]
        ahead, behind = _distances(reversed(before)), _distances(after)
        unit = {each.term: 0 for each in terms_of(self._text(candidate.passage, candidate.bare, candidate.end))}

        def share(
            weights: Mapping[str, float], slope: tuple[float, float], behind: Mapping[str, int] = behind
        ) -> float:
            found = (
                weight * max(_closeness(ahead.get(term), slope[0]), _closeness(behind.get(term), slope[1]))
                for term, weight in weights.items()
            )
            return sum(found) / (sum(weights.values()) or 1.0)

        return share(asked, _SLOPE) + _OWN_WORDS * share(named, _OWN_SLOPE, behind | unit)

    def _keyed(self, candidate: Candidate, weights: Mapping[str, float]) -> float:
        """Returns the share of the words of a value's name that are wanted, 0 to 1."""
        key = candidate.key.lower()
        terms = {each.term for each in terms_of(key) if key[each.start : each.end] not in self._function_words}
        return sum(term in weights for term in terms) / len(terms) if terms else 0.0

    def _text(self, passage: int, start: int, end: int) -> str:
        return self._passages[passage].passage.text[start:end]


def _sorted(found: Iterable[Scored]) -> list[Scored]:
    return sorted(
        found, key=lambda each: (-each.score, each.candidate.passage, each.candidate.start, -each.candidate.end)
    )


def _distances(terms: Iterable[str]) -> dict[str, int]:
    """Returns how far each term is, by its first place in an order that goes away from the value."""
    found: dict[str, int] = {}
    for distance, term in enumerate(terms, 1):
        found.setdefault(term, distance)
    return found


def _closeness(distance: int | None, slope: float) -> float:
    return 0.0 if distance is None else 1.0 / (1.0 + slope * distance)
