"""Trails of decisions in tests: keeping them, and telling legal ones from others."""

from __future__ import annotations

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


class Trail:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.decisions: list[AuditEvent] = []

    def record(self, decision: AuditEvent) -> None:
        self.decisions.append(decision)

    def of(self, request_id: str) -> list[AuditEvent]:
        return [decision for decision in self.decisions if decision.request_id == request_id]


def assert_legal(kinds: Iterable[AuditEventKind], ended: bool) -> None:
    """Checks what was decided about one request, in order.

    Args:
        kinds: Kinds of decisions; an engine's begin with QUEUED and end with one ending, a scheduler's have neither.
        ended: Whether the request is over.
    """
    letters = "".join(LETTERS[kind] for kind in kinds)
    form = "QW*(A(OW*R)*(OW*)?)?E" if ended else "W*(A(OW*R)*(OW*)?)?"
    form = form.replace("W", "[DH]").replace("O", "[PH]")
    assert re.fullmatch(form, letters), letters
