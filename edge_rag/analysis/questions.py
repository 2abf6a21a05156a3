"""What a question asks for, by the words of its language; data of ``questions.toml``; pure.

Two things are told: what kind of answer it needs, by how it begins, and which kind of value it or the words of a field
name, by phrases wherever they are. In a language without data neither is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from edge_rag.analysis.languages import sure_language_of
from edge_rag.analysis.values import ValueKind

BEFORE_WORDS: Final = "\"'“”‘’„«»([*_¿¡ \u00a0"
"""What may stand before the first word of a sentence."""

_CLAUSE_END: Final = re.compile(r"[,;:]\s+")
"""What a question may begin with: "After an alarm, how do I ...": the part behind it tells as well."""

_COUNTED_WORDS: Final = 3
"""Words after a phrase such as "how many" among which is what is counted."""


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
        kind: Its kind.
        after: The first words after the phrase that says so: what is counted.
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
    """Returns which value a question or the words of a field ask for first, by the longest phrase; None if none tells.

    Args:
        text: The question, or the words.
        language: Its language, an ISO 639-1 code.
    """
    lower = text.lower()
    found = [(match, kind) for kind, pattern in _asks(language).items() if (match := pattern.search(lower))]
    if not found:
        return None
    match, kind = min(found, key=lambda each: (each[0].start(), -each[0].end()))
    return AskedValue(kind, " ".join(lower[match.end() :].split()[:_COUNTED_WORDS]))


@lru_cache(64)
def _asks(language: str) -> Mapping[ValueKind, re.Pattern[str]]:
    """Returns the phrases that ask for each kind of value in a language."""
    asks = _DATA.get(language, {}).get("asks", {})
    return {ValueKind(name): _phrases(phrases, ValueKind(name)) for name, phrases in asks.items()}


def _phrases(phrases: Sequence[str], kind: ValueKind) -> re.Pattern[str]:
    longest_first = sorted(phrases, key=len, reverse=True)
    alternatives = (re.escape(phrase).replace(r"\*", r"\w*").replace(r"\ ", r"\W+") for phrase in longest_first)
    ending = r"|\W*\d" if kind is ValueKind.YEAR else ""  # "in the year 2000" asks for none
    return re.compile(rf"(?<!\w)(?:{'|'.join(alternatives)})(?!\w{ending})")
