from __future__ import annotations

from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge_rag.core.query import Priority
from edge_rag.errors import NeverFits
from edge_rag.generator.kv.invariants import violations
from edge_rag.generator.kv.pool import PagePool
from edge_rag.generator.kv.reservation import Reservation
from edge_rag.generator.plan import StepPlan
from edge_rag.generator.policy import SchedulerLimits
from edge_rag.generator.scheduler import Scheduler
from edge_rag.generator.sequence import Sequence, SequenceId, Status

PAGE = 4


class Bench:
    """A scheduler over a pool, with steps that compute nothing but account for everything."""

    def __init__(self, pages: int, limits: SchedulerLimits, max_context: int = 10_000, aging_s: float = inf) -> None:
        self.limits = limits
        self.pool = PagePool(pages, PAGE)
        self.scheduler = Scheduler(limits, self.pool, max_context, aging_s)
        self.now = 0.0
        self.sequences: dict[SequenceId, Sequence] = {}
        self.finished: list[SequenceId] = []

    def submit(
        self,
        prompt: int | list[int],
        max_tokens: int,
        priority: Priority = Priority.NORMAL,
        domain: str = "d",
        client: str = "c",
        deadline: float | None = None,
    ) -> Sequence:
        name = SequenceId(len(self.sequences) + 1)
        tokens = prompt if isinstance(prompt, list) else [1000 * name + i for i in range(prompt)]
        sequence = Sequence(
            name, priority, domain, list(tokens), max_tokens, client=client, arrived=self.now, deadline=deadline
        )
        self.scheduler.submit(sequence, self.now)
        self.sequences[name] = sequence
        return sequence

    def step(self, fail: bool = False) -> StepPlan:
        plan = self.scheduler.schedule(self.now)
        self.now += 1
        self.check(plan)
        if fail:
            with Reservation(self.pool, plan):
                pass
            self.scheduler.remove([self.sequences[entry.sequence] for entry in plan.entries])
            return plan
        with Reservation(self.pool, plan) as pages:
            pages.commit()
        self.scheduler.commit(plan)
        for entry in plan.entries:
            sequence = self.sequences[entry.sequence]
            if entry.wants_logits:
                sequence.tokens.append(len(sequence.tokens))
                if sequence.generated == sequence.max_tokens:
                    self.scheduler.remove([sequence])
                    self.finished.append(sequence.id)
        return plan

    def check(self, plan: StepPlan) -> None:
        assert plan.tokens <= self.limits.max_step_tokens
        assert len(self.scheduler.running) <= self.limits.max_slots
        assert len({entry.sequence for entry in plan.entries}) == len(plan.entries)
        for entry in plan.entries:
            sequence = self.sequences[entry.sequence]
            assert sequence.status is Status.RUNNING
            assert entry.first == sequence.computed
            assert entry.wants_logits == (entry.first + entry.count == len(sequence.tokens))
        if not self.scheduler.idle:
            assert plan.entries, "there was work, and none of it was planned"

    def run(self) -> int:
        """Steps until there is nothing to do; returns the number of steps."""
        steps = 0
        while not self.scheduler.idle:
            self.step()
            steps += 1
            assert steps < 10_000, "livelock"
        return steps

    def wrong(self) -> list[str]:
        return violations(self.pool.snapshot(), {s.id: s.computed for s in self.scheduler.running})


def entries(plan: StepPlan) -> list[tuple[int, int, int]]:
    return [(entry.sequence, entry.first, entry.count) for entry in plan.entries]


def test_a_sequence_enters_as_soon_as_another_leaves() -> None:
    bench = Bench(20, SchedulerLimits(2, 16, 4))
    for _ in range(3):
        bench.submit(3, 2)
    assert [e[0] for e in entries(bench.step())] == [1, 2]
    bench.step()
    assert bench.finished == [1, 2]
    assert bench.step().admitted == (3,)


def test_a_long_prompt_is_computed_in_chunks_beside_decodes() -> None:
    bench = Bench(40, SchedulerLimits(4, 12, 4))
    bench.submit(3, 20)
    bench.step()
    bench.submit(30, 2)
    assert entries(bench.step()) == [(1, 3, 1), (2, 0, 11)]
    assert entries(bench.step()) == [(1, 4, 1), (2, 11, 11)]
    plan = bench.step()
    assert entries(plan) == [(1, 5, 1), (2, 22, 8)]
    assert [entry.wants_logits for entry in plan.entries] == [True, True]


