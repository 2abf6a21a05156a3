"""Decisions about where to compute, put into words and numbers for the trail."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.monitoring.event import Decision, DecisionKind
from edge_rag.core.offload import OffloadRule
from edge_rag.offload.generation.routing import Choice, Facts, Place, numbers
from edge_rag.offload.ports import DecisionSink
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

    def __init__(self, sink: DecisionSink) -> None:
        self._sink = sink

    def placed(self, request: GenerationRequest, facts: Facts, choice: Choice, now: float) -> None:
        """It was decided where an answer is written."""
        reason = f"written {_PLACES[choice.place]}: {choice.reason}"
        self._say(DecisionKind.PLACED, request, reason, numbers(facts), now)

    def sent(self, request: GenerationRequest, remote: str, sealed: bytes, passages: int, now: float) -> None:
        """Something was sent to a remote."""
        told = "redacted" if request.offload is OffloadRule.REDACTED else "as it is"
        reason = f"sent to {remote}, {told}, SHA-256 {hashlib.sha256(sealed).hexdigest()}"
        self._say(DecisionKind.SENT, request, reason, {"bytes": len(sealed), "passages": passages}, now)

    def hedged(self, request: GenerationRequest, side: str, reason: str, waited_s: float, now: float) -> None:
        """The answer was begun on the other side as well."""
        self._say(DecisionKind.HEDGED, request, f"begun {side} as well: {reason}", {"waited_s": waited_s}, now)

    def taken_over(
        self, request: GenerationRequest, remote: str, problem: str, given: Mapping[str, float], now: float
    ) -> None:
        """The answer goes on here."""
        self._say(DecisionKind.TAKEN_OVER, request, f"goes on here instead of {remote}: {problem}", given, now)

    def breaker(self, remote: str, state: BreakerState, given: Mapping[str, float], now: float) -> None:
        """Whether a remote is asked has changed."""
        reason = f"{remote} {_BREAKERS[state]}"
        self._sink.record(Decision(DecisionKind.BREAKER, None, "", None, reason, given, now))

    def _say(
        self, kind: DecisionKind, request: GenerationRequest, reason: str, given: Mapping[str, float], now: float
    ) -> None:
        self._sink.record(Decision(kind, request.request_id, request.client, request.priority, reason, given, now))
