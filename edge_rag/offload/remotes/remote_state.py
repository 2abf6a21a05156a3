"""The state of a remote: circuit breaker, latency models, load and counters."""

from __future__ import annotations

from edge_rag.core.monitoring.status import RemoteInUse
from edge_rag.core.placement import OffloadUse
from edge_rag.offload.ports import Remote, RemoteLoad
from edge_rag.offload.remotes.circuit_breaker import BreakerState, CircuitBreaker
from edge_rag.offload.remotes.latency_model import Estimate, LatencyModel
from edge_rag.offload.routing import AffinityCandidate, RemoteInputs

_ASSUMED_SLOTS = 8
"""Slots of a remote that does not report them."""


class RemoteState:
    """The known state of a remote. The event loop writes, any thread may read."""

    def __init__(self, remote: Remote, breaker: CircuitBreaker) -> None:
        self.remote = remote
        self.breaker = breaker
        self.latency = LatencyModel()
        self.in_flight = 0
        self.answers = 0
        self.failures = 0
        self.sent_bytes = 0
        self.embedded_texts = 0
        self.last_problem = ""
        self._slots: int | None = None
        self._foreign = 0  # requests of other clients there

    def update_load(self, load: RemoteLoad) -> None:
        self._slots = load.slots
        self._foreign = max(0, load.running + load.waiting - (self.in_flight - 1))

    def routing_inputs(self, prompt_tokens: int, max_tokens: int, supported: bool, now: float) -> RemoteInputs:
        slots = self._slots or _ASSUMED_SLOTS
        speed = None if not self.latency.service_s else slots / self.latency.service_s
        spare = None if self._slots is None else self._slots - self.in_flight - self._foreign
        candidate = AffinityCandidate(self.remote.name, speed, self.in_flight, spare)
        estimate = self.estimate(prompt_tokens, max_tokens)
        return RemoteInputs(candidate, estimate, self.breaker.allows(now), supported)

    def estimate(self, prompt_tokens: int, max_tokens: int) -> Estimate:
        ahead = self.in_flight + self._foreign
        return self.latency.estimate(prompt_tokens, max_tokens, ahead, self._slots or _ASSUMED_SLOTS)

    def snapshot(self) -> RemoteInUse:
        """Returns its state for the status report."""
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
            answer_s=self.latency.service_s,
            uses=tuple(use.value for use in OffloadUse if use in self.remote.uses),
            embedded_texts=self.embedded_texts,
        )

    def set_breaker(self, breaker: CircuitBreaker) -> BreakerState | None:
        before, self.breaker = self.breaker.state, breaker
        return None if before is breaker.state else breaker.state
