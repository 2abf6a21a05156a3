"""The engine: one thread, one loop. Each step is planned, reserved, run, chosen from and committed, or never was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Final

from edge_rag.core.measures import StepReport
from edge_rag.core.query import Priority
from edge_rag.errors import (
    DeadlineExceeded,
    EdgeRagError,
    InferenceFailed,
    InvalidRequest,
    MemoryShort,
    NotReady,
    RequestCancelled,
    Unread,
)
from edge_rag.generator.ahead import Ahead, Expected
from edge_rag.generator.announcing import Announcer
from edge_rag.generator.awaiting import Awaiting
from edge_rag.generator.constraint import ModelMove
from edge_rag.generator.counts import Counts, EngineSnapshot
from edge_rag.generator.disk.page_tier import PageTier
from edge_rag.generator.drain_rate import DrainRate
from edge_rag.generator.inbox import Inbox
from edge_rag.generator.kv.pool import PagePool
from edge_rag.generator.kv.reservation import Reservation
from edge_rag.generator.live import LiveRequest, TokenRequest
from edge_rag.generator.look import EngineLook, Lookout, look_at
from edge_rag.generator.packing import moves, pack
from edge_rag.generator.plan import StepPlan
from edge_rag.generator.policy import SchedulerLimits, held_back, rest_s
from edge_rag.generator.ports import (
    DecisionSink,
    ModelRunner,
    StepObserver,
    TokenSink,
    Unobserved,
    Unrecorded,
)
from edge_rag.generator.sampler import Choice
from edge_rag.generator.scheduler import Scheduler
from edge_rag.generator.sequence import Sequence, SequenceId, Status, domain_key
from edge_rag.generator.slot_control import SlotController
from edge_rag.generator.speculation import Speculation
from edge_rag.generator.warming import Warming

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
        decisions: Keeps the trail of decisions.
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
        decisions: DecisionSink | None = None,
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
        self._pool = PagePool(runner.pages, runner.page_tokens, None if tier is None else tier.evicted)
        self._awaiting = Awaiting(tier, self._pool, clock)
        self._ahead = Ahead(self._pool, compute_ahead)
        self._scheduler = Scheduler(limits, self._pool, runner.max_context, aging_s)
        self._inbox = Inbox(max_waiting, max_waiting_tokens)
        self._warming = Warming(self._scheduler, self._pool, self._inbox.new_id)
        self._observer = observer or Unobserved()
        self._announcer = Announcer(decisions or Unrecorded())
        self._limits = limits
        self._slot_control = slot_control
        self._share = self._wanted_share = 1.0
        self._speculation = Speculation(draft_tokens)
        self._working = working
        self._pause_s = pause_s
        self._clock = clock
        self._live: dict[SequenceId, LiveRequest] = {}
        self._epochs: dict[str, int] = {}
        self._drain_rate = DrainRate()
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._counts = Counts()
        self._holds_batch = self._drops_cache = False
        self._lookout = Lookout(look_at((), self._pool, clock()))
        self._gaps: list[float] = []
        self._said = 0
        self._slots_busy = self._looked_up = self._found = 0

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
            NeverFits: It could never run.
            DeadlineExceeded: Its deadline has passed.
            MemoryShort: Memory is short, and it is of the batch class.
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
            raise MemoryShort(MEMORY_RETRY_S)
        choice = Choice(request.sampling, self._runner.vocabulary_size, request.prompt)
        drafter = self._speculation.drafter(request)

        def make(sequence_id: SequenceId) -> LiveRequest:
            self._announcer.queued(request, self._inbox.fill, now)
            sequence = Sequence(
                sequence_id,
                request.priority,
                domain_key(request.trust_domain, request.epoch),
                list(request.prompt),
                request.sampling.max_tokens,
                client=request.client,
                arrived=now,
                deadline=request.deadline,
            )
            sequence.spans = request.spans
            return LiveRequest(request, sequence, choice, request.constraint, sink, submitted=now, drafter=drafter)

        return self._inbox.offer(make, request.most_tokens, self._drain_rate.retry_after_s)

    def anticipate(self, request: TokenRequest) -> None:
        """Notes that a request is likely to come; any thread.

        What the disk has of its prompt is read. Where it is computed ahead, that is done while there is nothing else to
        do, a little in each step; what comes meanwhile waits for one such step at most.
        """
        now = self._clock()
        if not request.prompt or len(request.prompt) > self._scheduler.capacity:
            return
        sequence = Sequence(
            self._inbox.new_id(),
            request.priority,
            domain_key(request.trust_domain, request.epoch),
            list(request.prompt),
            request.sampling.max_tokens,
            client=request.client,
            arrived=now,
            deadline=request.deadline,
        )
        self._ahead.expect(Expected(request, sequence, now))
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

        It holds neither slot nor pages until ``resume``, and ends with ``Unread`` where that takes too long.
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

    def snapshot(self) -> EngineSnapshot:
        """Returns the present state; any thread. Numbers of a step under way may be from before or after it."""
        counts, pool = self._counts, self._pool
        return EngineSnapshot(
            slots=self._scheduler.limits.max_slots,
            running=len(self._scheduler.running),
            waiting=self._inbox.waiting,
            capacity=self._inbox.capacity,
            pages=pool.pages,
            pages_held=pool.pages - pool.available,
            pages_cached=pool.cached,
            disk=None if self._tier is None else self._tier.counts,
            steps=counts.steps,
            prefill_tokens=counts.prefill_tokens,
            decode_tokens=counts.decode_tokens,
            generated_tokens=counts.generated_tokens,
            preemptions=counts.preemptions,
            completed=counts.completed,
            failed=counts.failed,
            refused=self._inbox.refused,
        )

    def restrain(self, share: float) -> None:
        """Uses that share of slots, of a step's tokens and of the time from the next step on; any thread.

        Nobody loses a slot for it. The slot controller goes on beside it, and the smaller number of slots wins.

        Args:
            share: Above 0 to 1; 1 holds nothing back.
        """
        self._wanted_share = share
        self._inbox.wake()

    def relieve(self, drop_cache: bool, hold_batch: bool) -> None:
        """Gives memory back at the next step boundary; any thread.

        Args:
            drop_cache: Whether to forget cached pages now, and give the memory of all free pages back.
            hold_batch: Whether requests of the batch class wait from now on, and new ones are refused.
        """
        self._holds_batch = hold_batch
        self._drops_cache |= drop_cache
        self._inbox.wake()

    def look(self) -> EngineLook:
        """Returns what runs and who has the pages, between two steps; any thread, waits for the step under way."""
        return self._lookout.ask(self._inbox.wake)

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
        self._abandon()
        if self._tier is not None:
            self._tier.close()

    def _loop(self) -> None:
        try:
            while (taken := self._inbox.take(self._scheduler.idle and not self._ahead, bool(self._live))) is not None:
                self._observer.on_turn()
                self._give_back()
                self._lookout.show(self._look)
                if self._wanted_share != self._share:
                    self._share = self._wanted_share
                    self._fit()
                requests, cancelled = taken
                for trust_domain, epoch in self._inbox.take_forgotten():
                    self._forget(trust_domain, epoch)
                for request in requests:
                    self._enter(request)
                self._look_ahead()
                for request in self._awaiting.ready():
                    self._admit(request)
                for sequence, why in cancelled:
                    self._drop([sequence], lambda why=why: why)  # type: ignore[misc]
                self._drop(self._expired(), lambda: DeadlineExceeded("generator"))
                self._hold(self._inbox.take_held())
                self._drop(self._unread(), lambda: Unread(self._pause_s))
                began = self._clock()
                self._step()
                if self._share < 1:
                    self._inbox.rest(rest_s(self._share, self._clock() - began))
        finally:
            self._abandon()
            if self._tier is not None:
                self._tier.keep(self._pool.known, _KEEP_S)

    def _step(self) -> None:
        began = self._clock()
        self._speculation.draft(self._running())
        if not self._scheduler.idle:
            self._ahead.let_go()
        plan = self._scheduler.schedule(began)
        self._note(plan, began)
        if not plan.entries:
            if self._scheduler.idle:
                self._compute_ahead(began)
            return
        planned = self._clock()
        try:
            with Reservation(self._pool, plan) as pages:
                for move in moves(plan, pages.tables, self._pool.page_tokens):
                    self._runner.move_tokens(move.sources, move.targets, move.distance)
                step = pack(plan, self._sequences(plan), pages.tables, self._pool.page_tokens)
                with self._working():
                    logits = self._runner.run(step)
                ran = self._clock()
                said = self._speculation.choose(plan, self._live, logits)
                accepted = {request.sequence.id: len(tokens) - 1 for request, tokens in said}
                pages.commit(accepted)
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the requests outside this step go on
            problem = str(error) if isinstance(error, InferenceFailed) else f"the step failed: {error!r}"
            failed = [entry.sequence for entry in plan.entries]
            self._drop(failed, partial(_failure, problem, error))
            self._submit(self._warming.give_up(failed))
            self._report(plan, 0, planned - began, self._clock() - planned, 0.0, failed=True)
            return
        self._scheduler.commit(plan)
        for request, tokens in said:
            if all(self._say(request, (token,)) for token in tokens) and len(tokens) > 1:
                self._scheduler.accept(request.sequence, len(tokens) - 1)
        self._submit(self._warming.done(plan))
        self._speculation.observe(plan, self._clock() - began)
        if self._tier is not None and plan.tokens - plan.decodes > plan.decodes:
            self._tier.computed(plan.tokens, ran - planned)
        self._report(plan, sum(accepted.values()), planned - began, ran - planned, self._clock() - ran, failed=False)

    def _give_back(self) -> None:
        self._scheduler.hold_batch(self._holds_batch)
        if self._holds_batch:
            # Requests of other classes may wait for passages that one of the batch class began.
            held = [i for i, s in self._warming.sequences.items() if s.priority is Priority.BATCH]
            self._submit(self._warming.give_up(held))
        if self._drops_cache:
            self._drops_cache = False
            self._ahead.clear()
            self._runner.give_back(self._pool.drop_cached())

    def _compute_ahead(self, now: float) -> None:
        """Computes a part of a prompt that is likely to come, while there is nothing else to do."""
        plan = self._ahead.next(now, self._over)
        for expected in self._ahead.take_ended():
            self._announcer.anticipated(expected, now)
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

    def _look_ahead(self) -> None:
        for expected in self._ahead.take_fresh():
            if self._tier is not None and not self._over(expected.request):
                sequence = expected.sequence
                self._tier.want(self._pool, sequence.trust_domain, sequence.tokens, sequence.keys)
        for expected in self._ahead.take_ended():
            self._announcer.anticipated(expected, self._clock())

    def _over(self, request: TokenRequest) -> bool:
        return request.epoch < self._epochs.get(request.trust_domain, 0)

    def _look(self) -> EngineLook:
        return look_at(self._running(), self._pool, self._clock())

    def _running(self) -> Iterator[LiveRequest]:
        return (self._live[s.id] for s in self._scheduler.running if s.id in self._live)

    def _enter(self, request: LiveRequest) -> None:
        """Lets a request in; one that the constraint decides by itself is over at once."""
        self._live[request.sequence.id] = request
        self._ahead.came(request.request)
        if self._ended(request):
            request.sequence.withdraw()
        if self._say(request, ()) and not self._awaiting.hold(request):
            self._admit(request)

    def _admit(self, request: LiveRequest) -> None:
        """Gives a request to the scheduler, or has its passages computed first."""
        if not self._warming.hold(request.sequence, request.submitted):
            self._submit([request.sequence.id])

    def _submit(self, ready: Iterable[SequenceId]) -> None:
        """Gives requests to the scheduler that need wait for nothing else."""
        for request in [self._live[i] for i in ready]:
            self._scheduler.submit(request.sequence, request.submitted)
            if request.paused_since is not None:
                self._scheduler.pause(request.sequence)

    def _hold(self, held: Mapping[SequenceId, bool]) -> None:
        """Pauses requests and lets others go on."""
        now = self._clock()
        for request, pause in [(self._live[i], pause) for i, pause in held.items() if i in self._live]:
            if pause and request.paused_since is None:
                request.paused_since = now
                request.lost_slot(now)
                # One that still waits for pages from disk or for its passages is paused once it has them.
                comes = request.sequence.status is Status.NEW
                self._announcer.paused(request, {} if comes else self._scheduler.pause(request.sequence), now)
            elif not pause and request.paused_since is not None:
                request.paused_since = None
                if request.sequence.status is Status.PAUSED:
                    self._scheduler.resume(request.sequence, now)

    def _forget(self, trust_domain: str, epoch: int) -> None:
        self._epochs[trust_domain] = max(epoch, self._epochs.get(trust_domain, 0))
        for request in self._live.values():
            if request.request.trust_domain == trust_domain and self._ended(request):
                request.sequence.withdraw()
        current = domain_key(trust_domain, self._epochs[trust_domain])
        for domain in self._pool.domains | self._warming.domains:
            if domain.startswith(domain_key(trust_domain)) and domain != current:
                self._submit(self._warming.forget(domain))
                self._pool.forget(domain)

    def _ended(self, request: LiveRequest) -> bool:
        """Whether a request may hold text that was removed."""
        return self._over(request.request)

    def _say(self, request: LiveRequest, tokens: tuple[int, ...]) -> bool:
        """Adds tokens to an answer and ends it where it ends; returns whether it goes on."""
        before = request.sequence.generated
        try:
            reason = request.say(tokens)
        except Exception as error:  # noqa: BLE001 - a constraint's or a sink's failure is that request's own
            problem = f"the answer could not be continued: {error!r}"
            own = error if isinstance(error, EdgeRagError) else _failure(problem, error)
            self._drop([request.sequence.id], lambda: own)
            return False
        if request.sequence.generated > before:
            said = request.sequence.generated - before
            self._counts.generated_tokens += said
            self._said += said
            if (gap := request.spoke(self._clock())) is not None:
                self._gaps.append(gap)
        if reason is not None:
            now = self._clock()
            self._leave(request, now, completed=True)
            self._counts.completed += 1
            self._announcer.finished(request, reason, now)
            with suppress(Exception):
                request.sink.finish(request.outcome(reason, now))
        return reason is None

    def _drop(self, ids: Iterable[SequenceId], error: Callable[[], EdgeRagError]) -> None:
        """Ends requests badly; ids of requests that are over are passed by."""
        for request in [self._live[i] for i in dict.fromkeys(ids) if i in self._live]:
            now, why = self._clock(), error()
            self._leave(request, now, completed=False)
            self._counts.failed += 1
            self._announcer.given_up(request, why, now)
            with suppress(Exception):
                request.sink.fail(why)

    def _leave(self, request: LiveRequest, now: float, completed: bool) -> None:
        """Gives back all that a request holds, before anyone hears that it is over."""
        del self._live[request.sequence.id]
        self._awaiting.drop(request)
        self._scheduler.remove([request.sequence])
        self._warming.left(request.sequence.id)
        if request.sequence.withdrawn:
            self._pool.forget(request.sequence.trust_domain)
        if request.started is None:
            self._inbox.left_queue(request.request.most_tokens)
        self._drain_rate.left(now, others_wait=self._inbox.waiting > 0, tokens=request.request.most_tokens)
        self._observer.on_request(request.report(now, completed))

    def _expired(self) -> list[SequenceId]:
        now = self._clock()
        return [i for i, r in self._live.items() if r.request.deadline is not None and now >= r.request.deadline]

    def _unread(self) -> list[SequenceId]:
        since = self._clock() - self._pause_s
        return [i for i, r in self._live.items() if r.paused_since is not None and r.paused_since <= since]

    def _sequences(self, plan: StepPlan) -> dict[SequenceId, Sequence]:
        alone = self._warming.sequences
        return {i: alone[i] if i in alone else self._live[i].sequence for i in (e.sequence for e in plan.entries)}

    def _note(self, plan: StepPlan, now: float) -> None:
        """Records who got a slot and who lost one."""
        self._announcer.planned(plan.verdicts, self._live, now)
        self._counts.preemptions += len(plan.preempted)
        admitted = [self._live[i] for i in plan.admitted if i in self._live]
        for request in admitted:
            if request.started is None:
                self._inbox.left_queue(request.request.most_tokens)
            request.took_slot(now)
        for request in [self._live[i] for i in plan.preempted if i in self._live]:
            if request.sequence.status is not Status.RUNNING:
                request.lost_slot(now)
        self._slots_busy = len(self._scheduler.running)
        self._looked_up = sum(len(request.sequence.tokens) for request in admitted)
        self._found = sum(request.sequence.computed for request in admitted)

    def _abandon(self) -> None:
        """Ends whatever is unfinished; nothing comes after it."""
        self._inbox.close(abort=True)
        for request in self._inbox.drain():
            self._live[request.sequence.id] = request
        self._drop(tuple(self._live), lambda: NotReady("the generator is shutting down"))

    def _report(
        self, plan: StepPlan, accepted: int, schedule_s: float, run_s: float, choose_s: float, failed: bool
    ) -> None:
        counts, decodes = self._counts, plan.decodes
        gaps, self._gaps = tuple(self._gaps), []
        said, self._said = self._said, 0
        counts.steps += 1
        counts.decode_tokens += decodes
        counts.prefill_tokens += plan.tokens - decodes - plan.drafted
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
                schedule_s=schedule_s,
                run_s=run_s,
                choose_s=choose_s,
                generated_tokens=said,
                token_gaps_s=gaps,
                failed=failed,
            )
        )
        if self._slot_control is not None and not failed:
            change = self._slot_control.observe(schedule_s + run_s + choose_s, decodes, self._inbox.waiting)
            if change is not None:
                self._announcer.resized(change, self._clock())
                self._fit()

    def _fit(self) -> None:
        """Holds steps to what the slot controller and those who restrain the engine allow."""
        slots = self._limits.max_slots if self._slot_control is None else self._slot_control.slots
        self._scheduler.limit(held_back(self._limits, self._share, slots))


def _failure(problem: str, cause: Exception) -> InferenceFailed:
    failure = InferenceFailed(problem)
    failure.__cause__ = cause
    return failure
