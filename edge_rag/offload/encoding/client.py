"""Calls remote encoders, and decides when to: deadlines, model identity, validation and latency of every call.

The models of a remote are checked before the first text is sent to it; a remote with other models gets no texts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

import structlog

from edge_rag.core.placement import OffloadMode, OffloadRule, OffloadUse
from edge_rag.core.query import RequestContext
from edge_rag.errors import EdgeRagError, RemoteFailed, RemoteIncompatible
from edge_rag.offload.context import LoopThread, RemoteRegistry
from edge_rag.offload.encoding.messages import OutboundCandidates, OutboundTexts, RemoteRanks, RemoteVectors
from edge_rag.offload.encoding.routing import (
    STAGE_SHARE,
    EncoderInputs,
    EncoderRoutingInputs,
    EncoderTimeouts,
    EncoderWork,
    choose_encoder,
    encoder_timeouts,
)
from edge_rag.offload.events import EncoderEventRecorder
from edge_rag.offload.generation.routing import AffinityCandidate, RoutingDecision
from edge_rag.offload.remotes.latency_model import EncoderLatency
from edge_rag.offload.remotes.remote_state import RemoteState

RECHECK_S: Final = 60.0
"""Time after which the models of an incompatible remote are checked again, seconds."""

_Out = TypeVar("_Out")
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EncoderModels:
    """Identities of the models that encode."""

    embedder: str
    dimension: int
    reranker: str

    def difference(self, other: EncoderModels, work: EncoderWork) -> str:
        """Returns how a remote's models differ for this work; empty if they do not."""
        if work is EncoderWork.RANKS:
            same, remote, local = self.reranker == other.reranker, other.reranker, self.reranker
        else:
            same = (self.embedder, self.dimension) == (other.embedder, other.dimension)
            remote, local = f"{other.embedder} ({other.dimension})", f"{self.embedder} ({self.dimension})"
        role = "reranker" if work is EncoderWork.RANKS else "embedder"
        return "" if same else f"its {role} is {remote[:200]}, the local one is {local}"


class EncodingRemote(Protocol):
    """A remote that encodes. Used from one event loop; calls raise RemoteFailed and nothing else."""

    def serialize_texts(self, outbound: OutboundTexts) -> bytes:
        """Returns the exact bytes to send."""
        ...

    def serialize_candidates(self, outbound: OutboundCandidates) -> bytes:
        """Returns the exact bytes to send."""
        ...

    def describe(self, timeout_s: float) -> Awaitable[EncoderModels]:
        """Returns the models it has."""
        ...

    def embed(self, body: bytes, timeout_s: float) -> Awaitable[RemoteVectors]:
        """Embeds texts."""
        ...

    def rerank(self, body: bytes, timeout_s: float) -> Awaitable[RemoteRanks]:
        """Ranks passages."""
        ...


class EncoderState:
    """What is known of a remote's encoders. The event loop writes, any thread may read."""

    def __init__(self, shared: RemoteState, remote: EncodingRemote) -> None:
        self.shared = shared
        self.remote = remote
        self.latencies = {work: EncoderLatency() for work in EncoderWork}
        self.models: EncoderModels | None = None
        self._incompatible_until: dict[EncoderWork, float] = {}

    @property
    def name(self) -> str:
        return self.shared.remote.name

    def supports(self, work: EncoderWork, now: float) -> bool:
        """Whether it is used for such work and is not known to have another model."""
        return work.use in self.shared.remote.uses and now >= self._incompatible_until.get(work, now)

    def mark_incompatible(self, work: EncoderWork, now: float) -> None:
        """Excludes it from such work until the next check of its models."""
        self.models = None
        self._incompatible_until[work] = now + RECHECK_S

    def mark_compatible(self, work: EncoderWork) -> None:
        self._incompatible_until.pop(work, None)

    def routing_inputs(self, work: EncoderWork, now: float) -> EncoderInputs:
        latency = self.latencies[work]
        candidate = AffinityCandidate(self.name, latency.texts_per_s, self.shared.in_flight)
        return EncoderInputs(candidate, latency, self.shared.breaker.allows(now), self.supports(work, now))


