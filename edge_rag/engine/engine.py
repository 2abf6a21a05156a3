"""The engine: one thread, one loop. Each step is planned, reserved, run, chosen from and committed, or never was.

Steps: each is planned, reserved, run, chosen from and committed, or never was. For the engine's thread only.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from edge_rag.core.monitoring.metrics import StepReport
from edge_rag.core.monitoring.status import EngineStats
from edge_rag.core.ports import AuditSink
from edge_rag.core.query import Priority
from edge_rag.engine.command_queue import CommandQueue, DrainRate
from edge_rag.engine.constraint import ModelMove
from edge_rag.engine.events import EventRecorder
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.disk.pending import PendingLoads
from edge_rag.engine.kv_cache.disk.tier import PageTier
from edge_rag.engine.kv_cache.reservation import Reservation
from edge_rag.engine.model_input import moves, pack
from edge_rag.engine.passage_warmup import PassageWarmup
from edge_rag.engine.ports import ModelRunner, StepObserver, TokenSink, Unobserved, Unrecorded
from edge_rag.engine.prefetch import Prefetcher, PrefetchRequest
from edge_rag.engine.request import ActiveRequest, TokenRequest
from edge_rag.engine.request_table import RequestTable, failure_of
from edge_rag.engine.sampler import Choice
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.scheduling.policy import SchedulerLimits, pause_after_step_s, throttled_limits
from edge_rag.engine.scheduling.scheduler import Scheduler
from edge_rag.engine.scheduling.slot_controller import SlotController
from edge_rag.engine.sequence import Sequence, SequenceId, domain_key
from edge_rag.engine.snapshot import EngineSnapshot, SnapshotExchange, take_snapshot
from edge_rag.engine.speculative.verify import Speculation
from edge_rag.errors import (
    DeadlineExceeded,
    EdgeRagError,
    InferenceFailed,
    InvalidRequest,
    MemoryPressure,
    RequestCancelled,
)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What a step's time went into, seconds."""

    schedule_s: float
    run_s: float
    choose_s: float


