"""The daemon's report on itself, from protobuf to values."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from edge_rag.api.v1 import admin_pb2, rag_pb2
from edge_rag.client.recognizing import read_word
from edge_rag.core.ids import RequestId, Unrecognized
from edge_rag.core.monitoring.metrics import Latency, LatencyMetric
from edge_rag.core.monitoring.resources import (
    MemoryItem,
    MemoryPlanReport,
    MemoryPressureState,
    ShedTarget,
    Temperature,
    ThrottleCause,
    Throttling,
)
from edge_rag.core.monitoring.status import (
    DaemonState,
    DaemonStatus,
    DeviceUse,
    DiskStats,
    EngineStats,
    IndexInUse,
    IndexKind,
    ModelInUse,
    PageMap,
    RemoteInUse,
    SlotUse,
    StageSnapshot,
)
from edge_rag.core.placement import ModelStage, Placement, Precision, Provider
from edge_rag.core.query import Priority

_STATES = {
    admin_pb2.DAEMON_STATE_STARTING: DaemonState.STARTING,
    admin_pb2.DAEMON_STATE_SERVING: DaemonState.SERVING,
    admin_pb2.DAEMON_STATE_DRAINING: DaemonState.DRAINING,
}
_MEASURES = {
    admin_pb2.MEASURE_QUEUE: LatencyMetric.QUEUE,
    admin_pb2.MEASURE_FIRST_TOKEN: LatencyMetric.FIRST_TOKEN,
    admin_pb2.MEASURE_PER_TOKEN: LatencyMetric.PER_TOKEN,
    admin_pb2.MEASURE_TOKEN_GAP: LatencyMetric.TOKEN_GAP,
    admin_pb2.MEASURE_COMPLETION: LatencyMetric.COMPLETION,
}
_INDEX_KINDS = {
    admin_pb2.INDEX_KIND_EXACT: IndexKind.EXACT,
    admin_pb2.INDEX_KIND_SEGMENT: IndexKind.SEGMENT,
    admin_pb2.INDEX_KIND_MILVUS: IndexKind.MILVUS,
}
_STAGES = {stage.value: stage for stage in ModelStage}
_PROVIDERS = {
    admin_pb2.EXECUTION_PROVIDER_CPU: Provider.CPU,
    admin_pb2.EXECUTION_PROVIDER_CUDA: Provider.CUDA,
    admin_pb2.EXECUTION_PROVIDER_TENSORRT: Provider.TENSORRT,
    admin_pb2.EXECUTION_PROVIDER_QNN: Provider.QNN,
    admin_pb2.EXECUTION_PROVIDER_OPENVINO: Provider.OPENVINO,
}
_PRECISIONS = {
    admin_pb2.PRECISION_MODEL: Precision.MODEL,
    admin_pb2.PRECISION_FP32: Precision.FP32,
    admin_pb2.PRECISION_FP16: Precision.FP16,
    admin_pb2.PRECISION_INT8: Precision.INT8,
    admin_pb2.PRECISION_A16W8: Precision.A16W8,
}
_BALLAST = {ballast.value: ballast for ballast in ShedTarget}
_CAUSES = {cause.value: cause for cause in ThrottleCause}
_PRIORITIES = {
    rag_pb2.PRIORITY_INTERACTIVE: Priority.INTERACTIVE,
    rag_pb2.PRIORITY_NORMAL: Priority.NORMAL,
    rag_pb2.PRIORITY_BATCH: Priority.BATCH,
}


def model_in_use(message: admin_pb2.Model) -> ModelInUse:
    """Reads a model and the role it fills."""
    placement = message.placement
    where = Placement(
        stage=_STAGES.get(message.role) or Unrecognized(message.role),
        wanted=read_word(_PROVIDERS, placement.wanted),
        used=read_word(_PROVIDERS, placement.used),
        reason=placement.reason,
        precision=read_word(_PRECISIONS, placement.precision),
    )
    return ModelInUse(message.name, message.detail, where)


def index_in_use(message: admin_pb2.VectorIndex) -> IndexInUse:
    """Reads how a collection is searched."""
    return IndexInUse(
        collection=message.collection,
        kind=read_word(_INDEX_KINDS, message.kind),
        vectors=message.vectors if message.HasField("vectors") else None,
        unindexed=message.unindexed,
        size_bytes=message.size_bytes,
        recall=message.recall if message.HasField("recall") else None,
        built_at=message.built_at.ToDatetime(tzinfo=UTC) if message.HasField("built_at") else None,
        build_s=message.build_seconds if message.HasField("build_seconds") else None,
        pending=message.pending,
    )


def daemon_status(message: admin_pb2.GetStatusResponse) -> DaemonStatus:
    """Reads the response of ``GetStatus``; measures, causes and ballast that this client does not know are left out."""
    return DaemonStatus(
        version=message.version,
        state=read_word(_STATES, message.state),
        started_at=message.started_at.ToDatetime(tzinfo=UTC),
        address=message.address,
        data_directory=Path(message.data_directory),
        profile=message.profile,
        resident_bytes=message.resident_bytes,
        models=tuple(model_in_use(model) for model in message.models),
        stages=tuple(
            StageSnapshot(s.name, s.waiting, s.capacity, s.running, s.completed, s.refused, s.busy)
            for s in message.stages
        ),
        engine=_engine(message.engine),
        collections={c.name: c.documents for c in message.collections},
        indexes=tuple(index_in_use(index) for index in message.indexes),
        latencies=tuple(
            Latency(_MEASURES[m.measure], m.samples, m.p50_seconds, m.p95_seconds, m.p99_seconds)
            for m in message.latencies
            if m.measure in _MEASURES
        ),
        devices=tuple(DeviceUse(each.name, each.busy, tuple(each.stages)) for each in message.devices),
        remotes=tuple(_remote(each) for each in message.remotes),
        temperatures=tuple(Temperature(each.zone, each.celsius) for each in message.temperatures),
        throttling=_throttling(message.throttling),
        memory=_memory(message.memory),
        pressure=_pressure(message.pressure),
    )


def _pressure(message: admin_pb2.MemoryPressure) -> MemoryPressureState:
    return MemoryPressureState(
        headroom_bytes=message.headroom_bytes if message.HasField("headroom_bytes") else None,
        waiting=message.waiting if message.HasField("waiting") else None,
        shed=tuple(_BALLAST[each] for each in message.shed if each in _BALLAST),
    )


def _memory(message: admin_pb2.PlannedMemory) -> MemoryPlanReport:
    items = tuple(MemoryItem(item.name, item.bytes, item.detail) for item in message.items)
    return MemoryPlanReport(message.budget_bytes, items, message.shrink_steps)


def _throttling(message: admin_pb2.Throttling) -> Throttling:
    return Throttling(
        share=message.share or 1.0,
        causes=tuple(_CAUSES[cause] for cause in message.causes if cause in _CAUSES),
        slowdowns=tuple(message.slowdowns),
        watts=message.watts if message.HasField("watts") else None,
        joules_per_token=message.joules_per_token if message.HasField("joules_per_token") else None,
        joules=message.joules if message.HasField("joules") else None,
    )


def _engine(engine: admin_pb2.Engine) -> EngineStats:
    pages = engine.page_map
    return EngineStats(
        generated_per_s=engine.generated_per_second,
        computed_per_s=engine.computed_per_second,
        sequences=tuple(_slot(slot) for slot in engine.sequences),
        page_map=PageMap(max(1, pages.cell_pages), tuple(pages.held), tuple(pages.shared), tuple(pages.cached)),
        disk=DiskStats(**_same_named(engine.disk, DiskStats)) if engine.HasField("disk") else None,
        **_same_named(engine, EngineStats),
    )


def _same_named(message: Message, value: type[DiskStats | EngineStats]) -> dict[str, Any]:
    """Returns the numbers of a message that a value has a field of the same name for."""
    names = {each.name for each in fields(value)}
    described = [field.name for field in message.DESCRIPTOR.fields if field.message_type is None]
    return {name: getattr(message, name) for name in described if name in names}


def _slot(slot: admin_pb2.Slot) -> SlotUse:
    return SlotUse(
        request_id=RequestId(slot.request_id),
        client=slot.client,
        priority=_PRIORITIES.get(slot.priority, Priority.NORMAL),
        age_s=slot.age_seconds,
        prompt_tokens=slot.prompt_tokens,
        cached_tokens=slot.cached_tokens,
        computed_tokens=slot.computed_tokens,
        generated_tokens=slot.generated_tokens,
        max_tokens=slot.max_tokens,
        pages=slot.pages,
        preemptions=slot.preemptions,
    )


def _remote(message: admin_pb2.Remote) -> RemoteInUse:
    return RemoteInUse(
        name=message.name,
        kind=message.kind,
        address=message.address,
        breaker=message.breaker,
        in_flight=message.in_flight,
        answers=message.answers,
        failures=message.failures,
        sent_bytes=message.sent_bytes,
        last_problem=message.last_problem,
        answer_s=message.answer_seconds if message.HasField("answer_seconds") else None,
        uses=tuple(message.uses),
        embedded_texts=message.embedded_texts,
        reranked=message.reranked,
    )
