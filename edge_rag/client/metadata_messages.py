"""Metadata between protobuf and values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.api.v1 import metadata_pb2
from edge_rag.client.failures import CallStatus, ClientError
from edge_rag.core.documents.metadata import Metadata, MetadataValue, checked_metadata
from edge_rag.errors import InvalidRequest


def write_metadata(metadata: Mapping[str, object]) -> dict[str, metadata_pb2.MetadataValue]:
    """Returns metadata as messages, by key.

    Args:
        metadata: Texts, numbers, truth values, dates and lists of texts by key.

    Raises:
        ClientError: INVALID_ARGUMENT, names the key that no server takes.
    """
    try:
        return {key: write_value(value) for key, value in checked_metadata(metadata).items()}
    except InvalidRequest as error:
        raise ClientError(CallStatus.INVALID_ARGUMENT, str(error)) from error


def write_value(value: MetadataValue) -> metadata_pb2.MetadataValue:
    """Returns a value as a message."""
    match value:
        case bool():
            return metadata_pb2.MetadataValue(flag=value)
        case str():
            return metadata_pb2.MetadataValue(text=value)
        case tuple():
            return metadata_pb2.MetadataValue(tags=metadata_pb2.MetadataValue.Tags(texts=value))
        case date():
            moment = Timestamp()
            moment.FromDatetime(value)
            return metadata_pb2.MetadataValue(date=moment)
        case _:
            return metadata_pb2.MetadataValue(number=value)


def read_metadata(messages: Mapping[str, metadata_pb2.MetadataValue]) -> Metadata:
    """Reads metadata by key; values of types that this client does not know are left out."""
    values = {key: read_value(message) for key, message in messages.items()}
    return {key: value for key, value in values.items() if value is not None}


def read_value(message: metadata_pb2.MetadataValue) -> MetadataValue | None:
    """Reads a value; None for one of a type that this client does not know."""
    match message.WhichOneof("value"):
        case "text":
            return message.text
        case "number":
            return message.number
        case "flag":
            return message.flag
        case "date":
            return _moment(message.date)
        case "tags":
            return tuple(message.tags.texts)
        case _:
            return None


def _moment(message: Timestamp) -> datetime:
    return message.ToDatetime(tzinfo=UTC)