class StepExecutor:
    """Runs the steps.

    Args:
        runner: The model.
        limits: How large a step may be.
        slot_control: Moves the number of slots; None leaves it at the limit.
        scheduler: Plans.
        pool: The pages.
        roster: The requests.
        warming: Passages that are computed alone.
        ahead: Prompts that are likely to come.
        speculation: Drafts, and chooses what is said.
        tier: Told how fast prompts are computed; None where nothing is kept on disk.
        inbox: Knows how many wait.
        announcer: Told of decisions.
        observer: Told of each step.
        counts: Counts.
        working: Makes what is entered while the model runs.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        runner: ModelRunner,
        limits: SchedulerLimits,
        slot_control: SlotController | None,
        scheduler: Scheduler,
        pool: BlockPool,
        roster: RequestTable,
        warming: PassageWarmup,
        ahead: Prefetcher,
        speculation: Speculation,
        tier: PageTier | None,
        inbox: CommandQueue,
        announcer: EventRecorder,
        observer: StepObserver,
        counts: Counter[str],
        working: Callable[[], AbstractContextManager[None]],
        clock: Callable[[], float],
    ) -> None:
        self._runner = runner
        self._limits = limits
        self._slot_control = slot_control
        self._scheduler = scheduler
        self._pool = pool
        self._roster = roster
        self._warming = warming
        self._ahead = ahead
        self._speculation = speculation
        self._tier = tier
        self._inbox = inbox
        self._announcer = announcer
        self._observer = observer
        self._counts = counts
        self._working = working
        self._clock = clock
        self._share = 1.0
        self._slots_busy = self._looked_up = self._found = 0

    @property
    def share(self) -> float:
        """Share of slots, of a step's tokens and of the time that is used, above 0 to 1."""
        return self._share

    def set_throttle(self, share: float) -> None:
        """Uses that share of slots, of a step's tokens and of the time from now on."""
        if share != self._share:
            self._share = share
            self._fit()

    def step(self) -> None:
        """Runs a step; with nothing else to do, a part of a prompt that is likely to come."""
        began = self._clock()
        self._speculation.draft(self._roster.running())
        if not self._scheduler.idle:
            self._ahead.let_go()
        plan = self._scheduler.schedule(began)
        self._note(plan, began)
        if plan.entries:
            self._run(plan, began)
        elif self._scheduler.idle:
            self._compute_ahead(began)

    def _run(self, plan: StepPlan, began: float) -> None:
        planned = self._clock()
        try:
            with Reservation(self._pool, plan) as pages:
                for move in moves(plan, pages.tables, self._pool.page_tokens):
                    self._runner.move_tokens(move.sources, move.targets, move.distance)
                step = pack(plan, self._roster.sequences(plan), pages.tables, self._pool.page_tokens)
                with self._working():
                    logits = self._runner.run(step)
                ran = self._clock()
                said = self._speculation.choose(plan, self._roster.live, logits)
                accepted = {request.sequence.id: len(tokens) - 1 for request, tokens in said}
                pages.commit(accepted)
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the requests outside this step go on
            problem = str(error) if isinstance(error, InferenceFailed) else f"the step failed: {error!r}"
            failed = [entry.sequence for entry in plan.entries]
            self._roster.drop(failed, partial(failure_of, problem, error))
            self._roster.submit(self._warming.give_up(failed))
            self._report(plan, 0, StepTimes(planned - began, self._clock() - planned, 0.0), failed=True)
            return
        self._scheduler.commit(plan)
        for request, tokens in said:
            if all(self._roster.append(request, (token,)) for token in tokens) and len(tokens) > 1:
                self._scheduler.accept(request.sequence, len(tokens) - 1)
        self._roster.submit(self._warming.done(plan))
        times = StepTimes(planned - began, ran - planned, self._clock() - ran)
        self._speculation.observe(plan, times.schedule_s + times.run_s + times.choose_s)
        if self._tier is not None and plan.tokens - plan.decodes > plan.decodes:
            self._tier.computed(plan.tokens, times.run_s)
        self._report(plan, sum(accepted.values()), times, failed=False)

    def _compute_ahead(self, now: float) -> None:
        plan = self._ahead.next(now, self._roster.is_over)
        for expected in self._ahead.take_ended():
            self._announcer.prefetched(expected, now)
        sequence = self._ahead.sequence
        if plan is None or sequence is None:
            return
        try:
            with Reservation(self._pool, plan) as pages:
                step = pack(plan, {sequence.id: sequence}, pages.tables, self._pool.page_tokens)
                with self._working():
                    self._runner.run(step)
                pages.commit({})
        except Exception:  # noqa: BLE001 - nobody asked for it; who does gets the failure then
            self._ahead.drop()
            return
        self._ahead.commit(plan)

    def _note(self, plan: StepPlan, now: float) -> None:
        admitted = self._roster.planned(plan, now)
        self._slots_busy = len(self._scheduler.running)
        self._looked_up = sum(len(request.sequence.tokens) for request in admitted)
        self._found = sum(request.sequence.computed for request in admitted)

    def _report(self, plan: StepPlan, accepted: int, times: StepTimes, failed: bool) -> None:
        counts, decodes = self._counts, plan.decodes
        said, gaps = self._roster.take_said()
        counts["steps"] += 1
        counts["decode_tokens"] += decodes
        counts["prefill_tokens"] += plan.tokens - decodes - plan.drafted
        self._observer.on_step(
            StepReport(
                tokens=plan.tokens,
                decodes=decodes,
                sequences=len(plan.entries),
                slots=self._scheduler.limits.max_slots,
                slots_busy=self._slots_busy,
                waiting=self._inbox.waiting,
                pages_used=self._pool.pages - self._pool.available,
                preempted=len(plan.preempted),
                cache_query_tokens=self._looked_up,
                cache_hit_tokens=self._found,
                drafted=plan.drafted,
                accepted=accepted,
                schedule_s=times.schedule_s,
                run_s=times.run_s,
                choose_s=times.choose_s,
                generated_tokens=said,
                token_gaps_s=gaps,
                failed=failed,
            )
        )
        if self._slot_control is not None and not failed:
            step_s = times.schedule_s + times.run_s + times.choose_s
            change = self._slot_control.observe(step_s, decodes, self._inbox.waiting)
            if change is not None:
                self._announcer.resized(change, self._clock())
                self._fit()

    def _fit(self) -> None:
        """Holds steps to what the slot controller and those who restrain the engine allow."""
        slots = self._limits.max_slots if self._slot_control is None else self._slot_control.slots
        self._scheduler.limit(throttled_limits(self._limits, self._share, slots))


