"""Collections and their settings, to and from protobuf."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.field_mask_pb2 import FieldMask

from edge_rag.api.v1 import collections_pb2, metadata_pb2
from edge_rag.core.documents.checks import checked_settings
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
from edge_rag.errors import InvalidRequest
from edge_rag.wire.answers import MAX_RESPONSE_BYTES, size_of
from edge_rag.wire.codec import Codec, EnumCodec, Part, UnknownValue
from edge_rag.wire.metadata import parse_value, value_from_message, value_to_message
from edge_rag.wire.requests import sendable

_RULES: Final = EnumCodec(OffloadRule, collections_pb2.OffloadRule.DESCRIPTOR)
_KV_REUSE: Final = EnumCodec(KvReuse, collections_pb2.KvReuse.DESCRIPTOR)
_FIELDS: Final = tuple(collections_pb2.CollectionSettings.DESCRIPTOR.fields_by_name)


def collection_to_message(info: CollectionInfo) -> collections_pb2.Collection:
    return _COLLECTION.to_message(info)


def collections_to_messages(infos: Iterable[CollectionInfo]) -> list[collections_pb2.Collection]:
    """Returns collections as messages; descriptions, labels and synonyms that would make the response too large are
    left out."""
    sent: list[collections_pb2.Collection] = []
    left = MAX_RESPONSE_BYTES
    for info in infos:
        message = collection_to_message(info)
        left -= size_of(message)
        if left < 0:
            message.settings.ClearField("description")
            message.settings.ClearField("labels")
            message.settings.ClearField("synonyms")
        sent.append(message)
    return sent


def collection_from_message(message: collections_pb2.Collection) -> CollectionInfo:
    """Returns a collection.

    A rule that this version does not know is read as the most careful one, and a boost by a value of an unknown type is
    left out. An update that does not name the field changes neither.
    """
    return _COLLECTION.from_message(message)


def settings_to_message(settings: CollectionSettings) -> collections_pb2.CollectionSettings:
    sendable("description", settings.description)
    sendable("synonyms", settings.synonyms)
    return _SETTINGS.to_message(settings)


def update_to_message(
    name: str, settings: CollectionSettings, changed: Iterable[str]
) -> collections_pb2.UpdateCollectionRequest:
    return collections_pb2.UpdateCollectionRequest(
        name=sendable("name", name),
        settings=settings_to_message(settings),
        update_mask=FieldMask(paths=sorted(changed)),
    )


def parse_settings(message: collections_pb2.CollectionSettings) -> CollectionSettings:
    """Returns the legal settings that a message stands for."""
    default = CollectionSettings()
    given = CollectionSettings(
        description=message.description,
        fusion=_fusion(message.fusion),
        chunk_tokens=message.chunk_tokens if message.HasField("chunk_tokens") else None,
        recency=_recency(message.recency) if message.HasField("recency") else None,
        boosts=tuple(_boost(f"settings.boosts[{index}]", boost) for index, boost in enumerate(message.boosts)),
        merge_neighbours=message.merge_neighbours if message.HasField("merge_neighbours") else default.merge_neighbours,
        drop_duplicates=message.drop_duplicates if message.HasField("drop_duplicates") else default.drop_duplicates,
        offload=_offload(message.offload),
        kv_reuse=_kv_reuse(message.kv_reuse, default.kv_reuse),
        title=message.title,
        labels=dict(message.labels),
        synonyms=message.synonyms,
    )
    return checked_settings(given, key="field")


def parse_settings_update(request: collections_pb2.UpdateCollectionRequest) -> dict[str, Any]:
    """Returns the new values, by field of ``CollectionSettings``, that a request stands for."""
    settings = parse_settings(request.settings)
    paths = request.update_mask.paths or [field.name for field, _ in request.settings.ListFields()]
    for path in paths:
        if path not in _FIELDS:
            raise InvalidRequest("update_mask", f"{path!r} is not one of {', '.join(_FIELDS)}")
    return {path: getattr(settings, path) for path in paths}


def _fusion(message: collections_pb2.Fusion) -> FusionWeights:
    default = FusionWeights()
    return FusionWeights(
        dense=message.dense if message.HasField("dense") else default.dense,
        lexical=message.lexical if message.HasField("lexical") else default.lexical,
        k=message.k if message.HasField("k") else default.k,
    )


def _offload(message: collections_pb2.OffloadRule.ValueType) -> OffloadRule:
    rule = _RULES.get(message) if message else OffloadRule.NEVER
    if rule is None:
        raise InvalidRequest("settings.offload", f"{message} is not an offload rule")
    return rule


def _kv_reuse(message: collections_pb2.KvReuse.ValueType, default: KvReuse) -> KvReuse:
    reuse = _KV_REUSE.get(message) if message else default
    if reuse is None:
        raise InvalidRequest("settings.kv_reuse", f"{message} is not a known value")
    return reuse


def _recency(message: collections_pb2.RecencyBoost) -> RecencyBoost:
    weight = message.weight if message.HasField("weight") else 1.0
    return RecencyBoost(message.field or None, message.half_life_days, weight)


def _boost(field: str, message: collections_pb2.ValueBoost) -> ValueBoost:
    value = parse_value(f"{field}.value", message.value)
    if isinstance(value, tuple):
        raise InvalidRequest(f"{field}.value", "must be a single value")
    return ValueBoost(message.field, value, message.factor)


def _boost_value(message: metadata_pb2.MetadataValue) -> FilterValue:
    value = value_from_message(message)
    if value is None:
        raise UnknownValue("a value of an unknown type")
    return ", ".join(value) if isinstance(value, tuple) else value


Codec(RecencyBoost, collections_pb2.RecencyBoost, names={"key": "field"})
Codec(
    ValueBoost,
    collections_pb2.ValueBoost,
    names={"key": "field"},
    parts={"value": Part(value_to_message, _boost_value)},
)
_SETTINGS = Codec(
    CollectionSettings,
    collections_pb2.CollectionSettings,
    unknown={"offload": OffloadRule.NEVER, "kv_reuse": KvReuse.EXACT},
)
_COLLECTION = Codec(CollectionInfo, collections_pb2.Collection)