def test_logits_are_wanted_only_where_a_token_is_chosen() -> None:
    bench = Bench(40, SchedulerLimits(4, 12, 4))
    bench.submit(30, 2)
    assert [bench.step().entries[0].wants_logits for _ in range(3)] == [False, False, True]


def test_a_higher_class_goes_first_and_arrival_decides_inside_a_class() -> None:
    bench = Bench(40, SchedulerLimits(1, 16, 4))
    for priority in (Priority.BATCH, Priority.NORMAL, Priority.NORMAL, Priority.INTERACTIVE):
        bench.submit(3, 1, priority)
    bench.run()
    assert bench.finished == [4, 2, 3, 1]


def test_a_higher_class_takes_the_slot_of_a_lower_one() -> None:
    bench = Bench(40, SchedulerLimits(1, 16, 4))
    low = bench.submit(3, 10, Priority.BATCH)
    bench.step()
    bench.submit(3, 2, Priority.INTERACTIVE)
    plan = bench.step()
    assert (plan.preempted, plan.admitted) == ((low.id,), (2,))
    bench.run()
    assert bench.finished == [2, 1]


def test_an_equal_class_waits_for_a_slot() -> None:
    bench = Bench(40, SchedulerLimits(1, 16, 4))
    bench.submit(3, 10)
    bench.step()
    bench.submit(3, 2)
    assert bench.step().preempted == ()


def test_nobody_is_put_out_where_that_would_not_make_room() -> None:
    bench = Bench(10, SchedulerLimits(4, 64, 8))
    bench.submit(24, 8, Priority.INTERACTIVE)
    bench.submit(3, 4, Priority.BATCH)
    bench.step()
    bench.submit(30, 4, Priority.INTERACTIVE)
    assert bench.step().preempted == ()


def test_two_growing_sequences_in_a_cache_for_one_and_a_half_both_finish() -> None:
    bench = Bench(15, SchedulerLimits(4, 16, 4))
    first, second = bench.submit(4, 36), bench.submit(4, 36)
    bench.run()
    assert bench.finished == [1, 2]
    assert (first.preemptions, second.preemptions) == (0, 1)


def test_the_latest_of_the_lowest_class_gives_way_when_pages_run_out() -> None:
    bench = Bench(12, SchedulerLimits(4, 32, 4))
    bench.submit(4, 30, Priority.NORMAL)
    bench.submit(4, 30, Priority.BATCH)
    bench.submit(4, 30, Priority.NORMAL)
    put_out: list[int] = []
    while not bench.finished:
        put_out += bench.step().preempted
    assert put_out == [2, 3]


def test_a_preempted_sequence_keeps_its_tokens_and_finds_its_pages_again() -> None:
    bench = Bench(15, SchedulerLimits(4, 16, 4))
    bench.submit(4, 36)
    second = bench.submit(4, 36)
    while not second.preemptions:
        bench.step()
    tokens = list(second.tokens)
    assert second.computed == 0
    while second.status is Status.WAITING:
        bench.step()
    assert second.tokens[: len(tokens)] == tokens
    bench.run()
    assert second.generated == 36


def test_what_could_never_fit_is_refused_with_the_numbers() -> None:
    bench = Bench(10, SchedulerLimits(4, 16, 4))
    with pytest.raises(NeverFits) as refused:
        bench.submit(30, 11)
    assert (refused.value.needed, refused.value.available) == (41, 40)
    bench.submit(30, 10)
    bench.run()
    assert bench.finished == [1]


def test_the_models_context_limits_a_request_too() -> None:
    bench = Bench(10, SchedulerLimits(4, 16, 4), max_context=20)
    with pytest.raises(NeverFits):
        bench.submit(15, 6)


