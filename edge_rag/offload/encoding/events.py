"""Audit events of embedding: where passages are embedded, what is sent, and failures."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.ports import AuditSink
from edge_rag.offload.encoding.routing import EncoderRoutingInputs, numbers
from edge_rag.offload.routing import RoutingDecision


class EncoderEventRecorder:
    """Records decisions about embedding the passages of documents."""

    def __init__(self, audit: AuditSink) -> None:
        self._audit = audit

    def placed(self, inputs: EncoderRoutingInputs, decision: RoutingDecision, now: float) -> None:
        reason = f"embedding passages {decision.place.text}: {decision.reason}"
        self._record(AuditEventKind.PLACED, reason, numbers(inputs), now)

    def sent(self, remote: str, body: bytes, texts: int, now: float) -> None:
        reason = f"sent to {remote} for embedding passages, unredacted, SHA-256 {hashlib.sha256(body).hexdigest()}"
        self._record(AuditEventKind.SENT, reason, {"bytes": len(body), "texts": texts}, now)

    def taken_over(self, remote: str, problem: str, texts: int, now: float) -> None:
        reason = f"embedding passages locally; {remote}: {problem}"
        self._record(AuditEventKind.TAKEN_OVER, reason, {"texts": texts}, now)

    def incompatible(self, remote: str, problem: str, now: float) -> None:
        self._record(AuditEventKind.BREAKER, f"{remote} is not used for embedding passages: {problem}", {}, now)

    def _record(self, kind: AuditEventKind, reason: str, values: Mapping[str, float], now: float) -> None:
        self._audit.record(AuditEvent(kind, None, "", None, reason, values, now))
