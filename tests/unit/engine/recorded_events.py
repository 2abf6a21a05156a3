"""Audit events in tests: keeping them, and checking that their order is legal."""

import re
from collections.abc import Iterable

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind

LETTERS = {
    AuditEventKind.QUEUED: "Q",
    AuditEventKind.ADMITTED: "A",
    AuditEventKind.DEFERRED: "D",
    AuditEventKind.PREEMPTED: "P",
    AuditEventKind.PAUSED: "H",
    AuditEventKind.RESUMED: "R",
    AuditEventKind.FINISHED: "E",
    AuditEventKind.CANCELLED: "E",
    AuditEventKind.EXPIRED: "E",
    AuditEventKind.FAILED: "E",
}


class RecordedEvents:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def of(self, request_id: str) -> list[AuditEvent]:
        return [event for event in self.events if event.request_id == request_id]


def assert_legal(kinds: Iterable[AuditEventKind], ended: bool) -> None:
    """Checks what was decided about one request, in order."""
    letters = "".join(LETTERS[kind] for kind in kinds)
    form = "QW*(A(OW*R)*(OW*)?)?E" if ended else "W*(A(OW*R)*(OW*)?)?"
    form = form.replace("W", "[DH]").replace("O", "[PH]")
    assert re.fullmatch(form, letters), letters
