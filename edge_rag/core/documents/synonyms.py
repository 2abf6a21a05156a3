"""Synonyms of a collection: lines of words and phrases that mean the same; pure."""

from __future__ import annotations

import unicodedata
from typing import Final

from edge_rag.errors import InvalidRequest

MAX_SYNONYMS_CHARACTERS: Final = 16_384
"""Most characters of the synonyms of a collection."""

MAX_PHRASES: Final = 8
"""Most phrases of a line."""

MAX_PHRASE_CHARACTERS: Final = 100
"""Most characters of a phrase."""

_COMMENT: Final = "#"


def parse_synonyms(field: str, text: str) -> tuple[tuple[str, ...], ...]:
    """Returns the phrases of each line that has some, in order.

    A line is ``UPS = uninterruptible power supply, backup power``: one phrase, an equals sign, and one or more phrases
    with commas between them, which all mean the same. What follows ``#`` is a comment; empty lines do not count.
    """
    if len(text) > MAX_SYNONYMS_CHARACTERS:
        raise InvalidRequest(field, f"at most {MAX_SYNONYMS_CHARACTERS:,} characters, has {len(text):,}")
    groups = []
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.partition(_COMMENT)[0].strip()
        if content:
            groups.append(_parse_line(field, number, content))
    return tuple(groups)


def _parse_line(field: str, number: int, content: str) -> tuple[str, ...]:
    place = f"line {number:,}"
    first, equals, rest = content.partition("=")
    if not equals or "=" in rest:
        raise InvalidRequest(field, f"{place} is not PHRASE = PHRASE, PHRASE, ...")
    phrases = tuple(" ".join(phrase.split()) for phrase in (first, *rest.split(",")))
    if len(phrases) > MAX_PHRASES:
        raise InvalidRequest(field, f"{place} has {len(phrases):,} phrases, at most {MAX_PHRASES} are allowed")
    for phrase in phrases:
        if not any(map(str.isalnum, phrase)):
            raise InvalidRequest(field, f"{place} has a phrase without a letter or digit")
        if len(phrase) > MAX_PHRASE_CHARACTERS:
            raise InvalidRequest(
                field,
                f"{place} has a phrase of {len(phrase):,} characters, at most {MAX_PHRASE_CHARACTERS} can be",
            )
        if any(unicodedata.category(character) == "Cc" for character in phrase):
            raise InvalidRequest(field, f"{place} has control characters")
    if len(set(map(str.casefold, phrases))) < len(phrases):
        raise InvalidRequest(field, f"{place} has a phrase twice")
    return phrases
