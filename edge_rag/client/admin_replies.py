"""What operators asked for, from protobuf to values."""

from __future__ import annotations

from datetime import UTC

from edge_rag.api.v1 import admin_pb2, rag_pb2
from edge_rag.client.recognizing import read_word
from edge_rag.client.values import UsageReport
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEntry, AuditEvent, AuditEventKind
from edge_rag.core.monitoring.metrics import ClientUsage
from edge_rag.core.query import Priority

_KINDS = {
    admin_pb2.AUDIT_EVENT_KIND_QUEUED: AuditEventKind.QUEUED,
    admin_pb2.AUDIT_EVENT_KIND_REFUSED: AuditEventKind.REFUSED,
    admin_pb2.AUDIT_EVENT_KIND_ADMITTED: AuditEventKind.ADMITTED,
    admin_pb2.AUDIT_EVENT_KIND_DEFERRED: AuditEventKind.DEFERRED,
    admin_pb2.AUDIT_EVENT_KIND_PREEMPTED: AuditEventKind.PREEMPTED,
    admin_pb2.AUDIT_EVENT_KIND_RESUMED: AuditEventKind.RESUMED,
    admin_pb2.AUDIT_EVENT_KIND_FINISHED: AuditEventKind.FINISHED,
    admin_pb2.AUDIT_EVENT_KIND_CANCELLED: AuditEventKind.CANCELLED,
    admin_pb2.AUDIT_EVENT_KIND_EXPIRED: AuditEventKind.EXPIRED,
    admin_pb2.AUDIT_EVENT_KIND_FAILED: AuditEventKind.FAILED,
    admin_pb2.AUDIT_EVENT_KIND_SLOTS_CHANGED: AuditEventKind.SLOTS_CHANGED,
    admin_pb2.AUDIT_EVENT_KIND_STAGE_DONE: AuditEventKind.STAGE_DONE,
    admin_pb2.AUDIT_EVENT_KIND_PLACED: AuditEventKind.PLACED,
    admin_pb2.AUDIT_EVENT_KIND_SENT: AuditEventKind.SENT,
    admin_pb2.AUDIT_EVENT_KIND_HEDGED: AuditEventKind.HEDGED,
    admin_pb2.AUDIT_EVENT_KIND_TAKEN_OVER: AuditEventKind.TAKEN_OVER,
    admin_pb2.AUDIT_EVENT_KIND_BREAKER: AuditEventKind.BREAKER,
    admin_pb2.AUDIT_EVENT_KIND_THROTTLED: AuditEventKind.THROTTLED,
    admin_pb2.AUDIT_EVENT_KIND_PAUSED: AuditEventKind.PAUSED,
    admin_pb2.AUDIT_EVENT_KIND_SHED: AuditEventKind.SHED,
    admin_pb2.AUDIT_EVENT_KIND_PREFETCHED: AuditEventKind.PREFETCHED,
}
_PRIORITIES = {
    rag_pb2.PRIORITY_INTERACTIVE: Priority.INTERACTIVE,
    rag_pb2.PRIORITY_NORMAL: Priority.NORMAL,
    rag_pb2.PRIORITY_BATCH: Priority.BATCH,
}


def audit_entry(message: admin_pb2.AuditEvent) -> AuditEntry:
    """Reads a decision."""
    decision = AuditEvent(
        kind=read_word(_KINDS, message.kind),
        request_id=RequestId(message.request_id) if message.request_id else None,
        client=message.client,
        priority=_PRIORITIES.get(message.priority),
        reason=message.reason,
        numbers=dict(message.numbers),
        at_s=message.monotonic_seconds,
        preempted_for=RequestId(message.preempted_for) if message.preempted_for else None,
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
