"""What a question needs: the kind of answer and of value, by ``questions.toml``, and its parts that matter; pure.

The beginning of a question determines the first, phrases anywhere in it the second. Without data for a language, both
are unknown.

An encoder's time grows with the length of its text, and one vector of a long text represents no part of it well. Of a
question longer than ``QUESTION_TOKENS``, retriever and reranker read the pieces with the rarest words of the
collection, chosen greedily (maximal coverage; Nemhauser, Wolsey and Fisher, 1978). A piece with a question mark, the
first and the last one have a higher weight. The generator reads the whole question.
docs/internals/retrieval.md has the measurements.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from edge_rag.analysis.languages import language_of, sure_language_of
from edge_rag.analysis.terms import terms_of
from edge_rag.analysis.values import ValueKind
from edge_rag.core.text import sentence_spans

BEFORE_WORDS: Final = "\"'“”‘’„«»([*_¿¡ \u00a0"
"""Characters before the first word of a sentence."""

_CLAUSE_END: Final = re.compile(r"[,;:]\s+")
"""End of a clause before a question: "After an alarm, how do I ..."."""

_NUMBERS: Final = frozenset(
    {
        ValueKind.COUNT,
        ValueKind.AMOUNT,
        ValueKind.SHARE,
        ValueKind.SPAN,
        ValueKind.RHYTHM,
        ValueKind.DATE,
        ValueKind.YEAR,
        ValueKind.DECADE,
        ValueKind.TIME,
    }
)
"""Kinds of values that have a number."""

_COUNTED_WORDS: Final = 3
"""The counted thing is among this many words after a phrase such as "how many"."""


_WORDS_BEFORE: Final = 1
"""Words before one that begins a question, such as "since" and "and"."""

_WORD: Final = re.compile(r"\w+")


class QuestionKind(Enum):
    """What a question asks for.

    PROCEDURE: What to do, all steps of it. SEVERAL: Several items. VALUE: One number, time, name, place or reason.
    OTHER: Anything else, and any question of a language whose words are not known.
    """

    PROCEDURE = "procedure"
    SEVERAL = "several"
    VALUE = "value"
    OTHER = "other"


_DATA: Final[Mapping[str, Mapping[str, Any]]] = tomllib.loads(
    (files(__package__) / "questions.toml").read_text("utf-8")
)
_BEGINNINGS: Final = {
    language: {kind: re.compile(data[kind.value], re.IGNORECASE) for kind in QuestionKind if kind.value in data}
    for language, data in _DATA.items()
}


@dataclass(frozen=True, slots=True)
class AskedValue:
    """The value that a text asks for.

    Attributes:
        after: The first words after the asking phrase: the counted thing.
    """

    kind: ValueKind
    after: str


def kind_of(question: str) -> QuestionKind:
    """Returns what a question asks for."""
    language = sure_language_of(question)
    known = _BEGINNINGS.values() if language is None else filter(None, (_BEGINNINGS.get(language),))
    patterns = list(known)
    for clause in (question, *_CLAUSE_END.split(question)[1:]):
        begin = clause.lstrip(BEFORE_WORDS)
        for kind in (QuestionKind.PROCEDURE, QuestionKind.VALUE, QuestionKind.SEVERAL):
            if any(each[kind].match(begin) for each in patterns):
                return kind
    return QuestionKind.OTHER


def asked_value(text: str, language: str) -> AskedValue | None:
    """Returns the value that a question or the words of a field ask for; None if unknown.

    Phrases with an interrogative ("how many") take precedence over nouns ("rate"), then the first, then the longest
    one. A word that may begin a subordinate clause ("when") counts only at the beginning or end of a question.
    """
    asks = _asks(language)
    lower = text.lower()
    found = [
        (asks.rank(match, lower), match.start(), -match.end(), kind.value)
        for kind, pattern in asks.phrases.items()
        for match in pattern.finditer(lower)
    ]
    found = [each for each in found if each[0] is not None]
    if not found:
        return None
    _, _, end, kind = min(found)
    return AskedValue(ValueKind(kind), " ".join(lower[-end:].split()[:_COUNTED_WORDS]))


@dataclass(frozen=True, slots=True)
class _Asks:
    """What asks for values in a language.

    Attributes:
        relatives: Those of them that may begin a subordinate clause instead.
    """

    phrases: Mapping[ValueKind, re.Pattern[str]]
    interrogatives: frozenset[str]
    relatives: frozenset[str]

    def rank(self, match: re.Match[str], text: str) -> int | None:
        """Returns 0 for a phrase that asks; 1 for one that names the wanted value; 2 for one before an interrogative;
        None for one of a subordinate clause."""
        first = _WORD.findall(match[0])[0]
        if first not in self.interrogatives:
            return 1 + any(word in self.interrogatives for word in _WORD.findall(text, match.end()))
        if first in self.relatives and _WORD.search(text, match.end()):
            clauses = [0, *(each.end() for each in _CLAUSE_END.finditer(text))]
            begin = max(start for start in clauses if start <= match.start())
            if len(_WORD.findall(text, begin, match.start())) > _WORDS_BEFORE:
                return None
            later = (_WORD.search(text, start) for start in clauses if start > match.start())
            if any(word is not None and word[0] in self.interrogatives for word in later):
                return None
        return 0


def asks_number(question: str) -> bool:
    """Whether the value that a question asks for has a number: a count, an amount, a time; not a name or a reason."""
    asked = asked_value(question, language_of(question))
    return asked is not None and asked.kind in _NUMBERS


@lru_cache(64)
def _asks(language: str) -> _Asks:
    data = _DATA.get(language, {})
    phrases = {ValueKind(name): _phrases(each, ValueKind(name)) for name, each in data.get("asks", {}).items()}
    interrogatives, relatives = (frozenset(data.get(key, "").split()) for key in ("interrogatives", "relatives"))
    return _Asks(phrases, interrogatives, relatives)


def _phrases(phrases: Sequence[str], kind: ValueKind) -> re.Pattern[str]:
    longest_first = sorted(phrases, key=len, reverse=True)
    alternatives = (re.escape(phrase).replace(r"\*", r"\w*").replace(r"\ ", r"\W+") for phrase in longest_first)
    ending = r"|\W*\d" if kind is ValueKind.YEAR else ""  # "in the year 2000" asks for none
    return re.compile(rf"(?<!\w)(?:{'|'.join(alternatives)})(?!\w{ending})")


QUESTION_TOKENS: Final = 96
"""Most tokens of a question that encoders read."""

_MAX_CHARACTERS: Final = 16_384
"""Of a longer question only so many characters are considered, half from its beginning and half from its end."""

_PIECE_CHARACTERS: Final = 160
_ASKING: Final = 3.0
_AT_AN_END: Final = 1.5
_LEAST_GAIN: Final = 0.3
_QUESTION_MARKS = re.compile(r"[?？؟;]\s*$")


def excerpt(
    question: str,
    weigh: Callable[[str], Mapping[str, float]],
    count_tokens: Callable[[str], int],
    most: int = QUESTION_TOKENS,
) -> str:
    """Returns the most important pieces of a question, in their order; the question itself if it is short."""
    if len(question) <= most // 4 or count_tokens(question) <= most:
        return question
    if len(question) > _MAX_CHARACTERS:
        question = question[: _MAX_CHARACTERS // 2] + "\n" + question[-_MAX_CHARACTERS // 2 :]
    weights = weigh(question)
    pieces = list(_pieces(question))
    words = [{term for _, _, term in terms_of(piece) if term in weights} for piece in pieces]
    factors = [_factor(piece, index in (0, len(pieces) - 1)) for index, piece in enumerate(pieces)]
    chosen: set[int] = set()
    covered: set[str] = set()
    room = most
    left = set(range(len(pieces)))

    def gain(index: int) -> tuple[float, float, int]:
        new = sum(weights[word] for word in words[index] - covered)
        return factors[index] * new, factors[index], -index

    least = _LEAST_GAIN * max(gain(index)[0] for index in left)
    while left and room > 0:
        best = max(left, key=gain)
        if chosen and gain(best)[0] < least:
            break
        left.discard(best)
        tokens = count_tokens(pieces[best])
        if tokens <= room or not chosen:
            chosen.add(best)
            covered |= words[best]
            room -= tokens
    return "\n".join(pieces[index] for index in sorted(chosen))


def _factor(piece: str, at_an_end: bool) -> float:
    return (_ASKING if _QUESTION_MARKS.search(piece) else 1.0) * (_AT_AN_END if at_an_end else 1.0)


def _pieces(question: str) -> Iterator[str]:
    """Yields the sentences of a question, cut where they are long; short ones are joined unless one asks."""
    pending = ""
    for start, end in sentence_spans(question):
        sentence = question[start:end]
        joined = f"{pending} {sentence}" if pending else sentence
        if len(joined) <= _PIECE_CHARACTERS // 2 and not _QUESTION_MARKS.search(sentence):
            pending = joined
            continue
        if pending and len(joined) > _PIECE_CHARACTERS:
            yield pending
            joined = sentence
        pending = ""
        yield from _cut(joined)
    if pending:
        yield pending


def _cut(text: str) -> Iterator[str]:
    while len(text) > _PIECE_CHARACTERS:
        space = text.rfind(" ", 1, _PIECE_CHARACTERS + 1)
        end = space if space > 0 else _PIECE_CHARACTERS
        yield text[:end]
        text = text[end:].lstrip()
    if text:
        yield text
