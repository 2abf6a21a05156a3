from collections.abc import Mapping

from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.query import Priority


def audit_event(
    kind: AuditEventKind = AuditEventKind.QUEUED,
    request_id: str | None = "r-1",
    reason: str = "waits for a slot",
    numbers: Mapping[str, float] | None = None,
    at_s: float = 100.0,
    preempted_for: str | None = None,
    client: str = "ipv4:127.0.0.1",
) -> AuditEvent:
    return AuditEvent(
        kind=kind,
        request_id=None if request_id is None else RequestId(request_id),
        client=client if request_id is not None else "",
        priority=Priority.INTERACTIVE if request_id is not None else None,
        reason=reason,
        numbers=numbers or {"waiting": 1.0},
        at_s=at_s,
        preempted_for=None if preempted_for is None else RequestId(preempted_for),
    )
