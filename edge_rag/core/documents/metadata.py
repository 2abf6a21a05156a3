"""Metadata of documents: validation, and encoding as JSON; pure.

A key has 1 to 64 characters of ``a-z``, ``0-9``, ``_``, ``.`` and ``-``. A value is a text, a number, a truth value, a
moment, or several texts (tags). By convention ``title``, ``author``, ``created`` and ``modified`` are properties found
in files. In JSON tags are an array, and a moment is ``{"at": ISO 8601}``.
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

MAX_KEYS: Final = 64
"""Most keys of a document."""

MAX_TEXT_CHARACTERS: Final = 4096
"""Most characters of a text or a tag."""

MAX_TAGS: Final = 256
"""Most tags of a value."""

MAX_METADATA_CHARACTERS: Final = 32_768
"""Most characters of all keys and texts of a document."""

_KEY = re.compile(r"[a-z0-9_.-]{1,64}")
_WHITE_SPACE = re.compile(r"\s+")
_INVALID_CATEGORIES = frozenset(("Cc", "Cs"))
_EXACT_INTEGER = 2**53


def validate_key(key: str) -> str:
    """Returns a valid key."""
    if not _KEY.fullmatch(key):
        raise InvalidRequest(_field(key), "a key is 1 to 64 characters of a-z, 0-9, _, . and -")
    return key


def validate_metadata(given: Mapping[str, object]) -> dict[str, MetadataValue]:
    """Returns metadata in normal form.

    White space in texts becomes single spaces, texts are in NFC, integers become floats, days become their midnight,
    and moments without a zone are UTC.
    """
    if len(given) > MAX_KEYS:
        raise InvalidRequest("metadata", f"has {len(given):,} keys, at most {MAX_KEYS} are allowed")
    values: dict[str, MetadataValue] = {}
    characters = 0
    for key, value in given.items():
        values[validate_key(key)] = _validate_value(key, value)
        characters += len(key) + _characters(values[key])
        if characters > MAX_METADATA_CHARACTERS:
            raise InvalidRequest(
                _field(key), f"all metadata of a document together is at most {MAX_METADATA_CHARACTERS:,} characters"
            )
    return values


def usable_metadata(found: Mapping[str, object]) -> dict[str, MetadataValue]:
    """Returns the valid part of metadata found in a file, whose author cannot be asked to correct it.

    Long texts are cut, and what ``validate_metadata`` would reject is left out.
    """
    values: dict[str, MetadataValue] = {}
    for key, value in found.items():
        short = value[:MAX_TEXT_CHARACTERS] if isinstance(value, str) else value
        try:
            values = validate_metadata({**values, key: short})
        except InvalidRequest:
            continue
    return values


def validate_text(field: str, text: str) -> str:
    """Returns a text value in normal form."""
    if len(text) > 4 * MAX_TEXT_CHARACTERS:
        raise InvalidRequest(field, f"has {len(text):,} characters, at most {MAX_TEXT_CHARACTERS:,} are allowed")
    normal = _WHITE_SPACE.sub(" ", unicodedata.normalize("NFC", text)).strip()
    if not normal:
        raise InvalidRequest(field, "must not be empty")
    if len(normal) > MAX_TEXT_CHARACTERS:
        raise InvalidRequest(field, f"has {len(normal):,} characters, at most {MAX_TEXT_CHARACTERS:,} are allowed")
    if any(unicodedata.category(character) in _INVALID_CATEGORIES for character in normal):
        raise InvalidRequest(field, "must not have control characters")
    return normal


def validate_moment(field: str, moment: date) -> datetime:
    """Returns a day or a moment as a moment in UTC.

    Args:
        moment: A day means its midnight; a moment without a zone is UTC.
    """
    full = moment if isinstance(moment, datetime) else datetime.combine(moment, time())
    try:
        return full.replace(tzinfo=UTC) if full.tzinfo is None else full.astimezone(UTC)
    except OverflowError:
        raise InvalidRequest(field, "must lie in the years 1 to 9999") from None


def validate_number(field: str, number: float) -> float:
    """Returns a finite number."""
    if isinstance(number, int) and abs(number) > _EXACT_INTEGER:
        raise InvalidRequest(field, "has more digits than a number holds; give it as a text")
    if not isfinite(number):
        raise InvalidRequest(field, "must be a finite number")
    return float(number)


def _validate_value(key: str, value: object) -> MetadataValue:
    field = _field(key)
    match value:
        case bool():
            return value
        case int() | float():
            return validate_number(field, value)
        case str():
            return validate_text(field, value)
        case date():
            return validate_moment(field, value)
        case list() | tuple():
            if not 1 <= len(value) <= MAX_TAGS:
                raise InvalidRequest(field, f"must hold 1 to {MAX_TAGS} texts, holds {len(value):,}")
            texts = [validate_text(field, tag) for tag in value if isinstance(tag, str)]
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
    """Returns metadata as JSON with sorted keys, so that equal metadata give equal texts."""
    plain = {
        key: {"at": value.isoformat()} if isinstance(value, datetime) else value for key, value in metadata.items()
    }
    return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def decode_metadata(text: str) -> dict[str, MetadataValue]:
    """Decodes JSON of ``encode_metadata``; checks the types of values, but not whether keys and values are valid."""
    plain = json.loads(text)
    if not isinstance(plain, dict):
        raise ValueError("metadata is not a JSON object")
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
            raise ValueError("a metadata value is of an unknown type")
