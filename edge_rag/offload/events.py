"""Decisions about where to compute, put into words and numbers for the trail.

Decisions about where to embed and rerank, put into words and numbers for the trail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.placement import OffloadRule
from edge_rag.core.ports import AuditSink
from edge_rag.core.query import NO_CONTEXT, RequestContext
from edge_rag.offload.encoding.routing import EncodingFacts, Work
from edge_rag.offload.encoding.routing import numbers as encoding_numbers
from edge_rag.offload.generation.routing import Choice, Facts, Place, numbers
from edge_rag.offload.remotes.circuit_breaker import BreakerState

_PLACES = {Place.LOCAL: "here", Place.REMOTE: "on another machine", Place.BOTH: "on both sides"}
_BREAKERS = {
    BreakerState.OPEN: "is left alone",
    BreakerState.HALF_OPEN: "is tried with one request",
    BreakerState.CLOSED: "is asked again",
}


class OffloadAnnouncer:
    """Makes decisions of what is offloaded and hands them on.

    Args:
        sink: Where they go.
    """

    def __init__(self, sink: AuditSink) -> None:
        self._sink = sink

    def placed(self, request: GenerationRequest, facts: Facts, choice: Choice, now: float) -> None:
        """It was decided where an answer is written."""
        reason = f"written {_PLACES[choice.place]}: {choice.reason}"
        self._say(AuditEventKind.PLACED, request, reason, numbers(facts), now)

    def sent(self, request: GenerationRequest, remote: str, sealed: bytes, passages: int, now: float) -> None:
        """Something was sent to a remote."""
        told = "redacted" if request.offload is OffloadRule.REDACTED else "as it is"
        reason = f"sent to {remote}, {told}, SHA-256 {hashlib.sha256(sealed).hexdigest()}"
        self._say(AuditEventKind.SENT, request, reason, {"bytes": len(sealed), "passages": passages}, now)

    def hedged(self, request: GenerationRequest, side: str, reason: str, waited_s: float, now: float) -> None:
        """The answer was begun on the other side as well."""
        self._say(AuditEventKind.HEDGED, request, f"begun {side} as well: {reason}", {"waited_s": waited_s}, now)

    def taken_over(
        self, request: GenerationRequest, remote: str, problem: str, given: Mapping[str, float], now: float
    ) -> None:
        """The answer goes on here."""
        self._say(AuditEventKind.TAKEN_OVER, request, f"goes on here instead of {remote}: {problem}", given, now)

    def breaker(self, remote: str, state: BreakerState, given: Mapping[str, float], now: float) -> None:
        """Whether a remote is asked has changed."""
        reason = f"{remote} {_BREAKERS[state]}"
        self._sink.record(AuditEvent(AuditEventKind.BREAKER, None, "", None, reason, given, now))

    def _say(
        self, kind: AuditEventKind, request: GenerationRequest, reason: str, given: Mapping[str, float], now: float
    ) -> None:
        self._sink.record(AuditEvent(kind, request.request_id, request.client, request.priority, reason, given, now))


_DONE = {Work.PASSAGES: "passages embedded", Work.QUESTIONS: "question embedded", Work.RANKS: "passages ranked"}


class EncodingAnnouncer:
    """Makes decisions of what is encoded elsewhere and hands them on.

    Args:
        sink: Where they go.
    """

    def __init__(self, sink: AuditSink) -> None:
        self._sink = sink

    def placed(self, context: RequestContext, facts: EncodingFacts, choice: Choice, now: float) -> None:
        """It was decided where texts are encoded."""
        reason = f"{_DONE[facts.work]} {_PLACES[choice.place]}: {choice.reason}"
        self._say(AuditEventKind.PLACED, context, reason, encoding_numbers(facts), now)

    def sent(self, context: RequestContext, remote: str, work: Work, sealed: bytes, texts: int, now: float) -> None:
        """Something was sent to a remote."""
        reason = f"sent to {remote} for {work.value}, as it is, SHA-256 {hashlib.sha256(sealed).hexdigest()}"
        self._say(AuditEventKind.SENT, context, reason, {"bytes": len(sealed), "texts": texts}, now)

    def hedged(self, context: RequestContext, work: Work, waited_s: float, now: float) -> None:
        """It is done here as well."""
        reason = f"{_DONE[work]} here as well: the other machine takes longer than it mostly does"
        self._say(AuditEventKind.HEDGED, context, reason, {"waited_s": waited_s}, now)

    def taken_over(
        self, context: RequestContext, work: Work, remote: str, problem: str, texts: int, now: float
    ) -> None:
        """It is done here."""
        reason = f"{_DONE[work]} here instead of {remote}: {problem}"
        self._say(AuditEventKind.TAKEN_OVER, context, reason, {"texts": texts}, now)

    def unfit(self, remote: str, work: Work, problem: str, now: float) -> None:
        """A machine is not asked for such work, whatever its breaker says."""
        self._say(AuditEventKind.BREAKER, NO_CONTEXT, f"{remote} is not asked for {work.value}: {problem}", {}, now)

    def _say(
        self, kind: AuditEventKind, context: RequestContext, reason: str, given: Mapping[str, float], now: float
    ) -> None:
        self._sink.record(AuditEvent(kind, context.request_id, context.client, context.priority, reason, given, now))