_KEEP_S: Final = 5.0
"""Longest time for writing pages to disk at the end, seconds."""

MEMORY_RETRY_S: Final = 15.0
"""When a batch request that is refused for want of memory may be tried again: no sooner can it be plentiful again."""


class Engine:
    """Runs requests over one model with iteration-level batching.

    Args:
        runner: The model; the engine's thread is the only one that calls it.
        limits: How large a step may be.
        max_waiting: Most requests that may wait for a first slot.
        observer: Watches the steps.
        audit: Receives the audit events.
        clock: Monotonic seconds; deadlines are on it.
        max_waiting_tokens: Most tokens that requests waiting for a first slot may come to; None for no bound.
        aging_s: Time without a slot after which a client's next request rises by a class, seconds.
        slot_control: Moves the number of slots; None leaves it at the limit.
        draft_tokens: Most tokens that a request drafts for a step, 0 for none. The answers are the same.
        working: Makes what is entered while the model runs.
        tier: Keeps evicted pages on disk; started and closed by this. None keeps none.
        compute_ahead: Whether prompts that are likely to come are computed while there is nothing else to do.
        pause_s: Longest time that a request is paused for its reader, seconds.
    """

    def __init__(
        self,
        runner: ModelRunner,
        limits: SchedulerLimits,
        max_waiting: int,
        observer: StepObserver | None = None,
        audit: AuditSink | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        max_waiting_tokens: int | None = None,
        aging_s: float = 30.0,
        slot_control: SlotController | None = None,
        draft_tokens: int = 0,
        working: Callable[[], AbstractContextManager[None]] = nullcontext,
        tier: PageTier | None = None,
        compute_ahead: bool = False,
        pause_s: float = 30.0,
    ) -> None:
        self._runner = runner
        self._tier = tier
        self._pool = BlockPool(runner.pages, runner.page_tokens, None if tier is None else tier.evicted)
        self._ahead = Prefetcher(self._pool, compute_ahead)
        self._scheduler = Scheduler(limits, self._pool, runner.max_context, aging_s)
        self._inbox = CommandQueue(max_waiting, max_waiting_tokens)
        self._warming = PassageWarmup(self._scheduler, self._pool, self._inbox.new_id)
        self._observer = observer or Unobserved()
        self._announcer = EventRecorder(audit or Unrecorded())
        self._share = 1.0
        self._speculation = Speculation(draft_tokens)
        self._pause_s = pause_s
        self._clock = clock
        self._drain_rate = DrainRate()
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._counts = Counter[str]()
        self._holds_batch = self._drops_cache = False
        self._lookout = SnapshotExchange(take_snapshot((), self._pool, clock()))
        self._roster = RequestTable(
            self._scheduler,
            self._pool,
            PendingLoads(tier, self._pool, clock),
            self._warming,
            self._inbox,
            self._announcer,
            self._observer,
            self._drain_rate,
            self._counts,
            clock,
        )
        self._stepper = StepExecutor(
            runner,
            limits,
            slot_control,
            self._scheduler,
            self._pool,
            self._roster,
            self._warming,
            self._ahead,
            self._speculation,
            tier,
            self._inbox,
            self._announcer,
            self._observer,
            self._counts,
            working,
            clock,
        )

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
        if self._tier is not None:
            self._tier.start(self._inbox.wake)
        self._thread.start()

    def submit(self, request: TokenRequest, sink: TokenSink) -> SequenceId:
        """Admits a request; any thread.

        Raises:
            InvalidRequest: The prompt is empty though the model is to be asked, or holds an unknown token.
            RequestTooLarge: It could never run.
            DeadlineExceeded: Its deadline has passed.
            MemoryPressure: Memory is short, and it is of the batch class.
            Overloaded: Too many requests or tokens wait.
            NotReady: The engine is shutting down.
        """
        now = self._clock()
        try:
            return self._take_in(request, sink, now)
        except EdgeRagError as error:
            self._announcer.refused(request, error, self._inbox.fill, now)
            raise

    def refused(self, request: TokenRequest, error: EdgeRagError) -> None:
        """Notes that a request was refused on its way here; any thread."""
        self._announcer.refused(request, error, self._inbox.fill, self._clock())

    def _take_in(self, request: TokenRequest, sink: TokenSink, now: float) -> SequenceId:
        if any(not 0 <= token < self._runner.vocabulary_size for token in request.prompt):
            raise InvalidRequest("prompt", f"token ids are 0 to {self._runner.vocabulary_size - 1}")
        if not request.prompt and isinstance(request.constraint.next(), ModelMove):
            raise InvalidRequest("prompt", "at least one token is needed")
        self._scheduler.check(len(request.prompt), request.sampling.max_tokens)
        if request.deadline is not None and now >= request.deadline:
            raise DeadlineExceeded("generator")
        if self._holds_batch and request.priority is Priority.BATCH:
            raise MemoryPressure(MEMORY_RETRY_S)
        choice = Choice(request.sampling, self._runner.vocabulary_size, request.prompt)
        drafter = self._speculation.drafter(request)

        def make(sequence_id: SequenceId) -> ActiveRequest:
            self._announcer.queued(request, self._inbox.fill, now)
            sequence = _sequence(sequence_id, request, now)
            sequence.spans = request.spans
            return ActiveRequest(request, sequence, choice, request.constraint, sink, submitted=now, drafter=drafter)

        return self._inbox.offer(make, request.most_tokens, self._drain_rate.retry_after_s)

    @property
    def prefetch_enabled(self) -> bool:
        """Whether anything would be done for a request that is likely to come; any thread."""
        return self._ahead.computes or (self._tier is not None and self._tier.stats.pages > 0)

    def prefetch(self, request: TokenRequest) -> None:
        """Notes that a request is likely to come; any thread.

        What the disk has of its prompt is read. Where it is computed ahead, that is done while there is nothing else to
        do, a little in each step; what comes meanwhile waits for one such step at most.
        """
        now = self._clock()
        if not request.prompt or len(request.prompt) > self._scheduler.capacity:
            return
        self._ahead.expect(PrefetchRequest(request, _sequence(self._inbox.new_id(), request, now), now))
        self._inbox.wake()

    def cancel(self, sequence: SequenceId, why: EdgeRagError | None = None) -> None:
        """Ends a request at the next step boundary; any thread, idempotent.

        Args:
            sequence: Which.
            why: What it ends with; None where its caller wants it no more.
        """
        self._inbox.cancel(sequence, why or RequestCancelled("cancelled by the caller"))

    def pause(self, sequence: SequenceId) -> None:
        """Takes a request out of the steps at the next boundary, because its reader does not keep up; any thread.

        It holds neither slot nor pages until ``resume``, and ends with ``SlowConsumer`` where that takes too long.
        """
        self._inbox.hold(sequence, paused=True)

    def resume(self, sequence: SequenceId) -> None:
        """Lets a paused request go on; it waits for a slot like others. Any thread."""
        self._inbox.hold(sequence, paused=False)

    def forget(self, trust_domain: str, epoch: int) -> None:
        """Drops what is cached of a trust domain's epochs before this one at the next step boundary; any thread.

        Requests of these epochs, whether they run or are still to come, go on and leave nothing behind that another
        could find: their prompts may hold what is to be forgotten.
        """
        if self._tier is not None:
            self._tier.forget(trust_domain, epoch)
        self._inbox.forget(trust_domain, epoch)

    def stats(self) -> EngineStats:
        """Returns the present state; any thread. Numbers of the running step may be from before or after it."""
        pool = self._pool
        stats = EngineStats(
            slots=self._scheduler.limits.max_slots,
            slots_busy=len(self._scheduler.running),
            waiting=self._inbox.waiting,
            queue_capacity=self._inbox.capacity,
            pages=pool.pages,
            pages_used=pool.pages - pool.available,
            pages_cached=pool.cached,
            page_tokens=pool.page_tokens,
            disk=None if self._tier is None else self._tier.stats,
            refused=self._inbox.refused,
        )
        counters: dict[str, Any] = dict(self._counts)
        return replace(stats, **counters)

    def set_throttle(self, share: float) -> None:
        """Uses that share of slots, of a step's tokens and of the time from the next step on; any thread.

        Nobody loses a slot for it. The slot controller goes on beside it, and the smaller number of slots wins.

        Args:
            share: Above 0 to 1; 1 holds nothing back.
        """
        self._share = share
        self._inbox.wake()

    def shed_memory(self, drop_cache: bool, hold_batch: bool) -> None:
        """Gives memory back at the next step boundary; any thread.

        Args:
            drop_cache: Whether to forget cached pages now, and give the memory of all free pages back. None is copied
                to be written to disk first: that would take the memory that is short.
            hold_batch: Whether requests of the batch class wait from now on, and new ones are refused.
        """
        self._holds_batch = hold_batch
        self._drops_cache |= drop_cache
        self._inbox.wake()

    def snapshot(self) -> EngineSnapshot:
        """Returns what runs and who has the pages, between two steps; any thread, waits for the step under way."""
        return self._lookout.request(self._inbox.wake)

    def close(self, grace_s: float = 0.0) -> None:
        """Stops: refuses new requests, lets the others finish, and gives up those that take longer.

        Args:
            grace_s: How long they may take, seconds.
        """
        self._inbox.close(abort=grace_s <= 0)
        if self._thread.is_alive():
            self._thread.join(max(grace_s, 0.0))
            self._inbox.close(abort=True)
            self._thread.join()
        self._roster.abandon()
        if self._tier is not None:
            self._tier.close()

    def _loop(self) -> None:
        try:
            while (taken := self._inbox.take(self._idle, bool(self._roster.live))) is not None:
                self._observer.on_turn()
                self._give_back()
                self._lookout.serve(self._look)
                self._stepper.set_throttle(self._share)
                requests, cancelled = taken
                for trust_domain, epoch in self._inbox.take_forgotten():
                    self._roster.forget(trust_domain, epoch)
                for request in requests:
                    self._ahead.came(request.request)
                    self._roster.enter(request)
                self._look_ahead()
                self._roster.enter_awaited()
                for sequence, why in cancelled:
                    self._roster.drop([sequence], partial(_itself, why))
                self._roster.hold(self._inbox.take_held())
                self._roster.drop_late(self._pause_s)
                began = self._clock()
                self._stepper.step()
                if self._stepper.share < 1:
                    self._inbox.rest(pause_after_step_s(self._stepper.share, self._clock() - began))
        finally:
            self._roster.abandon()
            if self._tier is not None:
                self._tier.keep(self._pool.known, _KEEP_S)
            self._observer.on_end()

    @property
    def _idle(self) -> bool:
        return self._scheduler.idle and not self._ahead

    def _give_back(self) -> None:
        self._scheduler.hold_batch(self._holds_batch)
        if self._holds_batch:
            # Requests of other classes may wait for passages that one of the batch class began.
            held = [i for i, s in self._warming.sequences.items() if s.priority is Priority.BATCH]
            self._roster.submit(self._warming.give_up(held))
        if self._drops_cache:
            self._drops_cache = False
            self._ahead.clear()
            self._runner.release_pages(self._pool.drop_cached())

    def _look_ahead(self) -> None:
        for expected in self._ahead.take_fresh():
            if self._tier is not None and not self._roster.is_over(expected.request):
                sequence = expected.sequence
                self._tier.want(self._pool, sequence.trust_domain, sequence.tokens, sequence.keys)
        for expected in self._ahead.take_ended():
            self._announcer.prefetched(expected, self._clock())

    def _look(self) -> EngineSnapshot:
        return take_snapshot(self._roster.running(), self._pool, self._clock())


def _sequence(sequence_id: SequenceId, request: TokenRequest, now: float) -> Sequence:
    return Sequence(
        sequence_id,
        request.priority,
        domain_key(request.trust_domain, request.epoch),
        list(request.prompt),
        request.sampling.max_tokens,
        client=request.client,
        arrived=now,
        deadline=request.deadline,
    )


def _itself(error: EdgeRagError) -> EdgeRagError:
    return error