def test_endless_decodes_do_not_hold_up_a_prompt_beyond_its_share() -> None:
    limits = SchedulerLimits(65, 96, 24)
    bench = Bench(4000, limits)
    for _ in range(64):
        bench.submit(2, 1000)
    while any(not s.generated for s in bench.sequences.values()):
        bench.step()
    prompt = bench.submit(2000, 1)
    steps = 0
    while not prompt.generated:
        bench.step()
        steps += 1
    assert steps <= -(-2000 // limits.prefill_tokens)


def test_a_shared_beginning_is_not_computed_again() -> None:
    bench = Bench(40, SchedulerLimits(4, 64, 8))
    bench.submit([*range(20), 90], 1)
    bench.run()
    second = bench.submit([*range(20), 91, 92], 1)
    assert entries(bench.step()) == [(2, 20, 2)]
    assert second.cached_tokens == 20


def test_the_first_in_line_is_not_overtaken_by_one_that_would_fit() -> None:
    bench = Bench(12, SchedulerLimits(4, 64, 8))
    bench.submit(20, 8)
    bench.step()
    bench.submit(28, 4)
    bench.submit(2, 1)
    assert bench.step().admitted == ()
    while not bench.finished:
        bench.step()
    assert bench.step().admitted == (2, 3)


def test_nobody_is_let_in_only_to_be_put_out_by_the_next_steps_growth() -> None:
    bench = Bench(8, SchedulerLimits(4, 64, 8))
    bench.submit(16, 8)
    bench.step()
    bench.submit(11, 6)
    put_out: list[int] = []
    while not bench.scheduler.idle:
        put_out += bench.step().preempted
    assert put_out == []
    assert bench.finished == [1, 2]


def test_pages_found_again_after_preemption_are_not_reported_as_cached_prompt() -> None:
    bench = Bench(15, SchedulerLimits(4, 16, 4))
    bench.submit(4, 36)
    second = bench.submit(8, 32)
    bench.run()
    assert second.preemptions
    assert second.cached_tokens == 0


def test_equal_histories_give_equal_plans() -> None:
    histories = []
    for _ in range(2):
        bench = Bench(20, SchedulerLimits(3, 20, 4))
        for n in range(8):
            bench.submit(3 + 5 * n % 17, 5 + n, Priority(n % 3))
        plans = []
        while not bench.scheduler.idle:
            plans.append(bench.step())
        histories.append(plans)
    assert histories[0] == histories[1]


class SchedulerMachine(RuleBasedStateMachine):
    """Anything may happen in any order."""

    @initialize(pages=st.integers(3, 24), slots=st.integers(1, 5), share=st.integers(1, 8), spare=st.integers(0, 16))
    def start(self, pages: int, slots: int, share: int, spare: int) -> None:
        self.bench = Bench(pages, SchedulerLimits(slots, slots + share + spare, share))

    @rule(
        shared=st.integers(0, 20),
        own=st.integers(1, 20),
        answer=st.integers(1, 30),
        priority=st.sampled_from(Priority),
        domain=st.sampled_from("xy"),
    )
    def submit(self, shared: int, own: int, answer: int, priority: Priority, domain: str) -> None:
        name = len(self.bench.sequences) + 1
        prompt = [*range(shared), *(1000 * name + i for i in range(own))]
        if len(prompt) + answer <= self.bench.scheduler.capacity:
            self.bench.submit(prompt, answer, priority, domain)
        else:
            with pytest.raises(NeverFits):
                self.bench.submit(prompt, answer, priority, domain)

    @rule(pick=st.integers(0, 1000))
    def cancel(self, pick: int) -> None:
        unfinished = [s for s in self.bench.sequences.values() if s.status is not Status.FINISHED]
        if unfinished:
            self.bench.scheduler.remove([unfinished[pick % len(unfinished)]])

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.bench.step()

    @rule()
    def failing_step(self) -> None:
        self.bench.step(fail=True)

    @rule(run=st.integers(2, 5), pick=st.integers(0, 1000))
    def force_a_run(self, run: int, pick: int) -> None:
        running = [s for s in self.bench.scheduler.running if s.max_tokens - s.generated > run]
        if running:
            sequence = running[pick % len(running)]
            sequence.tokens += range(run)

    @invariant()
    def accounting_holds(self) -> None:
        if hasattr(self, "bench"):
            assert self.bench.wrong() == []

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.run()
        assert self.bench.pool.available == self.bench.pool.pages
        assert self.bench.pool.snapshot().tables == {}


SchedulerMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestAnyOrderOfEvents = SchedulerMachine.TestCase
