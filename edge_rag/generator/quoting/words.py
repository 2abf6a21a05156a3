"""What a question asks for, and which sentences need the one before them, by the words of their language; pure.

The words are in ``words.toml``, for some languages. In any other one nothing here applies.
"""

from __future__ import annotations

import re
import tomllib
from enum import Enum
from importlib.resources import files
from typing import Final

from edge_rag.analysis.languages import sure_language_of

_WORDS: Final[dict[str, dict[str, str]]] = tomllib.loads((files(__package__) / "words.toml").read_text("utf-8"))
_PATTERNS: Final = {
    language: {name: re.compile(pattern, re.IGNORECASE) for name, pattern in patterns.items()}
    for language, patterns in _WORDS.items()
}
_BEFORE_WORDS: Final = "\"'“”‘’„«»([*_¿¡ \u00a0"
_CLAUSE_END: Final = re.compile(r"[,;:]\s+")
"""What a question may begin with: "After an alarm, how do I ...": the part behind it tells as well."""


class QuestionKind(Enum):
    """What a question asks for.

    PROCEDURE: What to do, all steps of it. SEVERAL: Several items. VALUE: One number, time, name, place or reason.
    OTHER: Anything else, and any question of a language whose words are not known.
    """

    PROCEDURE = "procedure"
    SEVERAL = "several"
    VALUE = "value"
    OTHER = "other"


def kind_of(question: str) -> QuestionKind:
    """Returns what a question asks for."""
    language = sure_language_of(question)
    known = _PATTERNS.values() if language is None else filter(None, (_PATTERNS.get(language),))
    patterns = list(known)
    for clause in (question, *_CLAUSE_END.split(question)[1:]):
        begin = clause.lstrip(_BEFORE_WORDS)
        for kind in (QuestionKind.PROCEDURE, QuestionKind.VALUE, QuestionKind.SEVERAL):
            if any(each[kind.value].match(begin) for each in patterns):
                return kind
    return QuestionKind.OTHER


def refers_back(sentence: str, language: str) -> bool:
    """Whether a sentence begins with a pronoun or a connective, so that the one before it tells what it is about.

    Args:
        sentence: The sentence.
        language: Language of the text around it, an ISO 639-1 code.
    """
    words = _PATTERNS.get(language)
    return words is not None and words["starts"].match(sentence.lstrip(_BEFORE_WORDS)) is not None
