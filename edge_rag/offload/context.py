"""What the offloaded work of all kinds shares: an event loop thread, the state of each remote, this box's generator."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from edge_rag.core.generation import Generated, GenerationRequest
from edge_rag.core.placement import OffloadRule, OffloadUse
from edge_rag.offload.events import OffloadEventRecorder
from edge_rag.offload.generation.redaction import Redactor
from edge_rag.offload.generation.request_builder import PromptText, ReplyRestorer, build
from edge_rag.offload.generation.timeouts import Timeouts
from edge_rag.offload.ports import LocalGenerator, UsageSink
from edge_rag.offload.remotes.circuit_breaker import CircuitBreaker
from edge_rag.offload.remotes.latency_model import Estimate, LatencyModel, Sample
from edge_rag.offload.remotes.remote_state import RemoteState

_Out = TypeVar("_Out")

_DEFAULT_ANSWER_TOKENS = 128
"""Assumed length of an answer before any was measured."""


class LoopThread:
    """An asyncio event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._submitting = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="offload", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, cleanup: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancels all tasks, runs ``cleanup`` on the loop and ends the thread; idempotent."""
        with self._submitting:
            if self._stopped:
                return
            self._stopped = True
        asyncio.run_coroutine_threadsafe(self._close(cleanup), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def post(self, callback: Callable[[], None]) -> None:
        """Runs a callback on the loop, in order; any thread. Does nothing after ``stop``."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(callback)

    def submit(self, coroutine: Coroutine[Any, Any, _Out]) -> Future[_Out]:
        """Runs a coroutine on the loop; any thread.

        Returns:
            Its future, which is cancelled when the loop stops, or at once if it has stopped.
        """
        with self._submitting:
            if not self._stopped:
                return asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        coroutine.close()
        cancelled: Future[_Out] = Future()
        cancelled.cancel()
        cancelled.set_running_or_notify_cancel()
        return cancelled

    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    async def _close(self, cleanup: Callable[[], Coroutine[Any, Any, None]]) -> None:
        current = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await cleanup()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


class RemoteRegistry:
    """The state of every remote, updated by the outcome of requests. For the event loop; any thread may read.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(
        self, states: Mapping[str, RemoteState], events: OffloadEventRecorder, clock: Callable[[], float]
    ) -> None:
        self.states = states
        self.clock = clock
        self._events = events

    def track(self, state: RemoteState, sent_bytes: int, task: asyncio.Task[object]) -> None:
        """Counts a request as in flight until its task ends."""
        state.in_flight += 1
        state.sent_bytes += sent_bytes
        task.add_done_callback(lambda _: self._untrack(state))
        self.record_attempt(state)

    def record_attempt(self, state: RemoteState) -> None:
        now = self.clock()
        self._set_breaker(state, state.breaker.on_attempt(now), now)

    def record_success(self, state: RemoteState) -> None:
        now = self.clock()
        self._set_breaker(state, state.breaker.on_success(now), now)

    def record_failure(self, state: RemoteState, problem: str, busy: bool) -> None:
        """Records that a request failed; a remote that was only busy keeps its breaker as it is."""
        state.last_problem = problem
        if busy:
            return
        state.failures += 1
        now = self.clock()
        self._set_breaker(state, state.breaker.on_failure(now), now)

    async def close(self) -> None:
        for state in self.states.values():
            await state.remote.close()

    def _set_breaker(self, state: RemoteState, breaker: CircuitBreaker, now: float) -> None:
        changed = state.set_breaker(breaker)
        if changed is not None:
            values = {"failures": float(breaker.failures), "open_s": breaker.open_s}
            self._events.breaker(state.remote.name, changed, values, now)

    def _untrack(self, state: RemoteState) -> None:
        state.in_flight -= 1


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
        events: OffloadEventRecorder,
        usage: UsageSink,
        clock: Callable[[], float],
    ) -> None:
        self.loop = LoopThread()
        self.remotes = RemoteRegistry(states, events, clock)
        self.local = local
        self.timeouts = timeouts
        self.events = events
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

    def serialize(
        self, state: RemoteState, request: GenerationRequest, prompt: PromptText
    ) -> tuple[bytes, ReplyRestorer]:
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
