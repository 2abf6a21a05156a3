"""What operators asked for, from protobuf to values."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

from edge_rag.api.v1 import admin_pb2, rag_pb2
from edge_rag.client.failures import unreadable_reply
from edge_rag.client.values import UsageReport
from edge_rag.core.decision import AuditEntry, Decision, DecisionKind
from edge_rag.core.ids import RequestId
from edge_rag.core.measures import ClientUsage, Latency, Measure
from edge_rag.core.placement import Placement, Precision, Provider, Stage
from edge_rag.core.query import Priority
from edge_rag.core.status import (
    DaemonState,
    DaemonStatus,
    EngineSnapshot,
    IndexInUse,
    IndexKind,
    ModelInUse,
    StageSnapshot,
)

_STATES = {
    admin_pb2.DAEMON_STATE_STARTING: DaemonState.STARTING,
    admin_pb2.DAEMON_STATE_SERVING: DaemonState.SERVING,
    admin_pb2.DAEMON_STATE_DRAINING: DaemonState.DRAINING,
}
_MEASURES = {
    admin_pb2.MEASURE_QUEUE: Measure.QUEUE,
    admin_pb2.MEASURE_FIRST_TOKEN: Measure.FIRST_TOKEN,
    admin_pb2.MEASURE_PER_TOKEN: Measure.PER_TOKEN,
    admin_pb2.MEASURE_TOKEN_GAP: Measure.TOKEN_GAP,
    admin_pb2.MEASURE_COMPLETION: Measure.COMPLETION,
}
_KINDS = {
    admin_pb2.DECISION_KIND_QUEUED: DecisionKind.QUEUED,
    admin_pb2.DECISION_KIND_REFUSED: DecisionKind.REFUSED,
    admin_pb2.DECISION_KIND_ADMITTED: DecisionKind.ADMITTED,
    admin_pb2.DECISION_KIND_DEFERRED: DecisionKind.DEFERRED,
    admin_pb2.DECISION_KIND_PREEMPTED: DecisionKind.PREEMPTED,
    admin_pb2.DECISION_KIND_RESUMED: DecisionKind.RESUMED,
    admin_pb2.DECISION_KIND_FINISHED: DecisionKind.FINISHED,
    admin_pb2.DECISION_KIND_CANCELLED: DecisionKind.CANCELLED,
    admin_pb2.DECISION_KIND_EXPIRED: DecisionKind.EXPIRED,
    admin_pb2.DECISION_KIND_FAILED: DecisionKind.FAILED,
    admin_pb2.DECISION_KIND_SLOTS_CHANGED: DecisionKind.SLOTS_CHANGED,
    admin_pb2.DECISION_KIND_STAGE_DONE: DecisionKind.STAGE_DONE,
}
_INDEX_KINDS = {
    admin_pb2.INDEX_KIND_EXACT: IndexKind.EXACT,
    admin_pb2.INDEX_KIND_SEGMENT: IndexKind.SEGMENT,
    admin_pb2.INDEX_KIND_MILVUS: IndexKind.MILVUS,
}
_STAGES = {stage.value: stage for stage in Stage}
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
_PRIORITIES = {
    rag_pb2.PRIORITY_INTERACTIVE: Priority.INTERACTIVE,
    rag_pb2.PRIORITY_NORMAL: Priority.NORMAL,
    rag_pb2.PRIORITY_BATCH: Priority.BATCH,
}


def model_in_use(message: admin_pb2.Model) -> ModelInUse:
    """Reads a model and the role it fills.

    Raises:
        ClientError: INTERNAL, its role, or what it runs on, is unknown.
    """
    placement = message.placement
    stage, wanted, used = (
        _STAGES.get(message.role),
        _PROVIDERS.get(placement.wanted),
        _PROVIDERS.get(placement.used),
    )
    precision = _PRECISIONS.get(placement.precision)
    if stage is None or wanted is None or used is None or precision is None:
        raise unreadable_reply(f"unknown role, provider or precision of the model {message.name!r}")
    return ModelInUse(message.name, message.detail, Placement(stage, wanted, used, placement.why, precision))


def index_in_use(message: admin_pb2.VectorIndex) -> IndexInUse:
    """Reads how a collection is searched.

    Raises:
        ClientError: INTERNAL, the kind is unknown.
    """
    kind = _INDEX_KINDS.get(message.kind)
    if kind is None:
        raise unreadable_reply(f"unknown kind of index {message.kind}")
    return IndexInUse(
        collection=message.collection,
        kind=kind,
        vectors=message.vectors if message.HasField("vectors") else None,
        fresh=message.fresh,
        size_bytes=message.size_bytes,
        recall=message.recall if message.HasField("recall") else None,
        built_at=message.built_at.ToDatetime(tzinfo=UTC) if message.HasField("built_at") else None,
        build_s=message.build_seconds if message.HasField("build_seconds") else None,
        pending=message.pending,
    )


def daemon_status(message: admin_pb2.GetStatusResponse) -> DaemonStatus:
    """Reads the response of ``GetStatus``.

    Raises:
        ClientError: INTERNAL, the state is unknown.
    """
    state = _STATES.get(message.state)
    if state is None:
        raise unreadable_reply(f"unknown daemon state {message.state}")
    engine = message.engine
    return DaemonStatus(
        version=message.version,
        state=state,
        started_at=message.started_at.ToDatetime(tzinfo=UTC),
        address=message.address,
        data_directory=Path(message.data_directory),
        profile=message.profile,
        resident_bytes=message.resident_bytes,
        models=tuple(model_in_use(model) for model in message.models),
        stages=tuple(
            StageSnapshot(s.name, s.waiting, s.capacity, s.running, s.completed, s.refused) for s in message.stages
        ),
        engine=EngineSnapshot(
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
        collections={c.name: c.documents for c in message.collections},
        indexes=tuple(index_in_use(index) for index in message.indexes),
        latencies=tuple(
            Latency(_MEASURES[m.measure], m.samples, m.p50_seconds, m.p95_seconds, m.p99_seconds)
            for m in message.latencies
            if m.measure in _MEASURES
        ),
    )


def audit_entry(message: admin_pb2.Decision) -> AuditEntry:
    """Reads a decision.

    Raises:
        ClientError: INTERNAL, its kind is unknown.
    """
    kind = _KINDS.get(message.kind)
    if kind is None:
        raise unreadable_reply(f"unknown kind of decision {message.kind}")
    decision = Decision(
        kind=kind,
        request_id=RequestId(message.request_id) if message.request_id else None,
        client=message.client,
        priority=_PRIORITIES.get(message.priority),
        reason=message.reason,
        numbers=dict(message.numbers),
        at_s=message.monotonic_seconds,
        in_favour_of=RequestId(message.in_favour_of) if message.in_favour_of else None,
    )
    return AuditEntry(message.number, message.at.ToDatetime(tzinfo=UTC), decision)


def usage_report(message: admin_pb2.GetUsageResponse) -> UsageReport:
    """Reads the response of ``GetUsage``."""
    clients = [_client_usage(client.client, client) for client in message.clients]
    if message.HasField("others"):
        clients.append(_client_usage(None, message.others))
    return UsageReport(message.since.ToDatetime(tzinfo=UTC), tuple(clients))


def _client_usage(client: str | None, message: admin_pb2.ClientUsage) -> ClientUsage:
    return ClientUsage(
        client=client,
        requests=message.requests,
        refused=message.refused,
        prompt_tokens=message.prompt_tokens,
        cached_prompt_tokens=message.cached_prompt_tokens,
        generated_tokens=message.generated_tokens,
        slot_s=message.slot_seconds,
    )
