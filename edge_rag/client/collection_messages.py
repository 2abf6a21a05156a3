"""Collections between protobuf and values."""

from __future__ import annotations

from collections.abc import Collection as Names
from datetime import UTC
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask

from edge_rag.api.v1 import collections_pb2
from edge_rag.client.metadata_messages import read_value, write_value
from edge_rag.client.requests import sendable
from edge_rag.core.documents.collection import (
    CollectionInfo,
    CollectionSettings,
    FusionWeights,
    RecencyBoost,
    ValueBoost,
)
from edge_rag.core.documents.filters import FilterValue
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import KvReuse

_RULES = {
    OffloadRule.NEVER: collections_pb2.OFFLOAD_RULE_NEVER,
    OffloadRule.REDACTED: collections_pb2.OFFLOAD_RULE_REDACTED,
    OffloadRule.ALLOWED: collections_pb2.OFFLOAD_RULE_ALLOWED,
}
_READ_RULES = {message: rule for rule, message in _RULES.items()}
_KV_REUSE: Final = {
    KvReuse.EXACT: collections_pb2.KV_REUSE_EXACT,
    KvReuse.PASSAGE: collections_pb2.KV_REUSE_PASSAGE,
}
_READ_KV_REUSE: Final = {message: reuse for reuse, message in _KV_REUSE.items()}


def settings_message(settings: CollectionSettings) -> collections_pb2.CollectionSettings:
    """Returns settings as a message.

    Raises:
        ClientError: INVALID_ARGUMENT, the description could not be sent.
    """
    return collections_pb2.CollectionSettings(
        description=sendable("description", settings.description),
        fusion=collections_pb2.Fusion(
            dense=settings.fusion.dense, lexical=settings.fusion.lexical, k=settings.fusion.k
        ),
        chunk_tokens=settings.chunk_tokens,
        recency=None if settings.recency is None else _recency_message(settings.recency),
        boosts=[
            collections_pb2.ValueBoost(field=boost.key, value=write_value(boost.value), factor=boost.factor)
            for boost in settings.boosts
        ],
        merge_neighbours=settings.merge_neighbours,
        drop_duplicates=settings.drop_duplicates,
        offload=_RULES[settings.offload],
        kv_reuse=_KV_REUSE[settings.kv_reuse],
    )


def update_request(
    name: str, settings: CollectionSettings, fields: Names[str]
) -> collections_pb2.UpdateCollectionRequest:
    """Builds the request of ``Update`` that replaces the named fields."""
    return collections_pb2.UpdateCollectionRequest(
        name=sendable("name", name), settings=settings_message(settings), update_mask=FieldMask(paths=sorted(fields))
    )


def collection_info(message: collections_pb2.Collection) -> CollectionInfo:
    """Reads a collection.

    Of a daemon of another version, a rule that this client does not know reads as the most careful one, and a boost
    by a value of an unknown type is left out. Neither is changed by an update that does not name the field.
    """
    settings = message.settings
    recency = settings.recency
    return CollectionInfo(
        name=message.name,
        settings=CollectionSettings(
            description=settings.description,
            fusion=FusionWeights(settings.fusion.dense, settings.fusion.lexical, settings.fusion.k),
            chunk_tokens=settings.chunk_tokens if settings.HasField("chunk_tokens") else None,
            recency=RecencyBoost(recency.field or None, recency.half_life_days, recency.weight)
            if settings.HasField("recency")
            else None,
            boosts=tuple(
                ValueBoost(boost.field, value, boost.factor)
                for boost in settings.boosts
                if (value := _value(boost)) is not None
            ),
            merge_neighbours=settings.merge_neighbours,
            drop_duplicates=settings.drop_duplicates,
            offload=_READ_RULES.get(settings.offload, OffloadRule.NEVER),
            kv_reuse=_READ_KV_REUSE.get(settings.kv_reuse, KvReuse.EXACT),
        ),
        documents=message.documents,
        chunks=message.chunks,
        kept=message.kept,
        created_at=message.created_at.ToDatetime(tzinfo=UTC) if message.HasField("created_at") else None,
    )


def _value(boost: collections_pb2.ValueBoost) -> FilterValue | None:
    value = read_value(boost.value)
    return ", ".join(value) if isinstance(value, tuple) else value


def _recency_message(boost: RecencyBoost) -> collections_pb2.RecencyBoost:
    return collections_pb2.RecencyBoost(field=boost.key or "", half_life_days=boost.half_life_days, weight=boost.weight)
