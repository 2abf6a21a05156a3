"""Random operations on a scheduler keep its accounting and its events right."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge_rag.core.query import Priority
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.engine.sequence import Status
from edge_rag.errors import RequestTooLarge
from tests.support.examples import examples
from tests.unit.engine.recorded_events import assert_legal
from tests.unit.engine.scheduling.scheduler_bench import Bench, alone, with_passages


class SchedulerMachine(RuleBasedStateMachine):
    """Anything may happen in any order."""

    @initialize(
        pages=st.integers(3, 24),
        slots=st.integers(1, 5),
        share=st.integers(1, 8),
        spare=st.integers(0, 16),
        aging_s=st.sampled_from([2.0, 20.0, inf]),
    )
    def start(self, pages: int, slots: int, share: int, spare: int, aging_s: float) -> None:
        self.bench = Bench(pages, SchedulerLimits(slots, slots + share + spare, share), aging_s=aging_s)

    @rule(
        shared=st.integers(0, 20),
        own=st.integers(1, 20),
        answer=st.integers(1, 30),
        priority=st.sampled_from(Priority),
        domain=st.sampled_from("xy"),
        client=st.sampled_from("abc"),
        allowance=st.none() | st.integers(1, 50),
    )
    def submit(
        self, shared: int, own: int, answer: int, priority: Priority, domain: str, client: str, allowance: int | None
    ) -> None:
        name = len(self.bench.sequences) + 1
        prompt = [*range(shared), *(1000 * name + i for i in range(own))]
        deadline = None if allowance is None else self.bench.now + allowance
        if len(prompt) + answer <= self.bench.scheduler.capacity:
            self.bench.submit(prompt, answer, priority, domain, client, deadline)
        else:
            with pytest.raises(RequestTooLarge):
                self.bench.submit(prompt, answer, priority, domain, client, deadline)

    @rule(
        passages=st.lists(st.integers(0, 3), max_size=3),
        recompute=st.integers(0, 6),
        answer=st.integers(1, 20),
        priority=st.sampled_from(Priority),
        domain=st.sampled_from("xy"),
    )
    def submit_with_passages(
        self, passages: list[int], recompute: int, answer: int, priority: Priority, domain: str
    ) -> None:
        prompt, spans = with_passages(passages, recompute)
        if len(prompt) + answer <= self.bench.scheduler.capacity:
            self.bench.submit(prompt, answer, priority, domain, spans=spans)

    @rule(passage=st.integers(0, 3), domain=st.sampled_from("xy"))
    def compute_a_passage_alone(self, passage: int, domain: str) -> None:
        if len(alone(passage)) < self.bench.scheduler.capacity:
            self.bench.submit(list(alone(passage)), 1, domain=domain)

    @rule(pick=st.integers(0, 1000))
    def cancel(self, pick: int) -> None:
        unfinished = [s for s in self.bench.sequences.values() if s.status is not Status.FINISHED]
        if unfinished:
            self.bench.scheduler.remove([unfinished[pick % len(unfinished)]])

    @rule(pick=st.integers(0, 1000))
    def pause(self, pick: int) -> None:
        states = (Status.WAITING, Status.RUNNING)
        unfinished = [s for s in self.bench.sequences.values() if s.status in states]
        if unfinished:
            self.bench.pause(unfinished[pick % len(unfinished)])

    @rule(pick=st.integers(0, 1000))
    def resume(self, pick: int) -> None:
        paused = [s for s in self.bench.sequences.values() if s.status is Status.PAUSED]
        if paused:
            self.bench.scheduler.resume(paused[pick % len(paused)], self.bench.now)

    @rule(count=st.integers(1, 6), draft=st.integers(0, 12), right=st.integers(0, 12))
    def step(self, count: int, draft: int, right: int) -> None:
        for _ in range(count):
            self.bench.step(draft=draft, right=right)

    @rule()
    def failing_step(self) -> None:
        self.bench.step(fail=True)

    @rule(run=st.integers(2, 5), pick=st.integers(0, 1000))
    def force_a_run(self, run: int, pick: int) -> None:
        running = [s for s in self.bench.scheduler.running if s.max_tokens - s.generated > run]
        if running:
            sequence = running[pick % len(running)]
            sequence.tokens += range(run)

    @rule(pick=st.integers(0, 1000))
    def resize(self, pick: int) -> None:
        limits = self.bench.limits
        self.bench.scheduler.limit(replace(limits, max_slots=1 + pick % limits.max_slots))

    @rule(passes=st.integers(1, 30))
    def let_time_pass(self, passes: int) -> None:
        self.bench.now += passes

    @invariant()
    def events_are_legal(self) -> None:
        if hasattr(self, "bench"):
            for sequence in self.bench.sequences.values():
                assert_legal(self.bench.kinds(sequence), ended=False)

    @invariant()
    def accounting_holds(self) -> None:
        if hasattr(self, "bench"):
            assert self.bench.wrong() == []

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        for sequence in self.bench.sequences.values():
            if sequence.status is Status.PAUSED:
                self.bench.scheduler.resume(sequence, self.bench.now)
        self.bench.run()
        self.events_are_legal()
        assert self.bench.pool.available == self.bench.pool.pages
        assert self.bench.pool.snapshot().tables == {}


SchedulerMachine.TestCase.settings = settings(max_examples=examples(120), stateful_step_count=40, deadline=None)
TestAnyOrderOfEvents = SchedulerMachine.TestCase
