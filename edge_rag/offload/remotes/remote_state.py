"""A remote as seen from here: its breaker, what was measured of it, and what it has of ours."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from edge_rag.core.monitoring.status import RemoteInUse
from edge_rag.core.placement import OffloadUse
from edge_rag.core.query import AnswerMode
from edge_rag.offload.generation.routing import Candidate, RemoteFacts
from edge_rag.offload.ports import Busy, Remote
from edge_rag.offload.remotes.circuit_breaker import Breaker, BreakerState
from edge_rag.offload.remotes.latency_model import Estimate, LatencyModel

_USUAL_SLOTS = 8
"""How many requests a remote that does not say is taken to run at once."""


class Kind(Enum):
    """Kinds of answers, which take different times."""

    QUOTED = "quoted"
    WRITTEN = "written"


def kind_of(mode: AnswerMode) -> Kind:
    """Returns the kind of answer that a mode makes."""
    return Kind.QUOTED if mode is AnswerMode.QUOTE else Kind.WRITTEN


class RemoteState:
    """Keeps what is known of a remote. The event loop writes, any thread reads.

    Args:
        remote: The remote.
        breaker: As it begins.
    """

    def __init__(self, remote: Remote, breaker: Breaker) -> None:
        self.remote = remote
        self.breaker = breaker
        self.meters = {kind: LatencyModel() for kind in Kind}
        self.in_flight = 0
        self.answers = 0
        self.failures = 0
        self.sent_bytes = 0
        self.embedded_texts = 0
        self.reranked = 0
        self.last_problem = ""
        self._slots: int | None = None
        self._others = 0

    def hear(self, busy: Busy) -> None:
        """Takes what the remote says of its load; what is not ours, others brought."""
        self._slots = busy.slots
        self._others = max(0, busy.running + busy.waiting - (self.in_flight - 1))

    def facts(self, kind: Kind, prompt_tokens: int, max_tokens: int, able: bool, now: float) -> RemoteFacts:
        """Returns what a decision is made on."""
        meter, slots = self.meters[kind], self._slots or _USUAL_SLOTS
        outlook = meter.outlook(prompt_tokens, max_tokens, self.in_flight + self._others, slots)
        speed = None if not meter.service_s else slots / meter.service_s
        spare = None if self._slots is None else self._slots - self.in_flight - self._others
        candidate = Candidate(self.remote.name, speed, self.in_flight, spare)
        return RemoteFacts(candidate, outlook, self.breaker.lets_through(now), able)

    def outlook(self, kind: Kind, prompt_tokens: int, max_tokens: int) -> Estimate:
        """Returns what is expected of one more request."""
        ahead = self.in_flight + self._others
        return self.meters[kind].outlook(prompt_tokens, max_tokens, ahead, self._slots or _USUAL_SLOTS)

    def snapshot(self) -> RemoteInUse:
        """Returns its state for people."""
        measured = [meter.service_s for meter in self.meters.values() if meter.service_s is not None]
        return RemoteInUse(
            name=self.remote.name,
            kind=self.remote.kind,
            address=self.remote.address,
            breaker=self.breaker.state.value,
            in_flight=self.in_flight,
            answers=self.answers,
            failures=self.failures,
            sent_bytes=self.sent_bytes,
            last_problem=self.last_problem,
            answer_s=max(measured, default=None),
            uses=tuple(use.value for use in OffloadUse if use in self.remote.uses),
            embedded_texts=self.embedded_texts,
            reranked=self.reranked,
        )

    def use(self, breaker: Breaker) -> BreakerState | None:
        """Puts the breaker after an event in place; returns its new state if that is another one."""
        before, self.breaker = self.breaker.state, breaker
        return None if before is breaker.state else breaker.state


def breaker_with(threshold: int, rest_s: float) -> Breaker:
    """Returns a closed breaker."""
    return replace(Breaker(), threshold=threshold, rest_s=rest_s)
