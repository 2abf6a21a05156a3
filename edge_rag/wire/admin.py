"""What operators ask for, to protobuf."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.api.v1 import admin_pb2, rag_pb2
from edge_rag.core.ids import recognized
from edge_rag.core.monitoring.event import AuditEntry, AuditEventKind
from edge_rag.core.monitoring.metrics import ClientUsage
from edge_rag.core.query import Priority

_KINDS: Final = {
    AuditEventKind.QUEUED: admin_pb2.AUDIT_EVENT_KIND_QUEUED,
    AuditEventKind.REFUSED: admin_pb2.AUDIT_EVENT_KIND_REFUSED,
    AuditEventKind.ADMITTED: admin_pb2.AUDIT_EVENT_KIND_ADMITTED,
    AuditEventKind.DEFERRED: admin_pb2.AUDIT_EVENT_KIND_DEFERRED,
    AuditEventKind.PREEMPTED: admin_pb2.AUDIT_EVENT_KIND_PREEMPTED,
    AuditEventKind.RESUMED: admin_pb2.AUDIT_EVENT_KIND_RESUMED,
    AuditEventKind.FINISHED: admin_pb2.AUDIT_EVENT_KIND_FINISHED,
    AuditEventKind.CANCELLED: admin_pb2.AUDIT_EVENT_KIND_CANCELLED,
    AuditEventKind.EXPIRED: admin_pb2.AUDIT_EVENT_KIND_EXPIRED,
    AuditEventKind.FAILED: admin_pb2.AUDIT_EVENT_KIND_FAILED,
    AuditEventKind.SLOTS_CHANGED: admin_pb2.AUDIT_EVENT_KIND_SLOTS_CHANGED,
    AuditEventKind.PREFETCHED: admin_pb2.AUDIT_EVENT_KIND_PREFETCHED,
    AuditEventKind.STAGE_DONE: admin_pb2.AUDIT_EVENT_KIND_STAGE_DONE,
    AuditEventKind.PLACED: admin_pb2.AUDIT_EVENT_KIND_PLACED,
    AuditEventKind.SENT: admin_pb2.AUDIT_EVENT_KIND_SENT,
    AuditEventKind.HEDGED: admin_pb2.AUDIT_EVENT_KIND_HEDGED,
    AuditEventKind.TAKEN_OVER: admin_pb2.AUDIT_EVENT_KIND_TAKEN_OVER,
    AuditEventKind.BREAKER: admin_pb2.AUDIT_EVENT_KIND_BREAKER,
    AuditEventKind.THROTTLED: admin_pb2.AUDIT_EVENT_KIND_THROTTLED,
    AuditEventKind.PAUSED: admin_pb2.AUDIT_EVENT_KIND_PAUSED,
    AuditEventKind.SHED: admin_pb2.AUDIT_EVENT_KIND_SHED,
}
_PRIORITIES: Final = {
    None: rag_pb2.PRIORITY_UNSPECIFIED,
    Priority.INTERACTIVE: rag_pb2.PRIORITY_INTERACTIVE,
    Priority.NORMAL: rag_pb2.PRIORITY_NORMAL,
    Priority.BATCH: rag_pb2.PRIORITY_BATCH,
}


def audit_entry_to_message(entry: AuditEntry) -> admin_pb2.AuditEvent:
    """Returns an entry of the audit trail."""
    made = entry.decision
    return admin_pb2.AuditEvent(
        number=entry.number,
        at=_timestamp(entry.at),
        monotonic_seconds=made.at_s,
        kind=_KINDS[recognized(made.kind)],
        request_id=made.request_id or "",
        client=made.client,
        priority=_PRIORITIES[made.priority],
        reason=made.reason,
        numbers=dict(made.numbers),
        preempted_for=made.preempted_for or "",
    )


def usage_to_message(since: datetime, clients: Sequence[ClientUsage]) -> admin_pb2.GetUsageResponse:
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
