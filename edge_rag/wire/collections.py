"""Collections between protobuf and core."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.api.v1 import collections_pb2
from edge_rag.core.documents.collection import (
    CollectionInfo,
    CollectionSettings,
    FusionWeights,
    RecencyBoost,
    ValueBoost,
)
from edge_rag.core.documents.filters import FilterValue
from edge_rag.core.documents.metadata import LONGEST_TEXT, checked_key, checked_number, checked_text
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import KvReuse
from edge_rag.errors import InvalidRequest
from edge_rag.wire.metadata import parse_value, value_to_message

MOST_BOOSTS: Final = 32
"""Most value boosts of a collection."""

_RULES: Final = {
    OffloadRule.NEVER: collections_pb2.OFFLOAD_RULE_NEVER,
    OffloadRule.REDACTED: collections_pb2.OFFLOAD_RULE_REDACTED,
    OffloadRule.ALLOWED: collections_pb2.OFFLOAD_RULE_ALLOWED,
}
_GIVEN_RULES: Final = {
    collections_pb2.OFFLOAD_RULE_UNSPECIFIED: OffloadRule.NEVER,
    **{message: rule for rule, message in _RULES.items()},
}
_KV_REUSE: Final = {
    KvReuse.EXACT: collections_pb2.KV_REUSE_EXACT,
    KvReuse.PASSAGE: collections_pb2.KV_REUSE_PASSAGE,
}
_FIELDS: Final = tuple(collections_pb2.CollectionSettings.DESCRIPTOR.fields_by_name)


def collection_to_message(info: CollectionInfo) -> collections_pb2.Collection:
    """Returns a collection as a message."""
    created_at = None
    if info.created_at is not None:
        created_at = Timestamp()
        created_at.FromDatetime(info.created_at)
    return collections_pb2.Collection(
        name=info.name,
        settings=_settings(info.settings),
        documents=info.documents,
        chunks=info.chunks,
        kept=info.kept,
        created_at=created_at,
    )


def parse_settings(given: collections_pb2.CollectionSettings) -> CollectionSettings:
    """Returns the legal settings that a message stands for.

    Raises:
        InvalidRequest: Names the first unusable field.
    """
    default = CollectionSettings()
    return CollectionSettings(
        description=_description(given.description),
        fusion=_fusion(given.fusion),
        chunk_tokens=_chunk_tokens(given.chunk_tokens) if given.HasField("chunk_tokens") else None,
        recency=_recency(given.recency) if given.HasField("recency") else None,
        boosts=_boosts(given),
        merge_neighbours=given.merge_neighbours if given.HasField("merge_neighbours") else default.merge_neighbours,
        drop_duplicates=given.drop_duplicates if given.HasField("drop_duplicates") else default.drop_duplicates,
        offload=_offload(given.offload),
        kv_reuse=_kv_reuse(given.kv_reuse, default.kv_reuse),
    )


def parse_settings_update(request: collections_pb2.UpdateCollectionRequest) -> dict[str, Any]:
    """Returns the new values, by field of ``CollectionSettings``, that a request stands for.

    Raises:
        InvalidRequest: Names the first unusable field, or a path of the mask that is none.
    """
    settings = parse_settings(request.settings)
    paths = request.update_mask.paths or [field.name for field, _ in request.settings.ListFields()]
    for path in paths:
        if path not in _FIELDS:
            raise InvalidRequest("update_mask", f"{path!r} is not one of {', '.join(_FIELDS)}")
    values = {
        "description": settings.description,
        "fusion": settings.fusion,
        "chunk_tokens": settings.chunk_tokens,
        "recency": settings.recency,
        "boosts": settings.boosts,
        "merge_neighbours": settings.merge_neighbours,
        "drop_duplicates": settings.drop_duplicates,
        "offload": settings.offload,
        "kv_reuse": settings.kv_reuse,
    }
    return {path: values[path] for path in paths}


def _settings(settings: CollectionSettings) -> collections_pb2.CollectionSettings:
    return collections_pb2.CollectionSettings(
        description=settings.description,
        fusion=collections_pb2.Fusion(
            dense=settings.fusion.dense, lexical=settings.fusion.lexical, k=settings.fusion.k
        ),
        chunk_tokens=settings.chunk_tokens,
        recency=None if settings.recency is None else _recency_message(settings.recency),
        boosts=[
            collections_pb2.ValueBoost(field=boost.key, value=value_to_message(boost.value), factor=boost.factor)
            for boost in settings.boosts
        ],
        merge_neighbours=settings.merge_neighbours,
        drop_duplicates=settings.drop_duplicates,
        offload=_RULES[settings.offload],
        kv_reuse=_KV_REUSE[settings.kv_reuse],
    )


def _description(text: str) -> str:
    text = text.strip()
    if len(text) > LONGEST_TEXT or "\x00" in text:
        raise InvalidRequest("settings.description", f"must be at most {LONGEST_TEXT:,} characters, without NUL")
    return text


def _fusion(given: collections_pb2.Fusion) -> FusionWeights:
    default, field = FusionWeights(), "settings.fusion"
    weights = FusionWeights(
        dense=_real(f"{field}.dense", given.dense if given.HasField("dense") else default.dense, 0, 1000),
        lexical=_real(f"{field}.lexical", given.lexical if given.HasField("lexical") else default.lexical, 0, 1000),
        k=_real(f"{field}.k", given.k if given.HasField("k") else default.k, 1, 10_000),
    )
    if weights.dense == 0 and weights.lexical == 0:
        raise InvalidRequest(field, "dense and lexical must not both be 0")
    return weights


def _chunk_tokens(given: int) -> int:
    if not 16 <= given <= 8192:
        raise InvalidRequest("settings.chunk_tokens", f"must be 16 to 8,192, is {given:,}")
    return given


def _offload(given: collections_pb2.OffloadRule.ValueType) -> OffloadRule:
    if given not in _GIVEN_RULES:
        raise InvalidRequest("settings.offload", f"{given} is not an offload rule")
    return _GIVEN_RULES[given]


def _kv_reuse(given: collections_pb2.KvReuse.ValueType, default: KvReuse) -> KvReuse:
    if given == collections_pb2.KV_REUSE_UNSPECIFIED:
        return default
    for reuse, number in _KV_REUSE.items():
        if number == given:
            return reuse
    raise InvalidRequest("settings.kv_reuse", f"{given} is not a known value")


def _recency(given: collections_pb2.RecencyBoost) -> RecencyBoost:
    field = "settings.recency"
    try:
        key = checked_key(given.field) if given.field else None
    except InvalidRequest as error:
        raise InvalidRequest(f"{field}.field", error.problem) from error
    half_life = _real(f"{field}.half_life_days", given.half_life_days, 0, 1_000_000, above=True)
    weight = _real(f"{field}.weight", given.weight if given.HasField("weight") else 1.0, 0, 100, above=True)
    return RecencyBoost(key, half_life, weight)


def _boosts(given: collections_pb2.CollectionSettings) -> tuple[ValueBoost, ...]:
    if len(given.boosts) > MOST_BOOSTS:
        raise InvalidRequest("settings.boosts", f"at most {MOST_BOOSTS}, has {len(given.boosts):,}")
    return tuple(_boost(f"settings.boosts[{index}]", boost) for index, boost in enumerate(given.boosts))


def _boost(field: str, given: collections_pb2.ValueBoost) -> ValueBoost:
    try:
        key = checked_key(given.field)
    except InvalidRequest as error:
        raise InvalidRequest(f"{field}.field", error.problem) from error
    value: FilterValue
    match parse_value(f"{field}.value", given.value):
        case tuple():
            raise InvalidRequest(f"{field}.value", "must be a single value")
        case str() as text:
            value = checked_text(f"{field}.value", text)
        case bool() as flag:
            value = flag
        case float() as number:
            value = checked_number(f"{field}.value", number)
        case moment:
            value = moment
    return ValueBoost(key, value, _real(f"{field}.factor", given.factor, 0.01, 100))


def _real(field: str, value: float, least: float, most: float, *, above: bool = False) -> float:
    if not least <= value <= most or (above and value == least):
        raise InvalidRequest(field, f"must be {'above ' if above else ''}{least:g} to {most:,g}, is {value:g}")
    return value


def _recency_message(boost: RecencyBoost) -> collections_pb2.RecencyBoost:
    return collections_pb2.RecencyBoost(field=boost.key or "", half_life_days=boost.half_life_days, weight=boost.weight)
