"""Audit events of answers: where they are generated, what is sent, and failures."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.placement import OffloadRule
from edge_rag.core.ports import AuditSink
from edge_rag.offload.generation.routing import RoutingInputs, numbers
from edge_rag.offload.routing import RoutingDecision


class OffloadEventRecorder:
    """Records decisions about answers."""

    def __init__(self, audit: AuditSink) -> None:
        self._audit = audit

    def placed(self, request: GenerationRequest, inputs: RoutingInputs, decision: RoutingDecision, now: float) -> None:
        reason = f"generating {decision.place.text}: {decision.reason}"
        self._record(AuditEventKind.PLACED, request, reason, numbers(inputs), now)

    def sent(self, request: GenerationRequest, remote: str, body: bytes, passages: int, now: float) -> None:
        form = "redacted" if request.offload is OffloadRule.REDACTED else "unredacted"
        reason = f"sent to {remote}, {form}, SHA-256 {hashlib.sha256(body).hexdigest()}"
        self._record(AuditEventKind.SENT, request, reason, {"bytes": len(body), "passages": passages}, now)

    def hedged(self, request: GenerationRequest, side: str, reason: str, waited_s: float, now: float) -> None:
        """Records that a second generation was started; ``side`` is "locally" or "on a remote"."""
        self._record(AuditEventKind.HEDGED, request, f"also started {side}: {reason}", {"waited_s": waited_s}, now)

    def taken_over(
        self, request: GenerationRequest, remote: str, problem: str, values: Mapping[str, float], now: float
    ) -> None:
        self._record(AuditEventKind.TAKEN_OVER, request, f"continues locally; {remote}: {problem}", values, now)

    def _record(
        self, kind: AuditEventKind, request: GenerationRequest, reason: str, values: Mapping[str, float], now: float
    ) -> None:
        self._audit.record(AuditEvent(kind, request.request_id, request.client, request.priority, reason, values, now))
