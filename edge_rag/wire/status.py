"""The daemon's report on itself, to protobuf."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.api.v1 import admin_pb2, rag_pb2
from edge_rag.core.ids import recognized
from edge_rag.core.monitoring.metrics import LatencyMetric
from edge_rag.core.monitoring.resources import MemoryPlanReport, Throttling
from edge_rag.core.monitoring.status import (
    DaemonState,
    DaemonStatus,
    EngineStats,
    IndexInUse,
    IndexKind,
    ModelInUse,
    PageMap,
    RemoteInUse,
    SlotUse,
)
from edge_rag.core.placement import Precision, Provider
from edge_rag.core.query import Priority

_STATES: Final = {
    DaemonState.STARTING: admin_pb2.DAEMON_STATE_STARTING,
    DaemonState.SERVING: admin_pb2.DAEMON_STATE_SERVING,
    DaemonState.DRAINING: admin_pb2.DAEMON_STATE_DRAINING,
}
_MEASURES: Final = {
    LatencyMetric.QUEUE: admin_pb2.MEASURE_QUEUE,
    LatencyMetric.FIRST_TOKEN: admin_pb2.MEASURE_FIRST_TOKEN,
    LatencyMetric.PER_TOKEN: admin_pb2.MEASURE_PER_TOKEN,
    LatencyMetric.TOKEN_GAP: admin_pb2.MEASURE_TOKEN_GAP,
    LatencyMetric.COMPLETION: admin_pb2.MEASURE_COMPLETION,
}
_INDEX_KINDS: Final = {
    IndexKind.EXACT: admin_pb2.INDEX_KIND_EXACT,
    IndexKind.SEGMENT: admin_pb2.INDEX_KIND_SEGMENT,
    IndexKind.MILVUS: admin_pb2.INDEX_KIND_MILVUS,
}
_PROVIDERS: Final = {
    Provider.CPU: admin_pb2.EXECUTION_PROVIDER_CPU,
    Provider.CUDA: admin_pb2.EXECUTION_PROVIDER_CUDA,
    Provider.TENSORRT: admin_pb2.EXECUTION_PROVIDER_TENSORRT,
    Provider.QNN: admin_pb2.EXECUTION_PROVIDER_QNN,
    Provider.OPENVINO: admin_pb2.EXECUTION_PROVIDER_OPENVINO,
}
_PRECISIONS: Final = {
    Precision.MODEL: admin_pb2.PRECISION_MODEL,
    Precision.FP32: admin_pb2.PRECISION_FP32,
    Precision.FP16: admin_pb2.PRECISION_FP16,
    Precision.INT8: admin_pb2.PRECISION_INT8,
    Precision.A16W8: admin_pb2.PRECISION_A16W8,
}
_PRIORITIES: Final = {
    Priority.INTERACTIVE: rag_pb2.PRIORITY_INTERACTIVE,
    Priority.NORMAL: rag_pb2.PRIORITY_NORMAL,
    Priority.BATCH: rag_pb2.PRIORITY_BATCH,
}


def model_to_message(in_use: ModelInUse) -> admin_pb2.Model:
    """Returns a model and the role it fills."""
    placement = in_use.placement
    return admin_pb2.Model(
        role=in_use.role,
        name=in_use.name,
        detail=in_use.detail,
        placement=admin_pb2.Placement(
            wanted=_PROVIDERS[recognized(placement.wanted)],
            used=_PROVIDERS[recognized(placement.used)],
            reason=placement.reason,
            precision=_PRECISIONS[recognized(placement.precision)],
        ),
    )


def status_to_message(report: DaemonStatus) -> admin_pb2.GetStatusResponse:
    """Returns the daemon's report on itself."""
    return admin_pb2.GetStatusResponse(
        version=report.version,
        state=_STATES[recognized(report.state)],
        started_at=_timestamp(report.started_at),
        data_directory=str(report.data_directory),
        profile=report.profile,
        models=[model_to_message(each) for each in report.models],
        stages=[
            admin_pb2.Stage(
                name=stage.name,
                waiting=stage.waiting,
                capacity=stage.capacity,
                running=stage.running,
                completed=stage.completed,
                refused=stage.refused,
                busy=stage.busy,
            )
            for stage in report.stages
        ],
        engine=_engine(report.engine),
        collections=[
            admin_pb2.CollectionSize(name=name, documents=count) for name, count in sorted(report.collections.items())
        ],
        indexes=[index_to_message(each) for each in report.indexes],
        resident_bytes=report.resident_bytes,
        address=report.address,
        latencies=[
            admin_pb2.Latency(
                measure=_MEASURES[latency.measure],
                samples=latency.samples,
                p50_seconds=latency.p50_s,
                p95_seconds=latency.p95_s,
                p99_seconds=latency.p99_s,
            )
            for latency in report.latencies
        ],
        devices=[admin_pb2.Device(name=each.name, busy=each.busy, stages=each.stages) for each in report.devices],
        remotes=[_remote(each) for each in report.remotes],
        temperatures=[admin_pb2.Temperature(zone=each.zone, celsius=each.celsius) for each in report.temperatures],
        throttling=_throttling(report.throttling),
        memory=_memory(report.memory),
        pressure=admin_pb2.MemoryPressure(
            headroom_bytes=report.pressure.headroom_bytes,
            waiting=report.pressure.waiting,
            shed=[ballast.value for ballast in report.pressure.shed],
        ),
    )


