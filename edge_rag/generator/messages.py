"""Messages of the box to its users, in the language of the question; data of ``messages.toml``; pure."""

from __future__ import annotations

import tomllib
from enum import Enum
from importlib.resources import files
from math import ceil
from typing import Final

from edge_rag.analysis.languages import DEFAULT_LANGUAGE, language_of
from edge_rag.errors import CollectionNotFound, EdgeRagError, Overloaded

AUTO: Final = "auto"
"""Stands for the language of the question."""

_TEXTS: Final = tomllib.loads((files(__package__) / "messages.toml").read_text("utf-8"))

ERRORS: Final[dict[str, dict[str, str]]] = {language: texts.pop("errors", {}) for language, texts in _TEXTS.items()}
"""Texts of errors by ISO 639-1 code and class; none in English, which is the error's own."""

MESSAGES: Final[dict[str, dict[str, str]]] = _TEXTS
"""Other texts by ISO 639-1 code and key."""


class Message(Enum):
    """Messages."""

    NOT_FOUND = "not_found"
    """The passages do not answer the question."""
    NO_PASSAGES = "no_passages"
    """There is no passage that could."""
    NO_SOURCE = "no_source"
    """Note on a sentence that no document supports."""
    NAME = "name"
    """The language's own name."""


def message(which: Message, language: str) -> str:
    return MESSAGES.get(language, MESSAGES[DEFAULT_LANGUAGE])[which.value]


def error_message(error: EdgeRagError, question: str, language: str = AUTO) -> str:
    """Returns the message for users that replaces an error's English text.

    ``question`` is empty if unknown; ``language`` is an ISO 639-1 code, or "auto" for the language of the question.
    """
    language = language_of(question) if language == AUTO else language
    known = error.known if isinstance(error, CollectionNotFound) else None
    if known == () and ERRORS.get(language):
        return message(Message.NO_PASSAGES, language)
    for kind in type(error).__mro__:
        if text := ERRORS.get(language, {}).get(kind.__name__):
            seconds = max(1, ceil(error.retry_after_s)) if isinstance(error, Overloaded) else 0
            collection = error.collection if isinstance(error, CollectionNotFound) else ""
            named = known or (error.allowed if isinstance(error, CollectionNotFound) else ())
            return text.format(seconds=seconds, collection=collection) + (f" ({', '.join(named)})" if named else "")
    return str(error)
