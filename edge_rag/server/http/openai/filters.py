"""Attributes and filters of OpenAI's API, as metadata of documents and filters on it; pure.

An attribute is a key of the document's metadata, its value a string, a number or a boolean. A date is shown as its
ISO 8601 form, several tags as one string with commas.

A comparison holds as ``core.documents.filters`` says: a value of
another type, or none, satisfies no comparison, of several tags one is enough, and ``ne`` and ``nin`` are the negations
of ``eq`` and ``in``, so that they also hold without a value. A text that is an ISO 8601 date compares with dates, too,
because JSON has no dates and attributes show them as such texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from edge_rag.core.documents.filters import (
    MAX_DEPTH,
    MAX_FILTERS,
    MAX_VALUES,
    AllOf,
    AnyOf,
    Comparator,
    Comparison,
    Filter,
    FilterValue,
    MetadataField,
    Negated,
    OneOf,
)
from edge_rag.core.documents.metadata import (
    Metadata,
    MetadataValue,
    validate_key,
    validate_metadata,
    validate_moment,
    validate_number,
    validate_text,
)
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.fields import check_names, typed

MAX_ATTRIBUTES: Final = 16
"""Most attributes that a client gives with a file."""

_COMPARATORS: Final[Mapping[str, Comparator]] = {
    "eq": Comparator.EQUAL,
    "ne": Comparator.EQUAL,
    "gt": Comparator.GREATER,
    "gte": Comparator.GREATER_OR_EQUAL,
    "lt": Comparator.LESS,
    "lte": Comparator.LESS_OR_EQUAL,
}
_SETS: Final = ("in", "nin")
_NEGATED: Final = ("ne", "nin")
_COMPOUND: Final[Mapping[str, type[AllOf] | type[AnyOf]]] = {"and": AllOf, "or": AnyOf}
_TYPES: Final = (*_COMPARATORS, *_SETS, *_COMPOUND)

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:[Zz]|[-+]\d\d:\d\d)?)?")


def parse_attributes(value: object, field: str = "attributes") -> dict[str, MetadataValue]:
    """Returns the legal metadata that attributes stand for; none for null."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequest(field, "must be an object")
    if len(value) > MAX_ATTRIBUTES:
        raise InvalidRequest(field, f"has {len(value):,} keys, at most {MAX_ATTRIBUTES} are allowed")
    for key, one in value.items():
        if not isinstance(one, str | int | float):
            raise InvalidRequest(f"{field}.{key[:256]}", "must be a string, a number or a boolean")
    try:
        return validate_metadata(value)
    except InvalidRequest as error:
        raise InvalidRequest(error.field.replace("metadata", field, 1), error.problem) from None


def attributes_of(metadata: Metadata) -> dict[str, str | float | bool]:
    return {key: _attribute(value) for key, value in metadata.items()}


def _attribute(value: MetadataValue) -> str | float | bool:
    match value:
        case datetime():
            return value.isoformat()
        case tuple():
            return ", ".join(value)
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def parse_filters(value: object, field: str = "filters") -> Filter | None:
    """Returns the legal filter that a comparison or compound filter of OpenAI's API stands for; None for null."""
    return None if value is None else _Translation().filter(field, value, 1)


@dataclass(slots=True)
class _Translation:
    """Translates one filter. The result is counted, so that it is within the bounds of every filter."""

    filters: int = 0
    values: int = 0

    def filter(self, path: str, value: object, depth: int) -> Filter:
        if not isinstance(value, dict):
            raise InvalidRequest(path, "must be an object: a comparison, or and / or of filters")
        kind = value.get("type")
        if not isinstance(kind, str) or kind not in _TYPES:
            raise InvalidRequest(f"{path}.type", f"must be one of {', '.join(_TYPES)}")
        if kind in _COMPOUND:
            return self._compound(path, value, depth)
        check_names(value, frozenset({"type", "key", "value"}), path)
        if kind not in _NEGATED:
            return self._comparison(path, value, kind, depth)
        self._count(path, depth)
        return Negated(self._comparison(path, value, kind, depth + 1))

    def _compound(self, path: str, value: Mapping[str, Any], depth: int) -> Filter:
        check_names(value, frozenset({"type", "filters"}), path)
        self._count(path, depth)
        given = typed(value, "filters", list, path)
        if not given:
            raise InvalidRequest(f"{path}.filters", "must be an array of at least one filter")
        parts = (self.filter(f"{path}.filters[{index}]", each, depth + 1) for index, each in enumerate(given))
        return _COMPOUND[value["type"]](tuple(parts))

    def _comparison(self, path: str, value: Mapping[str, Any], kind: str, depth: int) -> Filter:
        field = MetadataField(_key(path, value))
        if kind in _SETS:
            given = value.get("value")
            if not isinstance(given, list) or not given:
                raise InvalidRequest(f"{path}.value", f"must be an array of at least one value for {kind}")
            self._count(path, depth)
            each = (self._values(f"{path}.value[{index}]", one) for index, one in enumerate(given))
            return OneOf(field, tuple(one for values in each for one in values))
        values = self._values(f"{path}.value", value.get("value"))
        comparator = _COMPARATORS[kind]
        if isinstance(values[0], bool) and comparator is not Comparator.EQUAL:
            raise InvalidRequest(f"{path}.type", "true and false have no order; use eq or ne")
        self._count(path, depth)
        if len(values) == 1:
            return Comparison(field, comparator, values[0])
        for _ in values:
            self._count(path, depth + 1)
        return AnyOf(tuple(Comparison(field, comparator, one) for one in values))

    def _values(self, path: str, value: object) -> tuple[FilterValue, ...]:
        """Returns a value, and the date that it stands for, too."""
        match value:
            case bool():
                values: tuple[FilterValue, ...] = (value,)
            case int() | float():
                values = (validate_number(path, value),)
            case str():
                text, moment = validate_text(path, value), _date(path, value)
                values = (text,) if moment is None else (text, moment)
            case _:
                raise InvalidRequest(path, "must be a string, a number or a boolean")
        self.values += len(values)
        if self.values > MAX_VALUES:
            raise InvalidRequest(path, f"is one value too many, at most {MAX_VALUES:,} are allowed")
        return values

    def _count(self, path: str, depth: int) -> None:
        self.filters += 1
        if depth > MAX_DEPTH:
            raise InvalidRequest(path, f"lies deeper than {MAX_DEPTH} filters")
        if self.filters > MAX_FILTERS:
            raise InvalidRequest(path, f"is one filter too many, at most {MAX_FILTERS} are allowed")


def _key(path: str, value: Mapping[str, Any]) -> str:
    key = typed(value, "key", str, path)
    if key is None:
        raise InvalidRequest(f"{path}.key", "is missing")
    try:
        return validate_key(key)
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}.key", error.problem) from None


def _date(path: str, text: str) -> datetime | None:
    """Returns the day or moment that a text is; None if it is none."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return validate_moment(path, datetime.fromisoformat(text.upper()))
    except (ValueError, InvalidRequest):  # no such day or hour
        return None