def index_to_message(index: IndexInUse) -> admin_pb2.VectorIndex:
    """Returns how a collection is searched."""
    return admin_pb2.VectorIndex(
        collection=index.collection,
        kind=_INDEX_KINDS[recognized(index.kind)],
        vectors=index.vectors,
        unindexed=index.unindexed,
        size_bytes=index.size_bytes,
        recall=index.recall,
        built_at=None if index.built_at is None else _timestamp(index.built_at),
        build_seconds=index.build_s,
        pending=index.pending,
    )


def _memory(memory: MemoryPlanReport) -> admin_pb2.PlannedMemory:
    return admin_pb2.PlannedMemory(
        budget_bytes=memory.budget_bytes,
        items=[admin_pb2.MemoryItem(name=each.name, bytes=each.bytes, detail=each.detail) for each in memory.items],
        shrink_steps=memory.shrink_steps,
    )


def _throttling(throttling: Throttling) -> admin_pb2.Throttling:
    return admin_pb2.Throttling(
        share=throttling.share,
        causes=[cause.value for cause in throttling.causes],
        slowdowns=throttling.slowdowns,
        watts=throttling.watts,
        joules_per_token=throttling.joules_per_token,
        joules=throttling.joules,
    )


def _engine(engine: EngineStats) -> admin_pb2.Engine:
    message = admin_pb2.Engine(
        generated_per_second=engine.generated_per_s,
        computed_per_second=engine.computed_per_s,
        sequences=[_slot(sequence) for sequence in engine.sequences],
        page_map=_page_map(engine.page_map),
        **_same_named(engine, admin_pb2.Engine),
    )
    if engine.disk is not None:
        message.disk.CopyFrom(admin_pb2.DiskTier(**_same_named(engine.disk, admin_pb2.DiskTier)))
    return message


def _same_named(value: object, message: type[Message]) -> dict[str, Any]:
    """Returns the numbers of a value that a message has a field of the same name for."""
    names = [field.name for field in message.DESCRIPTOR.fields if field.message_type is None]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _slot(sequence: SlotUse) -> admin_pb2.Slot:
    return admin_pb2.Slot(
        request_id=sequence.request_id,
        client=sequence.client,
        priority=_PRIORITIES[sequence.priority],
        age_seconds=sequence.age_s,
        prompt_tokens=sequence.prompt_tokens,
        cached_tokens=sequence.cached_tokens,
        computed_tokens=sequence.computed_tokens,
        generated_tokens=sequence.generated_tokens,
        max_tokens=sequence.max_tokens,
        pages=sequence.pages,
        preemptions=sequence.preemptions,
    )


def _page_map(pages: PageMap) -> admin_pb2.PageMap:
    return admin_pb2.PageMap(cell_pages=pages.cell_pages, held=pages.held, shared=pages.shared, cached=pages.cached)


def _timestamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def _remote(remote: RemoteInUse) -> admin_pb2.Remote:
    return admin_pb2.Remote(
        name=remote.name,
        kind=remote.kind,
        address=remote.address,
        breaker=remote.breaker,
        in_flight=remote.in_flight,
        answers=remote.answers,
        failures=remote.failures,
        sent_bytes=remote.sent_bytes,
        last_problem=remote.last_problem,
        answer_seconds=remote.answer_s,
        uses=remote.uses,
        embedded_texts=remote.embedded_texts,
        reranked=remote.reranked,
    )
