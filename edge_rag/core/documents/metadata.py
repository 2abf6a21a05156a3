"""Metadata of a document: what is known of it beside its text; pure.

A key has 1 to 64 characters of ``a-z``, ``0-9``, ``_``, ``.`` and ``-``. A value is a text, a number, a truth value, a
moment, or several texts (tags). By convention ``title``, ``author``, ``created`` and ``modified`` are what files say of
themselves.

Metadata as JSON: texts, numbers and truth values as they are, tags as an array, a moment as ``{"at": ISO 8601}``.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from math import isfinite
from typing import Any, Final

from edge_rag.errors import InvalidRequest

MetadataValue = str | float | bool | datetime | tuple[str, ...]
"""Text in NFC, number, truth value, moment in UTC, or at least one text."""

Metadata = Mapping[str, MetadataValue]
"""Values by key."""

MOST_KEYS: Final = 64
"""Most keys of a document."""

LONGEST_TEXT: Final = 4096
"""Most characters of a text or a tag."""

MOST_TAGS: Final = 256
"""Most texts under one key."""

MOST_CHARACTERS: Final = 32_768
"""Most characters of all keys and texts of a document together."""

_KEY = re.compile(r"[a-z0-9_.-]{1,64}")
_WHITE_SPACE = re.compile(r"\s+")
_UNFIT = frozenset(("Cc", "Cs"))
_EXACT_INTEGER = 2**53


def checked_key(key: str) -> str:
    """Returns a key.

    Raises:
        InvalidRequest: It is none; names it.
    """
    if not _KEY.fullmatch(key):
        raise InvalidRequest(_field(key), "a key is 1 to 64 characters of a-z, 0-9, _, . and -")
    return key


def checked_metadata(given: Mapping[str, object]) -> dict[str, MetadataValue]:
    """Returns metadata in its normal form, or refuses it.

    White space in texts becomes single spaces, texts are brought to NFC, integers become floats, days become their
    midnight and moments without a zone are taken for UTC.

    Args:
        given: Values of any type by key.

    Raises:
        InvalidRequest: A key or a value is unusable, or there is too much; names the first key at fault.
    """
    if len(given) > MOST_KEYS:
        raise InvalidRequest("metadata", f"has {len(given):,} keys, at most {MOST_KEYS} are allowed")
    values: dict[str, MetadataValue] = {}
    characters = 0
    for key, value in given.items():
        values[checked_key(key)] = _checked_value(key, value)
        characters += len(key) + _characters(values[key])
        if characters > MOST_CHARACTERS:
            raise InvalidRequest(
                _field(key), f"all metadata of a document together is at most {MOST_CHARACTERS:,} characters"
            )
    return values


def usable_metadata(found: Mapping[str, object]) -> dict[str, MetadataValue]:
    """Returns what is usable of metadata that a file has of itself, where nobody could mend what is not.

    Long texts are cut, and what ``checked_metadata`` would refuse is left out.

    Args:
        found: Values of any type by key.
    """
    values: dict[str, MetadataValue] = {}
    for key, value in found.items():
        short = value[:LONGEST_TEXT] if isinstance(value, str) else value
        try:
            values = checked_metadata({**values, key: short})
        except InvalidRequest:
            continue
    return values


def checked_text(field: str, text: str) -> str:
    """Returns a text value in its normal form.

    Args:
        field: What to call it in the error.
        text: The text.

    Raises:
        InvalidRequest: It is empty, longer than ``LONGEST_TEXT``, or has control characters.
    """
    if len(text) > 4 * LONGEST_TEXT:
        raise InvalidRequest(field, f"has {len(text):,} characters, at most {LONGEST_TEXT:,} are allowed")
    normal = _WHITE_SPACE.sub(" ", unicodedata.normalize("NFC", text)).strip()
    if not normal:
        raise InvalidRequest(field, "must not be empty")
    if len(normal) > LONGEST_TEXT:
        raise InvalidRequest(field, f"has {len(normal):,} characters, at most {LONGEST_TEXT:,} are allowed")
    if any(unicodedata.category(character) in _UNFIT for character in normal):
        raise InvalidRequest(field, "must not have control characters")
    return normal


def checked_moment(field: str, moment: date) -> datetime:
    """Returns a day or a moment as a moment in UTC.

    Args:
        field: What to call it in the error.
        moment: A day stands for its midnight; without a zone it is UTC.

    Raises:
        InvalidRequest: In UTC it lies outside the years 1 to 9999.
    """
    full = moment if isinstance(moment, datetime) else datetime.combine(moment, time())
    try:
        return full.replace(tzinfo=UTC) if full.tzinfo is None else full.astimezone(UTC)
    except OverflowError:
        raise InvalidRequest(field, "must lie in the years 1 to 9999") from None


def checked_number(field: str, number: float) -> float:
    """Returns a number.

    Raises:
        InvalidRequest: It is not finite, or an integer of more digits than a float holds.
    """
    if isinstance(number, int) and abs(number) > _EXACT_INTEGER:
        raise InvalidRequest(field, "has more digits than a number keeps; give it as a text")
    if not isfinite(number):
        raise InvalidRequest(field, "must be a finite number")
    return float(number)


def _checked_value(key: str, value: object) -> MetadataValue:
    field = _field(key)
    match value:
        case bool():
            return value
        case int() | float():
            return checked_number(field, value)
        case str():
            return checked_text(field, value)
        case date():
            return checked_moment(field, value)
        case list() | tuple():
            if not 1 <= len(value) <= MOST_TAGS:
                raise InvalidRequest(field, f"must hold 1 to {MOST_TAGS} texts, holds {len(value):,}")
            texts = [checked_text(field, tag) for tag in value if isinstance(tag, str)]
            if len(texts) < len(value):
                raise InvalidRequest(field, "a list may hold texts only")
            return tuple(dict.fromkeys(texts))
        case _:
            raise InvalidRequest(field, "must be a text, a number, true or false, a date, or a list of texts")


def _characters(value: MetadataValue) -> int:
    match value:
        case str():
            return len(value)
        case tuple():
            return sum(len(text) for text in value)
        case _:
            return 0


def _field(key: str) -> str:
    shown = key if len(key) <= 80 else f"{key[:80]}…"
    return f"metadata[{shown!r}]"


def encode_metadata(metadata: Metadata) -> str:
    """Returns metadata as JSON, keys in order, so that equal metadata are equal texts."""
    plain = {
        key: {"at": value.isoformat()} if isinstance(value, datetime) else value for key, value in metadata.items()
    }
    return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def decode_metadata(text: str) -> dict[str, MetadataValue]:
    """Reads what ``encode_metadata`` wrote; whether keys and values are legal is not checked, only their types.

    Raises:
        ValueError: It is nothing that was written by it.
    """
    plain = json.loads(text)
    if not isinstance(plain, dict):
        raise ValueError("metadata is no object")
    return {key: _value(value) for key, value in plain.items()}


def _value(plain: Any) -> MetadataValue:
    match plain:
        case bool() | str():
            return plain
        case int() | float():
            return float(plain)
        case list() if all(isinstance(text, str) for text in plain):
            return tuple(plain)
        case {"at": str(moment)}:
            return datetime.fromisoformat(moment)
        case _:
            raise ValueError("a metadata value is of no known type")
