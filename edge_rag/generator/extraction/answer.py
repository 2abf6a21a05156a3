"""Extracted answers: values of the passages, as text or as JSON that validates under a schema, each with its source.

Nothing is written that is not a span of a passage: a text is the span itself, a number or a date what the span means, a
choice of an ``enum`` the one that the span spells. The fields are filled from the passages of one question, best match
first, and no span fills two fields of the same type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.analysis.values import ValueKind
from edge_rag.core.passage import RankedPassage
from edge_rag.errors import ValueMissing
from edge_rag.generator.constraints.json_values import SchemaAllowance, ValueCheck
from edge_rag.generator.extraction.candidates import Candidate
from edge_rag.generator.extraction.choose import Chooser, Scored, ValueType, Wanted
from edge_rag.generator.extraction.fields import Field, Group, fields_of, read_fields

MAX_TRIED: Final = 64
"""Values that are tried for a field, best first."""

MAX_ITEMS: Final = 16
"""Most values of a list."""

_ITEM_MARGIN: Final = 2.0
"""How far below the first value of a list another one of its passage may be, in the units of ``Weights``."""

_TOGETHER: Final = 1.5
"""How much speaks for a value that its sentence, or row, has filled another field."""

_PATTERN_WORDS: Final = 6
"""Most words of a value that only a pattern identifies."""

_PATTERN_SENTENCES: Final = 4
"""Sentences in which such values are looked for."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value of an answer and where it is from.

    Attributes:
        pointer: JSON pointer to the field that it fills (RFC 6901); None for an answer that is no JSON.
        start: First character in the answer; a JSON string begins with its quotation mark.
        end: One past the last.
        passage: 0-based rank of the passage.
        sentence: 0-based position of the sentence in it that holds the value.
        source_start: First character of the value in the passage's text.
        source_end: One past the last.
    """

    pointer: str | None
    start: int
    end: int
    passage: int
    sentence: int
    source_start: int
    source_end: int


@dataclass(frozen=True, slots=True)
class Extracted:
    """An answer.

    Attributes:
        values: The values in it, in order.
    """

    text: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class _Fill:
    """JSON text of a value, and its span."""

    text: str
    candidate: Candidate


def extract(question: str, passages: Sequence[RankedPassage], schema: str | None) -> Extracted | None:
    """Returns the answer to a question; None if the passages hold no value for it.

    Args:
        passages: Best first, with sentences.

    Raises:
        ValueMissing: Some fields have values; another one has none and is required.
    """
    chooser = Chooser(question, passages)
    if schema is None:
        return _plain(chooser, question, passages)
    wanted = read_fields(schema)
    allowance = SchemaAllowance()
    filled = _fill(chooser, question, passages, wanted, allowance)
    if not filled:
        return None
    writer = _Writer(filled)
    writer.write(wanted)
    if writer.missing:
        raise ValueMissing(tuple(writer.missing))
    return Extracted(writer.text, tuple(writer.values))


def _plain(chooser: Chooser, question: str, passages: Sequence[RankedPassage]) -> Extracted | None:
    found = next(iter(chooser.ranked(Wanted(question))), None)
    if found is not None:
        best = found.candidate
        place, (start, end) = (best.passage, best.sentence), chooser.extent(best)
    else:
        whole = chooser.best_sentence()
        if whole is None:
            return None
        sentence = passages[whole[0]].sentences[whole[1]]
        place, start, end = whole, sentence.start, sentence.end
    text = passages[place[0]].passage.text[start:end]
    return Extracted(text, (Value(None, 0, len(text), *place, start, end),))


def _fill(
    chooser: Chooser,
    question: str,
    passages: Sequence[RankedPassage],
    wanted: Field | Group,
    allowance: SchemaAllowance,
) -> dict[str, tuple[_Fill, ...]]:
    """Returns the values of the fields that have some, by pointer: the surest match of all is made first."""
    open_fields = [*fields_of(wanted)]
    alone = len(open_fields) == 1
    matches: list[tuple[float, int, _Fill]] = []
    for number, each in enumerate(open_fields):
        check = ValueCheck(each.items, allowance)
        asked = Wanted(question, each.words, each.type, alone)
        ranked = chooser.spelled(asked, each.choices) if each.choices else chooser.ranked(asked)
        fits = _fits(ranked, each, passages, check)
        if not fits and each.has_pattern:
            fits = _fits(chooser.runs(asked, _PATTERN_SENTENCES, _PATTERN_WORDS), each, passages, check, None)
        matches += ((scored, number, fill) for scored, fill in fits)
    filled: dict[str, tuple[_Fill, ...]] = {}
    taken: list[tuple[ValueType, Candidate]] = []
    used: set[tuple[int, int]] = set()
    while matches:
        score, number, fill = best = max(
            matches, key=lambda match: (match[0] + _TOGETHER * (_sentence(match[2]) in used), -match[1])
        )
        each = open_fields[number]
        overlaps = any(own is each.type and _overlap(fill.candidate, other) for own, other in taken)
        fills = _items(score, number, fill, matches) if each.many else [fill]
        if overlaps or (each.many and not ValueCheck(each.schema, allowance).accepts(_list(fills))):
            matches.remove(best)
            continue
        filled[each.pointer] = tuple(fills)
        taken += ((each.type, other.candidate) for other in fills)
        used.add(_sentence(fill))
        matches = [match for match in matches if match[1] != number]
    return filled


def _fits(
    ranked: Sequence[Scored],
    field: Field,
    passages: Sequence[RankedPassage],
    check: ValueCheck,
    most: int | None = MAX_TRIED,
) -> list[tuple[float, _Fill]]:
    fits = []
    for scored in ranked[:most]:
        text = next((each for each in _forms(scored.candidate, field, passages) if check.accepts(each)), None)
        if text is not None:
            fits.append((scored.score, _Fill(text, scored.candidate)))
    return fits


def _forms(candidate: Candidate, field: Field, passages: Sequence[RankedPassage]) -> Iterator[str]:
    """Yields the JSON texts that a span may be for a field, likeliest first."""
    if field.type in (ValueType.NUMBER, ValueType.INTEGER):
        for reading in candidate.readings:
            if re.fullmatch(r"-?\d+(?:\.\d+)?", reading) and (field.type is ValueType.NUMBER or "." not in reading):
                yield reading
        return
    text = passages[candidate.passage].passage.text[candidate.start : candidate.end]
    if field.type is ValueType.DATE:
        yield from (_json(reading) for reading in candidate.readings)
    elif candidate.choice:
        yield _json(candidate.choice)
    else:
        yield _json(text)


def _items(score: float, number: int, first: _Fill, matches: Sequence[tuple[float, int, _Fill]]) -> list[_Fill]:
    """Returns the values of a list: those like the best one in its passage, in order of the text."""
    items = [first]
    for other_score, other_number, other in matches:
        alike = _alike(other.candidate, first.candidate) and other.candidate.passage == first.candidate.passage
        if other_number != number or not alike or other_score < score - _ITEM_MARGIN or len(items) == MAX_ITEMS:
            continue
        is_new = all(other.text != each.text and not _overlap(other.candidate, each.candidate) for each in items)
        if is_new and not other.candidate.part:
            items.append(other)
    return sorted(items, key=lambda each: each.candidate.start)


def _alike(one: Candidate, other: Candidate) -> bool:
    return one.kind is other.kind or {one.kind, other.kind} == {ValueKind.COUNT, ValueKind.AMOUNT}


def _list(fills: Sequence[_Fill]) -> str:
    return f"[{', '.join(each.text for each in fills)}]"


def _overlap(one: Candidate, other: Candidate) -> bool:
    return one.passage == other.passage and one.start < other.end and other.start < one.end


def _sentence(fill: _Fill) -> tuple[int, int]:
    return fill.candidate.passage, fill.candidate.sentence


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class _Writer:
    """Writes the JSON text of filled fields."""

    def __init__(self, filled: Mapping[str, Sequence[_Fill]]) -> None:
        self._filled = filled
        self._parts: list[str] = []
        self._length = 0
        self.values: list[Value] = []
        self.missing: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def write(self, wanted: Field | Group) -> None:
        """Writes a field or an object; null where it has no value."""
        if isinstance(wanted, Field):
            self._write_field(wanted)
            return
        if wanted.nullable and not any(each.pointer in self._filled for each in fields_of(wanted)):
            self._put("null")
            return
        self._put("{")
        separator = ""
        for member in wanted.members:
            if not member.required and not any(each.pointer in self._filled for each in fields_of(member.value)):
                continue
            self._put(f"{separator}{_json(member.name)}: ")
            self.write(member.value)
            separator = ", "
        self._put("}")

    def _write_field(self, field: Field) -> None:
        fills = self._filled.get(field.pointer, ())
        if not fills:
            if not field.nullable:
                self.missing.append(field.pointer)
            self._put("null")
            return
        if field.many:
            self._put("[")
        for number, fill in enumerate(fills):
            self._put(", " if number else "")
            pointer, at = f"{field.pointer}/{number}" if field.many else field.pointer, fill.candidate
            end = self._length + len(fill.text)
            self.values.append(Value(pointer, self._length, end, at.passage, at.sentence, at.start, at.end))
            self._put(fill.text)
        if field.many:
            self._put("]")

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)
