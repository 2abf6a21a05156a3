"""Calls remote embedders, and decides when to: timeouts, model identity, validation and latency of every call.

The model of a remote is checked before the first text is sent to it; a remote with another model gets no texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.errors import EdgeRagError, RemoteFailed, RemoteIncompatible
from edge_rag.offload.context import LoopThread, RemoteRegistry
from edge_rag.offload.encoding.events import EncoderEventRecorder
from edge_rag.offload.encoding.messages import build_texts, checked_vectors
from edge_rag.offload.encoding.routing import EncoderInputs, EncoderRoutingInputs, choose_encoders
from edge_rag.offload.ports import EncoderModels
from edge_rag.offload.remotes.latency_model import EncoderLatency
from edge_rag.offload.remotes.remote_state import RemoteState
from edge_rag.offload.routing import RoutingDecision

if TYPE_CHECKING:
    from edge_rag.offload.remotes.edge_rag import EdgeRagEncoders

RECHECK_S: Final = 60.0
"""Time after which the model of an incompatible remote is checked again, seconds."""

_log = structlog.get_logger()


class EncoderState:
    """The known state of a remote's embedder. The event loop writes, any thread may read."""

    def __init__(self, shared: RemoteState, remote: EdgeRagEncoders) -> None:
        self.shared = shared
        self.remote = remote
        self.latency = EncoderLatency()
        self.models: EncoderModels | None = None
        self._incompatible_until: float | None = None

    @property
    def name(self) -> str:
        return self.shared.remote.name

    def is_compatible(self, now: float) -> bool:
        """Whether it is not known to have another model."""
        return self._incompatible_until is None or now >= self._incompatible_until

    def mark_incompatible(self, now: float) -> None:
        """Excludes it until the next check of its model."""
        self.models = None
        self._incompatible_until = now + RECHECK_S

    def mark_compatible(self) -> None:
        self._incompatible_until = None

    def routing_inputs(self, now: float) -> EncoderInputs:
        allowed = self.shared.breaker.allows(now)
        return EncoderInputs(self.name, self.shared.in_flight, self.latency, allowed, self.is_compatible(now))


class EncoderOffload:
    """Decides which embedders take part, and calls remote ones. Coroutines and ``reject`` run on the event loop, the
    other methods on any thread.

    Args:
        timeout_s: Longest time of a call, seconds.
    """

    def __init__(
        self,
        loop: LoopThread,
        remotes: RemoteRegistry,
        models: EncoderModels,
        events: EncoderEventRecorder,
        states: Mapping[str, EncoderState],
        mode: OffloadMode,
        timeout_s: float,
        constrained: Callable[[], bool],
    ) -> None:
        self.loop = loop
        self.remotes = remotes
        self.models = models
        self.events = events
        self.states = states
        self.clock = remotes.clock
        self.timeout_s = timeout_s
        self._mode = mode
        self._constrained = constrained
        self._local = EncoderLatency()

    def place(self, rule: OffloadRule, texts: int) -> RoutingDecision:
        """Decides where the passages of a document are embedded, and records it unless the rule forbids offload."""
        now = self.clock()
        inputs = EncoderRoutingInputs(
            mode=self._mode,
            rule=rule,
            texts=texts,
            timeout_s=self.timeout_s,
            constrained=self._constrained(),
            local=self._local,
            remotes=tuple(state.routing_inputs(now) for state in self.states.values()),
        )
        decision = choose_encoders(inputs)
        if rule is not OffloadRule.NEVER:
            self.events.placed(inputs, decision, now)
        return decision

    def available(self, state: EncoderState) -> bool:
        now = self.clock()
        return state.is_compatible(now) and state.shared.breaker.allows(now)

    def expected_local_s(self, texts: int) -> float:
        """Predicts the time of the local embedder, seconds; 0 if nothing was measured."""
        return self._local.expected_s(texts) or 0.0

    def measure_local(self, texts: int, elapsed_s: float) -> None:
        if texts:
            self._local = self._local.after(texts, elapsed_s)

    async def embed(
        self, state: EncoderState, texts: Sequence[str], rule: Callable[[], OffloadRule]
    ) -> NDArray[np.float32]:
        """Embeds texts on a remote: float32 [texts, dimension], validated.

        Args:
            rule: Returns the collection's present offload rule; read just before the texts are sent.
        """
        state.shared.in_flight += 1
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._embed(state, texts, rule)
        except TimeoutError as error:
            failure = RemoteFailed(f"the remote did not answer within {self.timeout_s:.3g} s")
            raise self._failed(state, failure) from error
        except RemoteIncompatible as error:
            self._exclude(state, str(error))
            raise
        except RemoteFailed as error:
            raise self._failed(state, error) from error
        except EdgeRagError:
            raise
        except Exception as error:
            raise self._failed(state, RemoteFailed(f"the call failed: {error!r}")) from error
        finally:
            state.shared.in_flight -= 1

    def check_models(self) -> None:
        """Checks the models of remotes before there is work for them, so that a difference is logged at start."""
        for state in self.states.values():
            self.loop.submit(self._check_model(state))

    def reject(self, state: EncoderState) -> None:
        """Records that a remote returned vectors that the local model does not reproduce."""
        problem = "a vector of the remote differs from the vector of the same text computed locally"
        self._failed(state, RemoteFailed(problem))
        self._exclude(state, problem)

    async def _embed(
        self, state: EncoderState, texts: Sequence[str], rule: Callable[[], OffloadRule]
    ) -> NDArray[np.float32]:
        started = self.clock()
        if not state.shared.breaker.allows(started):
            raise RemoteFailed("its circuit breaker is open", busy=True)
        self.remotes.record_attempt(state.shared)
        await self._require_same_model(state)
        body = state.remote.serialize_texts(build_texts(rule(), self.models.embedder, texts))
        sent_at = self.clock()
        self.events.sent(state.name, body, len(texts), sent_at)
        state.shared.sent_bytes += len(body)
        reply = await state.remote.embed(body, max(0.001, self.timeout_s - (sent_at - started)))
        vectors = checked_vectors(reply.data, len(texts), self.models.dimension)
        elapsed = self.clock() - sent_at
        state.latency = state.latency.after(len(texts), elapsed, reply.queue_s, reply.compute_s)
        state.shared.embedded_texts += len(texts)
        self.remotes.record_success(state.shared)
        return vectors

    async def _check_model(self, state: EncoderState) -> None:
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._require_same_model(state)
        except RemoteIncompatible as error:
            self._exclude(state, str(error))
        except (RemoteFailed, TimeoutError) as error:
            problem = f"the remote did not answer within {self.timeout_s:.3g} s"
            state.shared.last_problem = str(error) or problem

    async def _require_same_model(self, state: EncoderState) -> None:
        if state.models is None:
            state.models = await state.remote.describe(self.timeout_s)
        problem = self.models.difference(state.models)
        if problem:
            raise RemoteIncompatible(problem)
        state.mark_compatible()

    def _exclude(self, state: EncoderState, problem: str) -> None:
        now = self.clock()
        state.mark_incompatible(now)
        state.shared.last_problem = problem
        self.remotes.record_success(state.shared)  # it is reachable: only its embedder is not used
        self.events.incompatible(state.name, problem, now)
        _log.error("a remote has another embedder and is not used for it", remote=state.name, problem=problem)

    def _failed(self, state: EncoderState, error: RemoteFailed) -> RemoteFailed:
        if not error.busy:
            state.models = None  # it may come back with other models
        self.remotes.record_failure(state.shared, str(error), error.busy)
        return error