@dataclass(frozen=True, slots=True)
class EncoderResult(Generic[_Out]):
    """A validated result.

    Attributes:
        queue_s: Queueing time as reported, seconds.
        compute_s: Compute time as reported, seconds.
    """

    value: _Out
    queue_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class EncoderCall(Generic[_Out]):
    """A call to a remote encoder.

    Attributes:
        texts: Number of texts, at least 1.
        serialize: Returns the exact bytes to send; raises PermissionDenied if the collection's rule forbids it.
        execute: Sends them with a timeout in seconds and returns the validated result. Raises RemoteFailed.
    """

    work: EncoderWork
    context: RequestContext
    texts: int
    serialize: Callable[[EncodingRemote], bytes]
    execute: Callable[[EncodingRemote, bytes, float], Awaitable[EncoderResult[_Out]]]


class EncoderCaller:
    """Calls remote encoders."""

    def __init__(
        self, loop: LoopThread, remotes: RemoteRegistry, models: EncoderModels, events: EncoderEventRecorder
    ) -> None:
        self.loop = loop
        self.remotes = remotes
        self.models = models
        self.events = events

    async def call(self, state: EncoderState, call: EncoderCall[_Out], timeout_s: float) -> _Out:
        """Calls a remote encoder and returns the validated result; on the event loop."""
        state.shared.in_flight += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await self._execute(state, call, timeout_s)
        except TimeoutError as error:
            raise self._failed(state, RemoteFailed(f"the remote did not answer within {timeout_s:.3g} s")) from error
        except RemoteIncompatible as error:
            self._exclude(state, call.work, str(error))
            raise
        except RemoteFailed as error:
            raise self._failed(state, error) from error
        except EdgeRagError:
            raise
        except Exception as error:
            raise self._failed(state, RemoteFailed(f"the call failed: {error!r}")) from error
        finally:
            state.shared.in_flight -= 1

    async def check_models(self, state: EncoderState, timeout_s: float) -> None:
        """Checks the models of a remote before there is work for it, so that a difference is logged at start."""
        for work in EncoderWork:
            if work.use in state.shared.remote.uses:
                try:
                    async with asyncio.timeout(timeout_s):
                        await self._require_same_model(state, work, timeout_s)
                except RemoteIncompatible as error:
                    self._exclude(state, work, str(error))
                except (RemoteFailed, TimeoutError) as error:
                    state.shared.last_problem = str(error) or f"the remote did not answer within {timeout_s:.3g} s"
                    return

    def reject(self, state: EncoderState, work: EncoderWork) -> None:
        """Records that a remote returned vectors that the local model does not reproduce; on the event loop."""
        problem = "a vector of the remote differs from the vector of the same text computed locally"
        self._failed(state, RemoteFailed(problem))
        self._exclude(state, work, problem)

    async def _execute(self, state: EncoderState, call: EncoderCall[_Out], timeout_s: float) -> _Out:
        started = self.remotes.clock()
        if not state.shared.breaker.allows(started):
            raise RemoteFailed("its circuit breaker is open", busy=True)
        self.remotes.record_attempt(state.shared)
        await self._require_same_model(state, call.work, timeout_s)
        body = call.serialize(state.remote)
        sent_at = self.remotes.clock()
        self.events.sent(call.context, state.name, call.work, body, call.texts, sent_at)
        state.shared.sent_bytes += len(body)
        result = await call.execute(state.remote, body, max(0.001, timeout_s - (sent_at - started)))
        elapsed = self.remotes.clock() - sent_at
        latency = state.latencies[call.work]
        state.latencies[call.work] = latency.after(call.texts, elapsed, result.queue_s, result.compute_s)
        if call.work.use is OffloadUse.RERANK:
            state.shared.reranked += 1
        else:
            state.shared.embedded_texts += call.texts
        self.remotes.record_success(state.shared)
        return result.value

    async def _require_same_model(self, state: EncoderState, work: EncoderWork, timeout_s: float) -> None:
        if state.models is None:
            state.models = await state.remote.describe(timeout_s)
        problem = self.models.difference(state.models, work)
        if problem:
            raise RemoteIncompatible(problem)
        state.mark_compatible(work)

    def _exclude(self, state: EncoderState, work: EncoderWork, problem: str) -> None:
        now = self.remotes.clock()
        state.mark_incompatible(work, now)
        state.shared.last_problem = problem
        self.remotes.record_success(state.shared)  # it is reachable: only this work is excluded
        self.events.incompatible(state.name, work, problem, now)
        _log.error("a remote has other models and is not used", remote=state.name, work=work.value, problem=problem)

    def _failed(self, state: EncoderState, error: RemoteFailed) -> RemoteFailed:
        if not error.busy:
            state.models = None  # it may come back with other models
        self.remotes.record_failure(state.shared, str(error), error.busy)
        return error


