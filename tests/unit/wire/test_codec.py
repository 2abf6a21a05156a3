"""Values survive the way to protobuf and back, and every field has its place there."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from edge_rag.api.v1 import access_pb2, admin_pb2, collections_pb2, documents_pb2, metadata_pb2, rag_pb2
from edge_rag.core.answer import Finished, FinishReason
from edge_rag.core.documents.collection import (
    BackendKind,
    CollectionInfo,
    CollectionSettings,
    FusionWeights,
    ValueBoost,
)
from edge_rag.core.documents.document import IngestStatus
from edge_rag.core.documents.filters import BuiltinField, Comparator
from edge_rag.core.documents.jobs import IngestPhase, JobDocumentState, JobState
from edge_rag.core.identity import Role
from edge_rag.core.ids import Unrecognized
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.monitoring.metrics import LatencyMetric
from edge_rag.core.monitoring.status import DaemonState, DaemonStatus, EngineStats, IndexKind
from edge_rag.core.placement import ModelStage, OffloadRule, Placement, Precision, Provider
from edge_rag.core.query import AnswerMode, KvReuse, Priority
from edge_rag.wire.answers import finished_to_message
from edge_rag.wire.codec import Codec, EnumCodec, UnknownValue
from edge_rag.wire.collections import collection_from_message, collection_to_message
from edge_rag.wire.status import status_from_message, status_to_message

ENUMS: tuple[tuple[type[Enum], Any], ...] = (
    (AnswerMode, rag_pb2.AnswerMode),
    (AuditEventKind, admin_pb2.AuditEventKind),
    (BackendKind, admin_pb2.IndexBackendKind),
    (BuiltinField, metadata_pb2.BuiltinField),
    (Comparator, metadata_pb2.Comparator),
    (DaemonState, admin_pb2.DaemonState),
    (FinishReason, rag_pb2.FinishReason),
    (IndexKind, admin_pb2.IndexKind),
    (IngestPhase, documents_pb2.IngestPhase),
    (IngestStatus, documents_pb2.IngestStatus),
    (JobDocumentState, documents_pb2.JobDocumentState),
    (JobState, documents_pb2.JobState),
    (KvReuse, collections_pb2.KvReuse),
    (LatencyMetric, admin_pb2.Measure),
    (OffloadRule, collections_pb2.OffloadRule),
    (Precision, admin_pb2.Precision),
    (Priority, rag_pb2.Priority),
    (Provider, admin_pb2.ExecutionProvider),
    (Role, access_pb2.Role),
)


@pytest.mark.parametrize(("kind", "wrapper"), ENUMS, ids=lambda each: getattr(each, "__name__", None))
def test_every_member_has_a_number_of_its_own_and_every_number_a_member(kind: type[Enum], wrapper: Any) -> None:
    codec = EnumCodec(kind, wrapper.DESCRIPTOR)
    numbers = {codec.to_number(member) for member in kind}
    assert numbers == set(wrapper.values()) - {0}
    assert [codec.from_number(codec.to_number(member)) for member in kind] == list(kind)
    assert codec.open_from_number(4000) == Unrecognized("unrecognized_4000")
    assert codec.open_from_number(0) == Unrecognized("unspecified")
    with pytest.raises(UnknownValue):
        codec.from_number(4000)


def sample(kind: Any, number: int = 7) -> Any:
    """Returns a value of a type in which no field has its default."""
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return sample(arguments[0], number)
    if origin in (tuple, frozenset):
        return origin([sample(arguments[0], number)])
    if origin in (dict, Mapping):
        return {sample(arguments[0], number): sample(arguments[1], number)}
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{field.name: sample(hints[field.name], at) for at, field in enumerate(fields(kind), start=1)})
    if issubclass(kind, Enum):
        return list(kind)[-1]
    if kind is datetime:
        return datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    if kind is bool:
        return True
    return kind(f"text {number}" if kind in (str, Path) else number)


def test_a_status_survives_the_wire() -> None:
    status: DaemonStatus = sample(DaemonStatus)
    assert status_from_message(status_to_message(status)) == status


def test_each_engine_statistic_has_a_field_of_its_name_in_the_proto_and_survives_the_wire() -> None:
    codec = Codec(EngineStats, admin_pb2.Engine)
    engine = sample(EngineStats)
    message = codec.to_message(engine)
    assert {described.name for described, _ in message.ListFields()} == set(admin_pb2.Engine.DESCRIPTOR.fields_by_name)
    assert len(message.ListFields()) == len(fields(EngineStats))
    assert codec.from_message(message) == engine


def test_a_collection_survives_the_wire() -> None:
    info = CollectionInfo(
        name="boiler",
        settings=CollectionSettings(
            description="Boiler house",
            fusion=FusionWeights(0.5, 2.0, 30.0),
            chunk_tokens=160,
            boosts=(ValueBoost("kind", "manual", 2.0), ValueBoost("year", 2020.0, 0.5)),
            merge_neighbours=True,
            drop_duplicates=False,
            offload=OffloadRule.REDACTED,
            kv_reuse=KvReuse.PASSAGE,
            title="Boiler house 2",
            labels={"site": "north", "owner": ""},
            synonyms="UPS = uninterruptible power supply\n",
        ),
        documents=3,
        chunks=40,
        kept=True,
        created_at=None,
        size_bytes=4711,
        ingested_at=datetime(2026, 1, 2, tzinfo=UTC),
    )
    assert collection_from_message(collection_to_message(info)) == info


def test_a_value_of_a_newer_version_cannot_be_sent_on() -> None:
    finished = sample(Finished)
    assert finished_to_message(finished).reason == rag_pb2.FINISH_REASON_NOT_FOUND
    placed = Placement(ModelStage.EMBEDDER, Unrecognized("unrecognized_9"), Provider.CPU, "", Precision.MODEL)
    with pytest.raises(ValueError, match="unrecognized_9"):
        Codec(Placement, admin_pb2.Placement, omit=("stage",)).to_message(placed)


def test_a_field_without_a_place_in_the_message_is_refused() -> None:
    @dataclass(frozen=True)
    class Wider:
        waiting: int
        colour: str

    with pytest.raises(TypeError, match=r"Stage has no colour for Wider\.colour"):
        Codec(Wider, admin_pb2.Stage).to_message(Wider(1, "red"))


def test_an_enum_member_without_a_number_is_refused() -> None:
    class Wider(Enum):
        READER = "reader"
        GUEST = "guest"

    with pytest.raises(TypeError, match="has no ROLE_GUEST"):
        EnumCodec(Wider, access_pb2.Role.DESCRIPTOR)
