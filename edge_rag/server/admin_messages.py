"""What operators ask for, to protobuf."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.api.v1 import admin_pb2, rag_pb2
from edge_rag.core.decision import AuditEntry, DecisionKind
from edge_rag.core.measures import ClientUsage, Measure
from edge_rag.core.placement import Precision, Provider
from edge_rag.core.query import Priority
from edge_rag.core.status import DaemonState, DaemonStatus, IndexInUse, IndexKind, ModelInUse

_STATES: Final = {
    DaemonState.STARTING: admin_pb2.DAEMON_STATE_STARTING,
    DaemonState.SERVING: admin_pb2.DAEMON_STATE_SERVING,
    DaemonState.DRAINING: admin_pb2.DAEMON_STATE_DRAINING,
}
_MEASURES: Final = {
    Measure.QUEUE: admin_pb2.MEASURE_QUEUE,
    Measure.FIRST_TOKEN: admin_pb2.MEASURE_FIRST_TOKEN,
    Measure.PER_TOKEN: admin_pb2.MEASURE_PER_TOKEN,
    Measure.TOKEN_GAP: admin_pb2.MEASURE_TOKEN_GAP,
    Measure.COMPLETION: admin_pb2.MEASURE_COMPLETION,
}
_KINDS: Final = {
    DecisionKind.QUEUED: admin_pb2.DECISION_KIND_QUEUED,
    DecisionKind.REFUSED: admin_pb2.DECISION_KIND_REFUSED,
    DecisionKind.ADMITTED: admin_pb2.DECISION_KIND_ADMITTED,
    DecisionKind.DEFERRED: admin_pb2.DECISION_KIND_DEFERRED,
    DecisionKind.PREEMPTED: admin_pb2.DECISION_KIND_PREEMPTED,
    DecisionKind.RESUMED: admin_pb2.DECISION_KIND_RESUMED,
    DecisionKind.FINISHED: admin_pb2.DECISION_KIND_FINISHED,
    DecisionKind.CANCELLED: admin_pb2.DECISION_KIND_CANCELLED,
    DecisionKind.EXPIRED: admin_pb2.DECISION_KIND_EXPIRED,
    DecisionKind.FAILED: admin_pb2.DECISION_KIND_FAILED,
    DecisionKind.SLOTS_CHANGED: admin_pb2.DECISION_KIND_SLOTS_CHANGED,
    DecisionKind.STAGE_DONE: admin_pb2.DECISION_KIND_STAGE_DONE,
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
    None: rag_pb2.PRIORITY_UNSPECIFIED,
    Priority.INTERACTIVE: rag_pb2.PRIORITY_INTERACTIVE,
    Priority.NORMAL: rag_pb2.PRIORITY_NORMAL,
    Priority.BATCH: rag_pb2.PRIORITY_BATCH,
}


def model(in_use: ModelInUse) -> admin_pb2.Model:
    """Returns a model and the role it fills."""
    placement = in_use.placement
    return admin_pb2.Model(
        role=in_use.role,
        name=in_use.name,
        detail=in_use.detail,
        placement=admin_pb2.Placement(
            wanted=_PROVIDERS[placement.wanted],
            used=_PROVIDERS[placement.used],
            why=placement.why,
            precision=_PRECISIONS[placement.precision],
        ),
    )


def status(report: DaemonStatus) -> admin_pb2.GetStatusResponse:
    """Returns the daemon's report on itself."""
    engine = report.engine
    return admin_pb2.GetStatusResponse(
        version=report.version,
        state=_STATES[report.state],
        started_at=_timestamp(report.started_at),
        data_directory=str(report.data_directory),
        profile=report.profile,
        models=[model(each) for each in report.models],
        stages=[
            admin_pb2.Stage(
                name=stage.name,
                waiting=stage.waiting,
                capacity=stage.capacity,
                running=stage.running,
                completed=stage.completed,
                refused=stage.refused,
            )
            for stage in report.stages
        ],
        engine=admin_pb2.Engine(
            slots_busy=engine.slots_busy,
            slots=engine.slots,
            pages_used=engine.pages_used,
            pages=engine.pages,
            page_tokens=engine.page_tokens,
            kv_bytes=engine.kv_bytes,
            steps=engine.steps,
            generated_tokens=engine.generated_tokens,
            prefill_tokens=engine.prefill_tokens,
            preemptions=engine.preemptions,
        ),
        collections=[
            admin_pb2.CollectionSize(name=name, documents=count) for name, count in sorted(report.collections.items())
        ],
        indexes=[vector_index(each) for each in report.indexes],
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
    )


def vector_index(index: IndexInUse) -> admin_pb2.VectorIndex:
    """Returns how a collection is searched."""
    return admin_pb2.VectorIndex(
        collection=index.collection,
        kind=_INDEX_KINDS[index.kind],
        vectors=index.vectors,
        fresh=index.fresh,
        size_bytes=index.size_bytes,
        recall=index.recall,
        built_at=None if index.built_at is None else _timestamp(index.built_at),
        build_seconds=index.build_s,
        pending=index.pending,
    )


def decision(entry: AuditEntry) -> admin_pb2.Decision:
    """Returns an entry of the audit trail."""
    made = entry.decision
    return admin_pb2.Decision(
        number=entry.number,
        at=_timestamp(entry.at),
        monotonic_seconds=made.at_s,
        kind=_KINDS[made.kind],
        request_id=made.request_id or "",
        client=made.client,
        priority=_PRIORITIES[made.priority],
        reason=made.reason,
        numbers=dict(made.numbers),
        in_favour_of=made.in_favour_of or "",
    )


def usage(since: datetime, clients: Sequence[ClientUsage]) -> admin_pb2.GetUsageResponse:
    """Returns what clients used."""
    others = next((client for client in clients if client.client is None), None)
    return admin_pb2.GetUsageResponse(
        since=_timestamp(since),
        clients=[_client_usage(client) for client in clients if client.client is not None],
        others=None if others is None else _client_usage(others),
    )


def _client_usage(usage: ClientUsage) -> admin_pb2.ClientUsage:
    return admin_pb2.ClientUsage(
        client=usage.client or "",
        requests=usage.requests,
        refused=usage.refused,
        prompt_tokens=usage.prompt_tokens,
        cached_prompt_tokens=usage.cached_prompt_tokens,
        generated_tokens=usage.generated_tokens,
        slot_seconds=usage.slot_s,
    )


def _timestamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
