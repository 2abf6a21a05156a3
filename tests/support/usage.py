"""Audit events and usage, recorded for a test."""

from __future__ import annotations

from collections import Counter

from edge_rag.core.answer import Usage
from edge_rag.core.ids import require_recognized
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.telemetry.usage import UsageMeter


class UsageRecorder:
    """Records audit events and usage."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self.ledger = UsageMeter()

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def record_remote(self, client: str, usage: Usage, alone: bool) -> None:
        self.ledger.record_remote(client, usage, alone)

    @property
    def kinds(self) -> Counter[AuditEventKind]:
        return Counter(require_recognized(event.kind) for event in self.events)
