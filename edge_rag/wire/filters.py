"""Filters, to and from protobuf. What clients send is bounded in depth and size; errors name the path of the part."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from edge_rag.api.v1 import metadata_pb2
from edge_rag.core.documents.filters import (
    MAX_DEPTH,
    MAX_FILTERS,
    MAX_VALUES,
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
from edge_rag.core.documents.metadata import MAX_TEXT_CHARACTERS, validate_key, validate_number, validate_text
from edge_rag.errors import InvalidRequest
from edge_rag.wire.codec import EnumCodec
from edge_rag.wire.metadata import parse_value, value_to_message

_BUILTIN: Final = EnumCodec(BuiltinField, metadata_pb2.BuiltinField.DESCRIPTOR)
_COMPARATORS: Final = EnumCodec(Comparator, metadata_pb2.Comparator.DESCRIPTOR)
_KINDS: Final = {str: "a text", float: "a number", datetime: "a date"}


def filter_to_message(condition: Filter | None, depth: int = 1) -> metadata_pb2.Filter | None:
    """Returns a filter as a message, None for None.

    Args:
        condition: The filter.
        depth: Depth in the filter that it is a part of, at least 1.

    Raises:
        InvalidRequest: It is deeper than any server takes.
    """
    if condition is None:
        return None
    if depth > MAX_DEPTH:
        raise InvalidRequest("filter", f"lies deeper than {MAX_DEPTH} filters")
    match condition:
        case AllOf(filters):
            return metadata_pb2.Filter(all_of=_filters_to_message(filters, depth))
        case AnyOf(filters):
            return metadata_pb2.Filter(any_of=_filters_to_message(filters, depth))
        case Negated(negated):
            return metadata_pb2.Filter(negated=filter_to_message(negated, depth + 1))
        case Comparison(field, comparator, value):
            comparison = metadata_pb2.Filter.Comparison(
                field=_field_to_message(field),
                comparator=_COMPARATORS.to_number(comparator),
                value=value_to_message(value),
            )
            return metadata_pb2.Filter(comparison=comparison)
        case OneOf(field, values):
            membership = metadata_pb2.Filter.Membership(
                field=_field_to_message(field), values=map(value_to_message, values)
            )
            return metadata_pb2.Filter(one_of=membership)
        case Prefix(field, prefix):
            return metadata_pb2.Filter(prefix=metadata_pb2.Filter.Prefix(field=_field_to_message(field), prefix=prefix))
        case Present(field):
            return metadata_pb2.Filter(present=_field_to_message(field))


def _filters_to_message(filters: tuple[Filter, ...], depth: int) -> metadata_pb2.Filter.Filters:
    messages = (filter_to_message(each, depth + 1) for each in filters)
    return metadata_pb2.Filter.Filters(filters=[message for message in messages if message is not None])


def _field_to_message(field: FilterField) -> metadata_pb2.FilterField:
    match field:
        case BuiltinField():
            return metadata_pb2.FilterField(builtin=_BUILTIN.to_number(field))
        case MetadataField(key):
            return metadata_pb2.FilterField(metadata=key)


def parse_filter_message(message: metadata_pb2.Filter) -> Filter:
    """Returns the legal filter that a message stands for.

    Raises:
        InvalidRequest: Names the first illegal part by its path, for example ``filter.all_of[1].comparison.value``.
    """
    return _FilterParser().filter("filter", message, 1)


@dataclass(slots=True)
class _FilterParser:
    """Parses one filter and counts its parts."""

    filters: int = 0
    values: int = 0

    def filter(self, path: str, message: metadata_pb2.Filter, depth: int) -> Filter:
        self.filters += 1
        if depth > MAX_DEPTH:
            raise InvalidRequest(path, f"lies deeper than {MAX_DEPTH} filters")
        if self.filters > MAX_FILTERS:
            raise InvalidRequest(path, f"is one filter too many, at most {MAX_FILTERS} are allowed")
        condition = message.WhichOneof("condition")
        path = f"{path}.{condition}"
        match condition:
            case "all_of":
                return AllOf(self._filters(path, message.all_of, depth))
            case "any_of":
                return AnyOf(self._filters(path, message.any_of, depth))
            case "negated":
                return Negated(self.filter(path, message.negated, depth + 1))
            case "comparison":
                return self._comparison(path, message.comparison)
            case "one_of":
                return self._one_of(path, message.one_of)
            case "prefix":
                return _prefix(path, message.prefix)
            case "present":
                return Present(_field(path, message.present))
            case _:
                raise InvalidRequest(path.removesuffix(".None"), "has no condition")

    def _filters(self, path: str, message: metadata_pb2.Filter.Filters, depth: int) -> tuple[Filter, ...]:
        if not message.filters:
            raise InvalidRequest(path, "must hold at least one filter")
        return tuple(self.filter(f"{path}[{index}]", each, depth + 1) for index, each in enumerate(message.filters))

    def _comparison(self, path: str, message: metadata_pb2.Filter.Comparison) -> Comparison:
        field = _field(f"{path}.field", message.field)
        comparator = _COMPARATORS.get(message.comparator)
        if comparator is None:
            raise InvalidRequest(f"{path}.comparator", f"{message.comparator} is not a comparator")
        value = self._value(f"{path}.value", field, message.value)
        if isinstance(value, bool) and comparator is not Comparator.EQUAL:
            raise InvalidRequest(f"{path}.comparator", "true and false have no order, only COMPARATOR_EQUAL")
        return Comparison(field, comparator, value)

    def _one_of(self, path: str, message: metadata_pb2.Filter.Membership) -> OneOf:
        if not message.values:
            raise InvalidRequest(f"{path}.values", "must hold at least one value")
        field = _field(f"{path}.field", message.field)
        values = (self._value(f"{path}.values[{index}]", field, each) for index, each in enumerate(message.values))
        return OneOf(field, tuple(values))

    def _value(self, path: str, field: FilterField, message: metadata_pb2.MetadataValue) -> FilterValue:
        self.values += 1
        if self.values > MAX_VALUES:
            raise InvalidRequest(path, f"is one value too many, at most {MAX_VALUES:,} are allowed")
        value = parse_value(path, message)
        if isinstance(value, tuple):
            raise InvalidRequest(path, "must be a single value; compare with each tag by itself")
        if isinstance(field, BuiltinField) and type(value) is not field.kind:
            raise InvalidRequest(path, f"must be {_KINDS[field.kind]}, as {field.value} is")
        match value:
            case bool() | datetime():
                return value
            case float():
                return validate_number(path, value)
            case str() if isinstance(field, BuiltinField):
                return _bounded(path, value)
            case str():
                return validate_text(path, value)


def _prefix(path: str, message: metadata_pb2.Filter.Prefix) -> Prefix:
    field = _field(f"{path}.field", message.field)
    if isinstance(field, BuiltinField) and field.kind is not str:
        raise InvalidRequest(f"{path}.field", f"{field.value} is not a text")
    prefix = _bounded(f"{path}.prefix", message.prefix)
    return Prefix(field, prefix if isinstance(field, BuiltinField) else unicodedata.normalize("NFC", prefix))


def _field(path: str, message: metadata_pb2.FilterField) -> FilterField:
    match message.WhichOneof("field"):
        case "metadata":
            return MetadataField(validate_key(message.metadata))
        case "builtin":
            builtin = _BUILTIN.get(message.builtin)
            if builtin is None:
                raise InvalidRequest(path, f"{message.builtin} is not a field")
            return builtin
        case _:
            raise InvalidRequest(path, "names no field")


def _bounded(path: str, text: str) -> str:
    if not 1 <= len(text) <= MAX_TEXT_CHARACTERS:
        raise InvalidRequest(path, f"must be 1 to {MAX_TEXT_CHARACTERS:,} characters, has {len(text):,}")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise InvalidRequest(path, "must not hold control characters")
    return text
