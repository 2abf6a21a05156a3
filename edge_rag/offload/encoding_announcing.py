"""Decisions about where to embed and rerank, put into words and numbers for the trail."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from edge_rag.core.asker import NOBODY, Asker
from edge_rag.core.monitoring.event import Decision, DecisionKind
from edge_rag.offload.encoding.routing import EncodingFacts, Work, numbers
from edge_rag.offload.generation.routing import Choice, Place
from edge_rag.offload.ports import DecisionSink

_DONE = {Work.PASSAGES: "passages embedded", Work.QUESTIONS: "question embedded", Work.RANKS: "passages ranked"}
_PLACES = {Place.LOCAL: "here", Place.REMOTE: "on another machine", Place.BOTH: "on both sides"}


class EncodingAnnouncer:
    """Makes decisions of what is encoded elsewhere and hands them on.

    Args:
        sink: Where they go.
    """

    def __init__(self, sink: DecisionSink) -> None:
        self._sink = sink

    def placed(self, asker: Asker, facts: EncodingFacts, choice: Choice, now: float) -> None:
        """It was decided where texts are encoded."""
        reason = f"{_DONE[facts.work]} {_PLACES[choice.place]}: {choice.reason}"
        self._say(DecisionKind.PLACED, asker, reason, numbers(facts), now)

    def sent(self, asker: Asker, remote: str, work: Work, sealed: bytes, texts: int, now: float) -> None:
        """Something was sent to a remote."""
        reason = f"sent to {remote} for {work.value}, as it is, SHA-256 {hashlib.sha256(sealed).hexdigest()}"
        self._say(DecisionKind.SENT, asker, reason, {"bytes": len(sealed), "texts": texts}, now)

    def hedged(self, asker: Asker, work: Work, waited_s: float, now: float) -> None:
        """It is done here as well."""
        reason = f"{_DONE[work]} here as well: the other machine takes longer than it mostly does"
        self._say(DecisionKind.HEDGED, asker, reason, {"waited_s": waited_s}, now)

    def taken_over(self, asker: Asker, work: Work, remote: str, problem: str, texts: int, now: float) -> None:
        """It is done here."""
        reason = f"{_DONE[work]} here instead of {remote}: {problem}"
        self._say(DecisionKind.TAKEN_OVER, asker, reason, {"texts": texts}, now)

    def unfit(self, remote: str, work: Work, problem: str, now: float) -> None:
        """A machine is not asked for such work, whatever its breaker says."""
        self._say(DecisionKind.BREAKER, NOBODY, f"{remote} is not asked for {work.value}: {problem}", {}, now)

    def _say(self, kind: DecisionKind, asker: Asker, reason: str, given: Mapping[str, float], now: float) -> None:
        self._sink.record(Decision(kind, asker.request_id, asker.client, asker.priority, reason, given, now))
