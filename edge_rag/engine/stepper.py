"""Steps: each is planned, reserved, run, chosen from and committed, or never was. For the engine's thread only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from edge_rag.core.monitoring.metrics import StepReport
from edge_rag.engine.command_queue import Inbox
from edge_rag.engine.events import Announcer
from edge_rag.engine.kv_cache.block_pool import PagePool
from edge_rag.engine.kv_cache.disk.tier import PageTier
from edge_rag.engine.kv_cache.reservation import Reservation
from edge_rag.engine.model_input import moves, pack
from edge_rag.engine.passage_warmup import Warming
from edge_rag.engine.ports import ModelRunner, StepObserver
from edge_rag.engine.prefetch import Ahead
from edge_rag.engine.request_table import Roster, failure_of
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.scheduling.policy import SchedulerLimits, held_back
from edge_rag.engine.scheduling.scheduler import Scheduler
from edge_rag.engine.scheduling.slot_controller import SlotController
from edge_rag.engine.speculative.verify import Speculation
from edge_rag.engine.stats import Counts
from edge_rag.errors import InferenceFailed


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What a step's time went into, seconds."""

    schedule_s: float
    run_s: float
    choose_s: float


class Stepper:
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
        pool: PagePool,
        roster: Roster,
        warming: Warming,
        ahead: Ahead,
        speculation: Speculation,
        tier: PageTier | None,
        inbox: Inbox,
        announcer: Announcer,
        observer: StepObserver,
        counts: Counts,
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

    def restrain(self, share: float) -> None:
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
            if all(self._roster.say(request, (token,)) for token in tokens) and len(tokens) > 1:
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

    def _note(self, plan: StepPlan, now: float) -> None:
        admitted = self._roster.planned(plan, now)
        self._slots_busy = len(self._scheduler.running)
        self._looked_up = sum(len(request.sequence.tokens) for request in admitted)
        self._found = sum(request.sequence.computed for request in admitted)

    def _report(self, plan: StepPlan, accepted: int, times: StepTimes, failed: bool) -> None:
        counts, decodes = self._counts, plan.decodes
        said, gaps = self._roster.take_said()
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
        self._scheduler.limit(held_back(self._limits, self._share, slots))
