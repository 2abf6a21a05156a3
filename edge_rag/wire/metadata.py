"""Metadata of documents and filters on it, to and from protobuf.

``parse_*`` is for what clients send: it checks every key and value. ``*_from_message`` is for what a daemon sends: it
leaves out values unknown to this version. A filter that clients send is bounded in depth and size, and errors name
the path of the illegal part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.api.v1 import metadata_pb2
from edge_rag.core.documents.checks import (
    check_size,
    check_values,
    checked_comparison,
    checked_prefix,
    checked_value,
)
from edge_rag.core.documents.filters import (
    MAX_DEPTH,
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
from edge_rag.core.documents.metadata import (
    Metadata,
    MetadataValue,
    validate_key,
    validate_metadata,
)
from edge_rag.errors import InvalidRequest
from edge_rag.wire.codec import EnumCodec, Part, moment, timestamp

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BUILTIN: Final = EnumCodec(BuiltinField, metadata_pb2.BuiltinField.DESCRIPTOR)
_COMPARATORS: Final = EnumCodec(Comparator, metadata_pb2.Comparator.DESCRIPTOR)


def metadata_to_message(metadata: Metadata) -> dict[str, metadata_pb2.MetadataValue]:
    return {key: value_to_message(value) for key, value in metadata.items()}


def metadata_from_message(messages: Mapping[str, metadata_pb2.MetadataValue]) -> dict[str, MetadataValue]:
    """Returns metadata by key, without values of types that this version does not know."""
    values = {key: value_from_message(message) for key, message in messages.items()}
    return {key: value for key, value in values.items() if value is not None}


METADATA: Final = Part(metadata_to_message, metadata_from_message)
"""Converts a field that holds metadata."""


def value_to_message(value: MetadataValue) -> metadata_pb2.MetadataValue:
    """Returns a value as a message."""
    match value:
        case bool():
            return metadata_pb2.MetadataValue(flag=value)
        case str():
            return metadata_pb2.MetadataValue(text=value)
        case tuple():
            return metadata_pb2.MetadataValue(tags=metadata_pb2.MetadataValue.Tags(texts=value))
        case date():
            return metadata_pb2.MetadataValue(date=timestamp(value))
        case _:
            return metadata_pb2.MetadataValue(number=value)


def value_from_message(message: metadata_pb2.MetadataValue) -> MetadataValue | None:
    """Returns a value; None for one of a type that this version does not know."""
    match message.WhichOneof("value"):
        case "text":
            return message.text
        case "number":
            return message.number
        case "flag":
            return message.flag
        case "date":
            return moment(message.date)
        case "tags":
            return tuple(message.tags.texts)
        case _:
            return None


def parse_metadata(messages: Mapping[str, metadata_pb2.MetadataValue]) -> dict[str, MetadataValue]:
    return validate_metadata(
        {validate_key(key): parse_value(f"metadata[{key!r}]", message) for key, message in messages.items()}
    )


def parse_value(field: str, message: metadata_pb2.MetadataValue) -> MetadataValue:
    """Returns the value that a client's message stands for. Its text or number is not checked."""
    if message.WhichOneof("value") == "date":
        return _parse_moment(field, message.date)
    value = value_from_message(message)
    if value is None:
        raise InvalidRequest(field, "has no value")
    return value


def _parse_moment(field: str, stamp: Timestamp) -> datetime:
    if not 0 <= stamp.nanos < 1_000_000_000:
        raise InvalidRequest(field, "has nanos outside of 0 to 999,999,999")
    try:
        return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)
    except OverflowError:
        raise InvalidRequest(field, "must lie in the years 1 to 9999") from None


def filter_to_message(condition: Filter | None, depth: int = 1) -> metadata_pb2.Filter | None:
    """Returns a filter as a message, None for None.

    Args:
        depth: Depth in the filter that it is a part of, at least 1.
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
    return _FilterParser().filter("filter", message, 1)


@dataclass(slots=True)
class _FilterParser:
    """Parses one filter and counts its parts."""

    filters: int = 0
    values: int = 0

    def filter(self, path: str, message: metadata_pb2.Filter, depth: int) -> Filter:
        self.filters += 1
        check_size(path, depth, self.filters)
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
        return checked_comparison(path, Comparison(field, comparator, value))

    def _one_of(self, path: str, message: metadata_pb2.Filter.Membership) -> OneOf:
        if not message.values:
            raise InvalidRequest(f"{path}.values", "must hold at least one value")
        field = _field(f"{path}.field", message.field)
        values = (self._value(f"{path}.values[{index}]", field, each) for index, each in enumerate(message.values))
        return OneOf(field, tuple(values))

    def _value(self, path: str, field: FilterField, message: metadata_pb2.MetadataValue) -> FilterValue:
        self.values += 1
        check_values(path, self.values)
        value = parse_value(path, message)
        if isinstance(value, tuple):
            raise InvalidRequest(path, "must be a single value; compare with each tag by itself")
        return checked_value(path, field, value)


def _prefix(path: str, message: metadata_pb2.Filter.Prefix) -> Prefix:
    return checked_prefix(path, _field(f"{path}.field", message.field), message.prefix)


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
