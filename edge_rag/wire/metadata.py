"""Metadata between protobuf and core."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.api.v1 import metadata_pb2
from edge_rag.core.documents.metadata import Metadata, MetadataValue, checked_key, checked_metadata
from edge_rag.errors import InvalidRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def metadata_to_message(values: Metadata) -> dict[str, metadata_pb2.MetadataValue]:
    """Returns metadata as messages, by key."""
    return {key: value_to_message(value) for key, value in values.items()}


def value_to_message(value: MetadataValue) -> metadata_pb2.MetadataValue:
    """Returns a value as a message."""
    match value:
        case bool():
            return metadata_pb2.MetadataValue(flag=value)
        case str():
            return metadata_pb2.MetadataValue(text=value)
        case float():
            return metadata_pb2.MetadataValue(number=value)
        case tuple():
            return metadata_pb2.MetadataValue(tags=metadata_pb2.MetadataValue.Tags(texts=value))
        case datetime():
            date = Timestamp()
            date.FromDatetime(value)
            return metadata_pb2.MetadataValue(date=date)


def parse_metadata(given: Mapping[str, metadata_pb2.MetadataValue]) -> dict[str, MetadataValue]:
    """Returns the legal metadata that a client's messages stand for.

    Raises:
        InvalidRequest: Names the first unusable key.
    """
    return checked_metadata(
        {checked_key(key): parse_value(f"metadata[{key!r}]", value) for key, value in given.items()}
    )


def parse_value(field: str, given: metadata_pb2.MetadataValue) -> MetadataValue:
    """Returns the value a message stands for; whether it is legal is not checked beyond its being one.

    Raises:
        InvalidRequest: There is none, or a date outside of the years 1 to 9999.
    """
    match given.WhichOneof("value"):
        case "text":
            return given.text
        case "number":
            return given.number
        case "flag":
            return given.flag
        case "date":
            return _moment(field, given.date)
        case "tags":
            return tuple(given.tags.texts)
        case _:
            raise InvalidRequest(field, "has no value")


def _moment(field: str, given: Timestamp) -> datetime:
    if not 0 <= given.nanos < 1_000_000_000:
        raise InvalidRequest(field, "has nanos outside of 0 to 999,999,999")
    try:
        return _EPOCH + timedelta(seconds=given.seconds, microseconds=given.nanos // 1000)
    except OverflowError:
        raise InvalidRequest(field, "must lie in the years 1 to 9999") from None
