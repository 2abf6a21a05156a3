"""Audit events of offload: where answers are generated and texts are encoded, what was sent, and what failed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.placement import OffloadRule
from edge_rag.core.ports import AuditSink
from edge_rag.offload.encoding.routing import EncoderRoutingInputs
from edge_rag.offload.encoding.routing import numbers as encoding_numbers
from edge_rag.offload.generation.routing import RoutingInputs, numbers
from edge_rag.offload.remotes.circuit_breaker import BreakerState
from edge_rag.offload.routing import Place, RoutingDecision

_PLACES = {Place.LOCAL: "locally", Place.REMOTE: "on a remote", Place.BOTH: "locally and on a remote"}
_BREAKERS = {
    BreakerState.OPEN: "gets no requests: its circuit breaker is open",
    BreakerState.HALF_OPEN: "gets one trial request: its circuit breaker is half open",
    BreakerState.CLOSED: "gets requests again: its circuit breaker is closed",
}


class OffloadEventRecorder:
    """Records decisions about answers."""

    def __init__(self, audit: AuditSink) -> None:
        self._audit = audit

    def placed(self, request: GenerationRequest, inputs: RoutingInputs, decision: RoutingDecision, now: float) -> None:
        reason = f"generating {_PLACES[decision.place]}: {decision.reason}"
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

    def breaker(self, remote: str, state: BreakerState, values: Mapping[str, float], now: float) -> None:
        reason = f"{remote} {_BREAKERS[state]}"
        self._audit.record(AuditEvent(AuditEventKind.BREAKER, None, "", None, reason, values, now))

    def _record(
        self, kind: AuditEventKind, request: GenerationRequest, reason: str, values: Mapping[str, float], now: float
    ) -> None:
        self._audit.record(AuditEvent(kind, request.request_id, request.client, request.priority, reason, values, now))


class EncoderEventRecorder:
    """Records decisions about embedding the passages of documents."""

    def __init__(self, audit: AuditSink) -> None:
        self._audit = audit

    def placed(self, inputs: EncoderRoutingInputs, decision: RoutingDecision, now: float) -> None:
        reason = f"embedding passages {_PLACES[decision.place]}: {decision.reason}"
        self._record(AuditEventKind.PLACED, reason, encoding_numbers(inputs), now)

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