@dataclass(frozen=True, slots=True)
class EncodeRequest:
    """What a routing decision needs of work to encode.

    Attributes:
        sendable: Whether it is not empty and within the limits of a request.
    """

    work: EncoderWork
    context: RequestContext
    rule: OffloadRule
    texts: int
    key: bytes
    sendable: bool = True


class EncoderOffload:
    """Decides which encoder does which work. Any thread.

    Args:
        timeout_s: Longest time of a call, seconds.
    """

    def __init__(
        self,
        caller: EncoderCaller,
        states: Mapping[str, EncoderState],
        mode: OffloadMode,
        timeout_s: float,
        constrained: Callable[[], bool],
    ) -> None:
        self.caller = caller
        self.states = states
        self._mode = mode
        self.timeout_s = timeout_s
        self._constrained = constrained
        self._local = {work: EncoderLatency() for work in EncoderWork}

    @property
    def clock(self) -> Callable[[], float]:
        """Monotonic seconds."""
        return self.caller.remotes.clock

    def check_models(self) -> None:
        for state in self.states.values():
            self.caller.loop.submit(self.caller.check_models(state, self.timeout_s))

    def place(
        self, request: EncodeRequest, ahead: int = 0, assigned: Mapping[str, int] | None = None
    ) -> RoutingDecision:
        """Decides where work is done, and records the decision if any remote could have been used.

        Args:
            ahead: Texts that the local encoder does before.
        """
        now = self.clock()
        inputs = self._inputs(request, ahead, assigned or Counter(), now)
        decision = choose_encoder(inputs)
        used = any(request.work.use in state.shared.remote.uses for state in self.states.values())
        if used and request.rule is not OffloadRule.NEVER:
            self.caller.events.placed(request.context, inputs, decision, now)
        return decision

    def available(self, state: EncoderState, work: EncoderWork) -> bool:
        now = self.clock()
        return state.supports(work, now) and state.shared.breaker.allows(now)

    def timeouts(self, state: EncoderState, request: EncodeRequest) -> EncoderTimeouts:
        within_s = _within_s(request, self.clock())
        latency, local = state.latencies[request.work], self._local[request.work]
        return encoder_timeouts(request.texts, within_s, self.timeout_s, latency, local)

    def expected_local_s(self, work: EncoderWork, texts: int) -> float:
        """Predicts the time of the local encoder, seconds; 0 if nothing was measured."""
        return self._local[work].expected_s(texts) or 0.0

    def measure_local(self, work: EncoderWork, texts: int, elapsed_s: float) -> None:
        if texts:
            self._local[work] = self._local[work].after(texts, elapsed_s)

    def _inputs(
        self, request: EncodeRequest, ahead: int, assigned: Mapping[str, int], now: float
    ) -> EncoderRoutingInputs:
        remotes = (state.routing_inputs(request.work, now) for state in self.states.values())
        return EncoderRoutingInputs(
            work=request.work,
            mode=self._mode,
            rule=request.rule,
            sendable=request.sendable,
            within_s=_within_s(request, now),
            texts=request.texts,
            ahead=ahead,
            timeout_s=self.timeout_s,
            key=request.key,
            constrained=self._constrained(),
            local=self._local[request.work],
            remotes=tuple(_with_assigned(each, assigned) for each in remotes),
        )


def _within_s(request: EncodeRequest, now: float) -> float | None:
    deadline = request.context.deadline
    return None if deadline is None else max(0.001, STAGE_SHARE * (deadline - now))


def _with_assigned(inputs: EncoderInputs, assigned: Mapping[str, int]) -> EncoderInputs:
    candidate = inputs.candidate
    in_flight = candidate.in_flight + assigned.get(candidate.name, 0)
    return replace(inputs, candidate=replace(candidate, in_flight=in_flight))
