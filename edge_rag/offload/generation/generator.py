"""Implements the pipeline's ``Generator`` over the local generator and remotes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.monitoring.status import RemoteInUse
from edge_rag.core.placement import OffloadMode, OffloadRule, OffloadUse
from edge_rag.errors import DeadlineExceeded, EdgeRagError, NotReady, Overloaded, RequestCancelled
from edge_rag.generator.quote_generator import AnswerHandle
from edge_rag.offload.generation.context import OffloadContext
from edge_rag.offload.generation.hedged_request import HedgedRequest
from edge_rag.offload.generation.redaction import Redactor
from edge_rag.offload.generation.routing import RoutingInputs, choose
from edge_rag.offload.generation.timeouts import Timeouts
from edge_rag.offload.ports import Listener, LocalGenerator, Remote, UsageSink
from edge_rag.offload.remotes.circuit_breaker import CircuitBreaker
from edge_rag.offload.remotes.remote_state import RemoteState
from edge_rag.offload.routing import documents_key

_CHARACTERS_PER_TOKEN: Final = 4
_RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class OffloadLimits:
    """The operator's choices."""

    mode: OffloadMode
    timeouts: Timeouts = field(default_factory=Timeouts)
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    queue: int = 256


class HedgedHandle:
    """A request that was admitted; see ``pipeline.ports.GenerationHandle``."""

    def __init__(self, context: OffloadContext, hedged: HedgedRequest) -> None:
        self._loop = context.loop
        self._hedged = hedged

    def cancel(self, error: EdgeRagError | None = None) -> None:
        reason = error or RequestCancelled("cancelled by the caller")
        self._loop.post(lambda: self._hedged.fail(reason))

    def pause(self) -> None:
        """Suspends generation until ``resume``."""
        self._loop.post(self._hedged.pause)

    def resume(self) -> None:
        self._loop.post(self._hedged.resume)


class OffloadingGenerator:
    """Generates answers locally or on remotes. All methods may be called from any thread.

    Args:
        local: This box's generator; its owner starts it before and closes it after this one.
        redactor: Redacts requests of collections that leave only redacted.
        clock: Monotonic seconds; deadlines refer to it.
    """

    def __init__(
        self,
        local: LocalGenerator,
        remotes: Sequence[Remote],
        limits: OffloadLimits,
        redactor: Redactor,
        usage: UsageSink,
        constrained: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._local = local
        self._limits = limits
        self._constrained = constrained
        self._states = {remote.name: RemoteState(remote, limits.breaker) for remote in remotes}
        self.context = OffloadContext(local, self._states, limits.timeouts, redactor, usage, clock)
        self._clock = clock
        generating = any(OffloadUse.GENERATE in remote.uses for remote in remotes)
        self._enabled = generating and limits.mode is not OffloadMode.NEVER
        self._changed = threading.Condition()
        self._active: set[HedgedRequest] = set()
        self._waiting = 0
        self._closed = False
        self.context.start()

    def submit(self, request: GenerationRequest, listener: Listener) -> AnswerHandle | HedgedHandle:
        """Admits a request; see ``pipeline.ports.Generator``. A request that may not leave, or needs no model,
        goes straight to the local generator."""
        if not request.mode.needs_model or request.offload is OffloadRule.NEVER or not self._enabled:
            return self._local.submit(request, listener)
        now = self._clock()
        if request.deadline is not None and now >= request.deadline:
            raise DeadlineExceeded("generator")
        inputs = self._inputs(request, now)
        decision = choose(inputs)
        hedged = HedgedRequest(self.context, request, listener, decision, inputs.prompt_tokens, self._discard)
        with self._changed:
            if self._closed:
                raise NotReady("the generator is shutting down")
            if self._waiting >= self._limits.queue:
                raise Overloaded("generator", _RETRY_S)
            self._waiting += 1
            self._active.add(hedged)
        try:
            hedged.prepare()
        except BaseException:
            self._dequeue()
            self._discard(hedged)
            raise
        self.context.events.placed(request, inputs, decision, now)
        self.context.loop.post(lambda: self._start(hedged))
        return HedgedHandle(self.context, hedged)

    def remotes(self) -> tuple[RemoteInUse, ...]:
        return tuple(state.snapshot() for state in self._states.values())

    def close(self) -> None:
        """Refuses new requests and fails those in flight."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            active = tuple(self._active)
        error = NotReady("the generator is shutting down")
        for hedged in active:
            self.context.loop.post(lambda hedged=hedged: hedged.fail(error))  # type: ignore[misc]
        self.context.stop()

    def _inputs(self, request: GenerationRequest, now: float) -> RoutingInputs:
        # The prompt is not rendered yet, and must not be if nothing leaves: its length is estimated.
        characters = len(request.question) + sum(len(ranked.passage.text) for ranked in request.passages)
        prompt_tokens = max(1, characters // _CHARACTERS_PER_TOKEN)
        return RoutingInputs(
            mode=self._limits.mode,
            rule=request.offload,
            can_redact=self.context.can_redact,
            deadline_in_s=None if request.deadline is None else request.deadline - now,
            prompt_tokens=prompt_tokens,
            documents=documents_key(ranked.passage.document_id for ranked in request.passages),
            waiting=self._local.stats().waiting,
            constrained=self._constrained(),
            local=self.context.local_estimate(request, prompt_tokens),
            remotes=tuple(
                state.routing_inputs(
                    prompt_tokens, request.sampling.max_tokens, self.context.supports(state, request), now
                )
                for state in self._states.values()
            ),
        )

    def _start(self, hedged: HedgedRequest) -> None:
        self._dequeue()
        hedged.start()

    def _dequeue(self) -> None:
        with self._changed:
            self._waiting -= 1

    def _discard(self, hedged: HedgedRequest) -> None:
        with self._changed:
            self._active.discard(hedged)
