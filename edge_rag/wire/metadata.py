"""Metadata of documents, to and from protobuf.

``parse_*`` is for what clients send: it checks every key and value. ``*_from_message`` is for what a daemon sends: it
leaves out what this version does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.api.v1 import metadata_pb2
from edge_rag.core.documents.metadata import Metadata, MetadataValue, validate_key, validate_metadata
from edge_rag.errors import InvalidRequest
from edge_rag.wire.codec import Part, moment, timestamp

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def metadata_to_message(metadata: Metadata) -> dict[str, metadata_pb2.MetadataValue]:
    """Returns metadata as messages, by key."""
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
    """Returns the legal metadata that a client's messages stand for.

    Raises:
        InvalidRequest: Names the first unusable key.
    """
    return validate_metadata(
        {validate_key(key): parse_value(f"metadata[{key!r}]", message) for key, message in messages.items()}
    )


def parse_value(field: str, message: metadata_pb2.MetadataValue) -> MetadataValue:
    """Returns the value that a client's message stands for. Its text or number is not checked.

    Raises:
        InvalidRequest: There is none, or a date outside of the years 1 to 9999.
    """
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
