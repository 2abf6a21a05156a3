"""Changes that administrators make, in the audit log."""

from __future__ import annotations

from time import monotonic

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.service.call import Call


def record_change(call: Call, what: str) -> None:
    """Records a change that the caller has made.

    Args:
        what: The change, in a short sentence; with names, but without secrets or text of a document.
    """
    event = AuditEvent(AuditEventKind.CHANGED, call.request_id, call.identity.name, None, what, {}, monotonic())
    call.backend.audit.record(event)
