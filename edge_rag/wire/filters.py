"""Filters from protobuf to core: bounded in depth and number, and refused by the path of the part at fault."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from edge_rag.api.v1 import metadata_pb2
from edge_rag.core.documents.filters import (
    DEEPEST,
    MOST_FILTERS,
    MOST_VALUES,
    AllOf,
    AnyOf,
    BuiltinField,
    Comparator,
    Comparison,
    Filter,
    FilterField,
    FilterValue,
    MetadataField,
    Negated,
    OneOf,
    Prefix,
    Present,
)
from edge_rag.core.documents.metadata import LONGEST_TEXT, checked_key, checked_number, checked_text
from edge_rag.errors import InvalidRequest
from edge_rag.wire.metadata import parse_value

_BUILTIN: Final = {
    metadata_pb2.BUILTIN_FIELD_NAME: BuiltinField.NAME,
    metadata_pb2.BUILTIN_FIELD_MEDIA_TYPE: BuiltinField.MEDIA_TYPE,
    metadata_pb2.BUILTIN_FIELD_PAGE: BuiltinField.PAGE,
    metadata_pb2.BUILTIN_FIELD_INGESTED_AT: BuiltinField.INGESTED_AT,
}
_COMPARATORS: Final = {
    metadata_pb2.COMPARATOR_EQUAL: Comparator.EQUAL,
    metadata_pb2.COMPARATOR_LESS: Comparator.LESS,
    metadata_pb2.COMPARATOR_LESS_OR_EQUAL: Comparator.LESS_OR_EQUAL,
    metadata_pb2.COMPARATOR_GREATER: Comparator.GREATER,
    metadata_pb2.COMPARATOR_GREATER_OR_EQUAL: Comparator.GREATER_OR_EQUAL,
}
_KINDS: Final = {str: "a text", float: "a number", datetime: "a date"}


def parse_filter_message(given: metadata_pb2.Filter) -> Filter:
    """Returns the legal filter that a message stands for.

    Raises:
        InvalidRequest: Names the first part at fault by its path, for example ``filter.all_of[1].comparison.value``.
    """
    return _Reading().filter("filter", given, 1)


@dataclass(slots=True)
class _Reading:
    """Reads one filter, counting as it goes."""

    filters: int = 0
    values: int = 0

    def filter(self, path: str, given: metadata_pb2.Filter, depth: int) -> Filter:
        self.filters += 1
        if depth > DEEPEST:
            raise InvalidRequest(path, f"lies deeper than {DEEPEST} filters")
        if self.filters > MOST_FILTERS:
            raise InvalidRequest(path, f"is one filter too many, at most {MOST_FILTERS} are allowed")
        condition = given.WhichOneof("condition")
        path = f"{path}.{condition}"
        match condition:
            case "all_of":
                return AllOf(self._several(path, given.all_of, depth))
            case "any_of":
                return AnyOf(self._several(path, given.any_of, depth))
            case "negated":
                return Negated(self.filter(path, given.negated, depth + 1))
            case "comparison":
                return self._comparison(path, given.comparison)
            case "one_of":
                return self._one_of(path, given.one_of)
            case "prefix":
                return _prefix(path, given.prefix)
            case "present":
                return Present(_field(path, given.present))
            case _:
                raise InvalidRequest(path.removesuffix(".None"), "has no condition")

    def _several(self, path: str, given: metadata_pb2.Filter.Filters, depth: int) -> tuple[Filter, ...]:
        if not given.filters:
            raise InvalidRequest(path, "must hold at least one filter")
        return tuple(self.filter(f"{path}[{index}]", each, depth + 1) for index, each in enumerate(given.filters))

    def _comparison(self, path: str, given: metadata_pb2.Filter.Comparison) -> Comparison:
        field = _field(f"{path}.field", given.field)
        comparator = _COMPARATORS.get(given.comparator)
        if comparator is None:
            raise InvalidRequest(f"{path}.comparator", f"{given.comparator} is not a comparator")
        value = self._value(f"{path}.value", field, given.value)
        if isinstance(value, bool) and comparator is not Comparator.EQUAL:
            raise InvalidRequest(f"{path}.comparator", "true and false are only ever equal or not")
        return Comparison(field, comparator, value)

    def _one_of(self, path: str, given: metadata_pb2.Filter.Membership) -> OneOf:
        if not given.values:
            raise InvalidRequest(f"{path}.values", "must hold at least one value")
        field = _field(f"{path}.field", given.field)
        values = (self._value(f"{path}.values[{index}]", field, each) for index, each in enumerate(given.values))
        return OneOf(field, tuple(values))

    def _value(self, path: str, field: FilterField, given: metadata_pb2.MetadataValue) -> FilterValue:
        self.values += 1
        if self.values > MOST_VALUES:
            raise InvalidRequest(path, f"is one value too many, at most {MOST_VALUES:,} are allowed")
        value = parse_value(path, given)
        if isinstance(value, tuple):
            raise InvalidRequest(path, "must be a single value; compare with each tag by itself")
        if isinstance(field, BuiltinField) and type(value) is not field.kind:
            raise InvalidRequest(path, f"must be {_KINDS[field.kind]}, as {field.value} is")
        match value:
            case bool() | datetime():
                return value
            case float():
                return checked_number(path, value)
            case str() if isinstance(field, BuiltinField):
                return _bounded(path, value)
            case str():
                return checked_text(path, value)


def _prefix(path: str, given: metadata_pb2.Filter.Prefix) -> Prefix:
    field = _field(f"{path}.field", given.field)
    if isinstance(field, BuiltinField) and field.kind is not str:
        raise InvalidRequest(f"{path}.field", f"{field.value} is no text and has no beginning")
    prefix = _bounded(f"{path}.prefix", given.prefix)
    return Prefix(field, prefix if isinstance(field, BuiltinField) else unicodedata.normalize("NFC", prefix))


def _field(path: str, given: metadata_pb2.FilterField) -> FilterField:
    match given.WhichOneof("field"):
        case "metadata":
            return MetadataField(checked_key(given.metadata))
        case "builtin" if given.builtin in _BUILTIN:
            return _BUILTIN[given.builtin]
        case "builtin":
            raise InvalidRequest(path, f"{given.builtin} is not a field")
        case _:
            raise InvalidRequest(path, "names no field")


def _bounded(path: str, text: str) -> str:
    if not 1 <= len(text) <= LONGEST_TEXT:
        raise InvalidRequest(path, f"must be 1 to {LONGEST_TEXT:,} characters, has {len(text):,}")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise InvalidRequest(path, "must not hold control characters")
    return text
