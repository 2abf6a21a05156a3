"""Filters from values to protobuf."""

from __future__ import annotations

from edge_rag.api.v1 import metadata_pb2
from edge_rag.client.failures import CallStatus, ClientError
from edge_rag.client.metadata_messages import write_value
from edge_rag.core.documents.filters import (
    DEEPEST,
    AllOf,
    AnyOf,
    BuiltinField,
    Comparator,
    Comparison,
    Filter,
    FilterField,
    MetadataField,
    Negated,
    OneOf,
    Prefix,
    Present,
)

_BUILTIN = {
    BuiltinField.NAME: metadata_pb2.BUILTIN_FIELD_NAME,
    BuiltinField.MEDIA_TYPE: metadata_pb2.BUILTIN_FIELD_MEDIA_TYPE,
    BuiltinField.PAGE: metadata_pb2.BUILTIN_FIELD_PAGE,
    BuiltinField.INGESTED_AT: metadata_pb2.BUILTIN_FIELD_INGESTED_AT,
}
_COMPARATORS = {
    Comparator.EQUAL: metadata_pb2.COMPARATOR_EQUAL,
    Comparator.LESS: metadata_pb2.COMPARATOR_LESS,
    Comparator.LESS_OR_EQUAL: metadata_pb2.COMPARATOR_LESS_OR_EQUAL,
    Comparator.GREATER: metadata_pb2.COMPARATOR_GREATER,
    Comparator.GREATER_OR_EQUAL: metadata_pb2.COMPARATOR_GREATER_OR_EQUAL,
}


def filter_message(wanted: Filter | None, depth: int = 1) -> metadata_pb2.Filter | None:
    """Returns a filter as a message, None for none.

    Args:
        wanted: The filter.
        depth: How deep it lies in another one, which counts.

    Raises:
        ClientError: INVALID_ARGUMENT, it is deeper than any server takes.
    """
    if wanted is None:
        return None
    if depth > DEEPEST:
        raise ClientError(CallStatus.INVALID_ARGUMENT, f"filter: lies deeper than {DEEPEST} filters")
    match wanted:
        case AllOf(filters):
            return metadata_pb2.Filter(all_of=_several(filters, depth))
        case AnyOf(filters):
            return metadata_pb2.Filter(any_of=_several(filters, depth))
        case Negated(negated):
            return metadata_pb2.Filter(negated=filter_message(negated, depth + 1))
        case Comparison(field, comparator, value):
            comparison = metadata_pb2.Filter.Comparison(
                field=_field(field), comparator=_COMPARATORS[comparator], value=write_value(value)
            )
            return metadata_pb2.Filter(comparison=comparison)
        case OneOf(field, values):
            membership = metadata_pb2.Filter.Membership(field=_field(field), values=[write_value(v) for v in values])
            return metadata_pb2.Filter(one_of=membership)
        case Prefix(field, prefix):
            return metadata_pb2.Filter(prefix=metadata_pb2.Filter.Prefix(field=_field(field), prefix=prefix))
        case Present(field):
            return metadata_pb2.Filter(present=_field(field))


def _several(filters: tuple[Filter, ...], depth: int) -> metadata_pb2.Filter.Filters:
    messages = (filter_message(each, depth + 1) for each in filters)
    return metadata_pb2.Filter.Filters(filters=[message for message in messages if message is not None])


def _field(field: FilterField) -> metadata_pb2.FilterField:
    match field:
        case BuiltinField():
            return metadata_pb2.FilterField(builtin=_BUILTIN[field])
        case MetadataField(key):
            return metadata_pb2.FilterField(metadata=key)
