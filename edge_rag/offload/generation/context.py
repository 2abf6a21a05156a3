"""What all offloaded answers share: the event loop, the remotes, and this box's generator."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Final

from edge_rag.core.generation import Generated, GenerationRequest
from edge_rag.core.placement import OffloadRule, OffloadUse
from edge_rag.generator.prompt.template import Prompt
from edge_rag.offload.context import LoopThread, RemoteRegistry
from edge_rag.offload.generation.events import OffloadEventRecorder
from edge_rag.offload.generation.redaction import Redactor
from edge_rag.offload.generation.request_builder import ReplyRestorer, build
from edge_rag.offload.generation.timeouts import Timeouts
from edge_rag.offload.ports import LocalGenerator, UsageSink
from edge_rag.offload.remotes.latency_model import Estimate, LatencyModel, Sample
from edge_rag.offload.remotes.remote_state import RemoteState

_DEFAULT_ANSWER_TOKENS: Final = 128
"""Assumed length of an answer before any was measured."""


class OffloadContext:
    """What all hedged requests share.

    Args:
        redactor: Redacts requests of collections that leave only redacted.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        local: LocalGenerator,
        states: Mapping[str, RemoteState],
        timeouts: Timeouts,
        redactor: Redactor,
        usage: UsageSink,
        clock: Callable[[], float],
    ) -> None:
        self.loop = LoopThread()
        self.remotes = RemoteRegistry(states, usage, clock)
        self.local = local
        self.timeouts = timeouts
        self.events = OffloadEventRecorder(usage)
        self.usage = usage
        self.clock = clock
        self._redactor = redactor
        self._salt = secrets.token_bytes(16)
        self._local_latency = LatencyModel()

    def start(self) -> None:
        """Starts the event loop thread."""
        self.loop.start()

    def stop(self) -> None:
        """Cancels requests in flight, closes connections and ends the thread; idempotent."""
        self.loop.stop(self.remotes.close)

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Schedules a callback at a time of ``clock``; on the event loop."""
        return self.loop.loop.call_later(max(0.0, when - self.clock()), callback)

    @property
    def can_redact(self) -> bool:
        return bool(self._redactor)

    def serialize(self, state: RemoteState, request: GenerationRequest, prompt: Prompt) -> tuple[bytes, ReplyRestorer]:
        """Returns the exact bytes for a remote, and what restores its reply."""
        outbound, restorer = build(request, prompt, self.local.vocabulary, self._salt, self._redactor)
        return state.remote.serialize(outbound), restorer

    def record_answer(self, state: RemoteState) -> None:
        state.answers += 1
        self.remotes.record_success(state)

    def measure_local(self, request: GenerationRequest, generated: Generated) -> None:
        if generated.first_token_s is None or not generated.usage.model_steps:
            return
        finish = generated.queue_s + generated.compute_s
        prompt, tokens = max(1, generated.usage.prompt_tokens), max(1, generated.usage.generated_tokens)
        sample = Sample(generated.queue_s, min(generated.first_token_s, finish), finish, prompt, tokens)
        self._local_latency.observe(sample)

    def local_estimate(self, request: GenerationRequest, prompt_tokens: int) -> Estimate:
        load = self.local.stats()
        return self._local_latency.estimate(
            prompt_tokens, request.sampling.max_tokens, load.slots_busy + load.waiting, max(1, load.slots)
        )

    def has_free_slot(self) -> bool:
        load = self.local.stats()
        return load.waiting == 0 and load.slots_busy < load.slots

    def typical_tokens(self) -> int:
        """Returns the largest mean answer length measured, tokens."""
        models = (self._local_latency, *(state.latency for state in self.remotes.states.values()))
        lengths = [model.tokens for model in models if model.tokens is not None]
        return round(max(lengths, default=_DEFAULT_ANSWER_TOKENS))

    def supports(self, state: RemoteState, request: GenerationRequest) -> bool:
        redacted = request.offload is OffloadRule.REDACTED
        return OffloadUse.GENERATE in state.remote.uses and state.remote.supports(request.format, redacted)
