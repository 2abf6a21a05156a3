"""The engine: one thread, one loop, one step at a time.

A step is a transaction. The scheduler plans it, its pages are reserved, the model runs, tokens are sampled, and then
pages and tokens are committed. If it fails before that, the reserved pages are returned and its requests end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.monitoring.metrics import StepReport
from edge_rag.core.monitoring.status import EngineStats
from edge_rag.core.ports import AuditSink
from edge_rag.core.query import Priority
from edge_rag.engine.command_queue import CommandQueue, Commands
from edge_rag.engine.constraint import AllowedTokens
from edge_rag.engine.events import EventRecorder
from edge_rag.engine.kv_cache.block_pool import BlockPool, Reservation
from edge_rag.engine.ports import ModelRunner, StepObserver, TokenSink, Unobserved, Unrecorded
from edge_rag.engine.request import ActiveRequest, Speculation, TokenRequest
from edge_rag.engine.request_table import RequestTable
from edge_rag.engine.sampler import TokenSampler
from edge_rag.engine.scheduling.plan import StepPlan, pack, token_moves
from edge_rag.engine.scheduling.policy import SchedulerLimits, pause_after_step_s, throttled_limits
from edge_rag.engine.scheduling.scheduler import Scheduler
from edge_rag.engine.sequence import Sequence, SequenceId
from edge_rag.engine.snapshot import EngineSnapshot, SnapshotExchange, take_snapshot
from edge_rag.errors import (
    DeadlineExceeded,
    EdgeRagError,
    InferenceFailed,
    InvalidRequest,
    MemoryPressure,
    RequestCancelled,
)

MEMORY_RETRY_S: Final = 15.0
"""When a batch request that was refused for want of memory may be retried, seconds."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How an engine runs.

    Attributes:
        max_waiting_tokens: Most tokens that these may come to, prompts and answers together; None for no bound.
        aging_s: Time without a slot after which a client's next request rises by a class, seconds.
        draft_tokens: Most tokens that a request drafts for a step, 0 for none; answers are the same.
        pause_s: Longest time that a request is paused for a slow consumer, seconds.
    """

    limits: SchedulerLimits
    max_waiting: int
    max_waiting_tokens: int | None = None
    aging_s: float = 30.0
    draft_tokens: int = 0
    pause_s: float = 30.0


class Engine:
    """Runs requests over one model with iteration-level batching.

    Args:
        runner: The model; called by the engine's thread only.
        clock: Monotonic seconds; deadlines are on it.
        working: Returns a context that is entered while the model runs.
    """

    def __init__(
        self,
        runner: ModelRunner,
        settings: EngineSettings,
        observer: StepObserver | None = None,
        audit: AuditSink | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        working: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._runner = runner
        self._settings = settings
        self._observer = observer or Unobserved()
        self._clock = clock
        self._working = working
        self._throttle = 1.0
        self._reported_tokens = 0
        self._pool = BlockPool(runner.pages, runner.page_tokens)
        self._scheduler = Scheduler(settings.limits, self._pool, runner.max_context, settings.aging_s)
        self._commands = CommandQueue(settings.max_waiting, settings.max_waiting_tokens)
        self._events = EventRecorder(audit or Unrecorded(), self._observer)
        self._speculation = Speculation(settings.draft_tokens)
        self._requests = RequestTable(self._scheduler, self._pool, self._commands, self._events, clock)
        self._snapshots = SnapshotExchange(take_snapshot((), self._pool, clock()))
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)

    # The engine's thread.

    def _loop(self) -> None:
        try:
            while (commands := self._commands.take(self._scheduler.idle, bool(self._requests.active))) is not None:
                self._observer.on_turn()
                self._execute(commands)
                self._snapshots.serve(self._take_snapshot)
                began = self._clock()
                self._step(began)
                if self._throttle < 1:
                    self._commands.sleep(pause_after_step_s(self._throttle, self._clock() - began))
        finally:
            self._requests.abort()
            self._observer.on_end()

    def _execute(self, commands: Commands) -> None:
        """Carries out the commands of other threads."""
        self._scheduler.hold_batch(commands.hold_batch)
        if commands.drop_cache:
            self._runner.release_pages(self._pool.drop_cached())
        if commands.throttle != self._throttle:
            self._throttle = commands.throttle
            self._scheduler.limit(throttled_limits(self._settings.limits, self._throttle))
        for trust_domain, epoch in commands.forgotten:
            self._requests.forget(trust_domain, epoch)
        for request in commands.requests:
            self._requests.enter(request)
        for sequence, error in commands.cancelled:
            self._requests.cancel(sequence, error)
        self._requests.set_paused(commands.paused)
        self._requests.drop_expired(self._settings.pause_s)

    def _step(self, began: float) -> None:
        """Runs one step: schedule, reserve, run, sample, commit."""
        self._speculation.propose(self._requests.running())
        self._requests.begin_step()
        plan = self._scheduler.schedule(began)
        admitted = self._requests.apply(plan, began)
        if not plan.entries:
            return
        load = _Load.of(self._scheduler, admitted)
        scheduled = self._clock()
        try:
            with Reservation(self._pool, plan.ends()) as pages:
                logits = self._run(plan, self._scheduler.sequences(plan), pages)
                ran = self._clock()
                sampled = self._speculation.sample(plan, self._requests.active, logits)
                accepted = {request.sequence.id: len(tokens) - 1 for request, tokens in sampled}
                pages.commit(plan.ends(accepted))
        except Exception as error:  # noqa: BLE001 - requests outside this step continue after any failure
            problem = str(error) if isinstance(error, InferenceFailed) else f"the step failed: {error!r}"
            self._requests.fail_step(plan, problem, error)
            self._report(plan, load, 0, (scheduled - began, self._clock() - scheduled, 0.0), failed=True)
            return
        self._scheduler.commit(plan)
        for request, tokens in sampled:
            if all(self._requests.append(request, (token,)) for token in tokens) and len(tokens) > 1:
                self._scheduler.accept(request.sequence, len(tokens) - 1)
        self._requests.end_step(plan)
        ended = self._clock()
        self._speculation.observe(plan, ended - began)
        times = (scheduled - began, ran - scheduled, ended - ran)
        self._report(plan, load, sum(accepted.values()), times, failed=False)

    def _run(self, plan: StepPlan, sequences: Mapping[SequenceId, Sequence], pages: Reservation) -> NDArray[np.float32]:
        tables, page_tokens = pages.tables, self._pool.page_tokens
        for move in token_moves(plan, tables, page_tokens):
            self._runner.move_tokens(move.sources, move.targets, move.distance)
        step = pack(plan, sequences, tables, page_tokens)
        with self._working():
            return self._runner.run(step)

    def _report(
        self, plan: StepPlan, load: _Load, accepted: int, times: tuple[float, float, float], failed: bool
    ) -> None:
        """Reports a step."""
        generated = self._events.counters["generated_tokens"]
        report = StepReport(
            tokens=plan.tokens,
            decodes=plan.decodes,
            sequences=len(plan.entries),
            slots=self._scheduler.limits.max_slots,
            slots_busy=load.slots_busy,
            waiting=self._commands.waiting,
            pages_used=self._pool.pages - self._pool.available,
            preempted=len(plan.preempted),
            cache_query_tokens=load.cache_query_tokens,
            cache_hit_tokens=load.cache_hit_tokens,
            drafted=plan.drafted,
            accepted=accepted,
            schedule_s=times[0],
            run_s=times[1],
            sample_s=times[2],
            generated_tokens=generated - self._reported_tokens,
            token_gaps_s=self._requests.take_gaps(),
            failed=failed,
        )
        self._reported_tokens = generated
        self._events.step(report)

    def _take_snapshot(self) -> EngineSnapshot:
        return take_snapshot(self._requests.running(), self._pool, self._clock())

    # Any thread.

    @property
    def capacity(self) -> int:
        """Most tokens a request may come to, prompt and answer together."""
        return self._scheduler.capacity

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""
        return self._runner.vocabulary_size

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def submit(self, request: TokenRequest, sink: TokenSink) -> SequenceId:
        """Adds a request; any thread."""
        now = self._clock()
        try:
            return self._submit(request, sink, now)
        except EdgeRagError as error:
            self._events.refused(request, error, self._commands.usage, now)
            raise

    def record_refusal(self, request: TokenRequest, error: EdgeRagError) -> None:
        """Records that a request was refused before it reached the engine; any thread."""
        self._events.refused(request, error, self._commands.usage, self._clock())

    def _submit(self, request: TokenRequest, sink: TokenSink, now: float) -> SequenceId:
        if any(not 0 <= token < self._runner.vocabulary_size for token in request.prompt):
            raise InvalidRequest("prompt", f"token ids are 0 to {self._runner.vocabulary_size - 1}")
        if not request.prompt and isinstance(request.constraint.next(), AllowedTokens):
            raise InvalidRequest("prompt", "at least one token is needed")
        self._scheduler.check(len(request.prompt), request.sampling.max_tokens)
        if request.deadline is not None and now >= request.deadline:
            raise DeadlineExceeded("generator")
        if self._commands.holds_batch and request.priority is Priority.BATCH:
            raise MemoryPressure(MEMORY_RETRY_S)
        sampler = TokenSampler(request.sampling, self._runner.vocabulary_size, request.prompt)
        drafter = self._speculation.drafter(request)

        def make(sequence_id: SequenceId) -> ActiveRequest:
            self._events.queued(request, self._commands.usage, now)
            sequence = request.sequence(sequence_id, now)
            sequence.spans = request.spans
            return ActiveRequest(request, sequence, sampler, request.constraint, sink, submitted=now, drafter=drafter)

        return self._commands.submit(make, request.total_tokens)

    def cancel(self, sequence: SequenceId, error: EdgeRagError | None = None) -> None:
        """Ends a request before the next step; any thread, idempotent.

        Args:
            error: Error it ends with; None for ``RequestCancelled``.
        """
        self._commands.cancel(sequence, error or RequestCancelled("cancelled by the caller"))

    def pause(self, sequence: SequenceId) -> None:
        """Pauses a request whose consumer is slow, before the next step; any thread.

        It holds neither slot nor pages until ``resume``, and ends with ``SlowConsumer`` if that takes too long.
        """
        self._commands.set_paused(sequence, paused=True)

    def resume(self, sequence: SequenceId) -> None:
        """Resumes a paused request, which waits for a slot as others do; any thread."""
        self._commands.set_paused(sequence, paused=False)

    def forget(self, trust_domain: str, epoch: int) -> None:
        """Invalidates the cached pages of a trust domain's epochs before this one, before the next step; any thread.

        Requests of these epochs, now or later, are answered and leave no pages that others can find: their prompts may
        hold text that was removed.
        """
        self._commands.forget(trust_domain, epoch)

    def set_throttle(self, share: float) -> None:
        """Sets the share of slots, of a step's tokens and of the time to use from the next step on; any thread.

        No running request loses its slot.

        Args:
            share: Above 0 to 1; 1 for no throttling.
        """
        self._commands.set_throttle(share)

    def shed_memory(self, drop_cache: bool, hold_batch: bool) -> None:
        """Frees memory before the next step; any thread.

        Args:
            drop_cache: Whether to drop cached pages and return the memory of all free pages to the system.
        """
        self._commands.shed_memory(drop_cache, hold_batch)

    def stats(self) -> EngineStats:
        """Returns the present state; any thread. Numbers of the running step may be from before or after it."""
        pool = self._pool
        stats = EngineStats(
            slots=self._scheduler.limits.max_slots,
            slots_busy=len(self._scheduler.running),
            waiting=self._commands.waiting,
            queue_capacity=self._commands.capacity,
            pages=pool.pages,
            pages_used=pool.pages - pool.available,
            pages_cached=pool.cached,
            page_tokens=pool.page_tokens,
            refused=self._commands.refused,
        )
        return replace(stats, **self._events.snapshot_counters())

    def snapshot(self) -> EngineSnapshot:
        """Returns the running sequences and the page map between two steps; any thread, waits for the running step."""
        return self._snapshots.request(self._commands.wake)

    def close(self, grace_s: float = 0.0) -> None:
        """Stops: refuses new requests, and ends the others if they take longer than ``grace_s`` seconds."""
        self._commands.close(abort=grace_s <= 0)
        if self._thread.is_alive():
            self._thread.join(max(grace_s, 0.0))
            self._commands.close(abort=True)
            self._thread.join()
        self._requests.abort()


@dataclass(frozen=True, slots=True)
class _Load:
    """The batch as it was scheduled."""

    slots_busy: int
    cache_query_tokens: int
    cache_hit_tokens: int

    @classmethod
    def of(cls, scheduler: Scheduler, admitted: list[ActiveRequest]) -> _Load:
        queries = sum(len(request.sequence.tokens) for request in admitted)
        return cls(len(scheduler.running), queries, sum(request.sequence.computed for request in admitted))
