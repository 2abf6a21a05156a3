from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge_rag.core.decision import DecisionKind
from edge_rag.core.query import Priority
from edge_rag.errors import NeverFits
from edge_rag.generator.kv.invariants import violations
from edge_rag.generator.kv.passages import PassageSpan
from edge_rag.generator.kv.pool import PagePool
from edge_rag.generator.kv.prefix import PageId
from edge_rag.generator.kv.reservation import Reservation
from edge_rag.generator.packing import moves, pack
from edge_rag.generator.plan import Displacement, StepPlan, Verdict
from edge_rag.generator.policy import SchedulerLimits
from edge_rag.generator.scheduler import Scheduler
from edge_rag.generator.sequence import Deferral, Sequence, SequenceId, Status
from tests.unit.generator.decisions import assert_legal

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
        self.verdicts: dict[SequenceId, list[Verdict]] = {}
        self.content: dict[int, int] = {}

    def submit(
        self,
        prompt: int | list[int],
        max_tokens: int,
        priority: Priority = Priority.NORMAL,
        domain: str = "d",
        client: str = "c",
        deadline: float | None = None,
        spans: tuple[PassageSpan, ...] = (),
    ) -> Sequence:
        name = SequenceId(len(self.sequences) + 1)
        tokens = prompt if isinstance(prompt, list) else [1000 * name + i for i in range(prompt)]
        sequence = Sequence(
            name, priority, domain, list(tokens), max_tokens, client=client, arrived=self.now, deadline=deadline
        )
        sequence.spans = spans
        self.scheduler.submit(sequence, self.now)
        self.sequences[name] = sequence
        self.verdicts[name] = []
        return sequence

    def kinds(self, sequence: Sequence) -> list[DecisionKind]:
        return [verdict.kind for verdict in self.verdicts[sequence.id]]

    def step(self, fail: bool = False, draft: int = 0, right: int = 0) -> StepPlan:
        """Runs a step.

        Args:
            fail: Whether the model fails.
            draft: Tokens that each sequence drafts.
            right: How many of them are right.
        """
        for sequence in self.scheduler.running:
            room = sequence.max_tokens - sequence.generated - 1
            comes = range(len(sequence.tokens), len(sequence.tokens) + right)
            sequence.draft = (*comes, *[7] * draft)[: min(draft, room)] if sequence.pending == 1 else ()
        plan = self.scheduler.schedule(self.now)
        self.now += 1
        self.check(plan)
        if fail:
            with Reservation(self.pool, plan):
                pass
            self.scheduler.remove([self.sequences[entry.sequence] for entry in plan.entries])
            return plan
        with Reservation(self.pool, plan) as pages:
            self.check_writes(plan, pages.tables)
            self.compute(plan, pages.tables)
            accepted = {entry.sequence: min(right, entry.drafted) for entry in plan.entries}
            pages.commit(accepted)
        self.scheduler.commit(plan)
        for entry in plan.entries:
            sequence = self.sequences[entry.sequence]
            if entry.wants_logits:
                said = accepted[entry.sequence] + 1
                sequence.tokens += range(len(sequence.tokens), len(sequence.tokens) + said)
                if sequence.generated == sequence.max_tokens:
                    self.scheduler.remove([sequence])
                    self.finished.append(sequence.id)
                else:
                    self.scheduler.accept(sequence, said - 1)
        return plan

    def compute(self, plan: StepPlan, tables: Mapping[SequenceId, tuple[PageId, ...]]) -> None:
        """Copies and writes tokens where a model would their keys and values."""
        for move in moves(plan, tables, PAGE):
            copied = [self.content[slot] for slot in move.sources.tolist()]
            self.content.update(zip(move.targets.tolist(), copied, strict=True))
        if plan.entries:
            step = pack(plan, self.sequences, tables, PAGE)
            assert len(set(step.slot_mapping.tolist())) == plan.tokens
            self.content.update(zip(step.slot_mapping.tolist(), step.input_ids.tolist(), strict=True))

    def check_writes(self, plan: StepPlan, tables: Mapping[SequenceId, tuple[PageId, ...]]) -> None:
        """Nobody writes to a page that another holds or could find."""
        before = self.pool.snapshot()
        for entry in plan.entries:
            end = entry.end + entry.drafted
            written = tables[entry.sequence][entry.first // PAGE : -(-end // PAGE)]
            assert len(written) == -(-end // PAGE) - entry.first // PAGE
            assert all(before.references[page] == 1 and page not in before.parents for page in written)

    def check(self, plan: StepPlan) -> None:
        for verdict in plan.verdicts:
            self.verdicts[verdict.sequence].append(verdict)
        assert plan.tokens <= self.limits.max_step_tokens
        assert len(self.scheduler.running) <= max(self.limits.max_slots, self.scheduler.limits.max_slots)
        assert len({entry.sequence for entry in plan.entries}) == len(plan.entries)
        for entry in plan.entries:
            sequence = self.sequences[entry.sequence]
            assert sequence.status is Status.RUNNING
            assert entry.first == sequence.computed
            assert entry.wants_logits == (entry.end == len(sequence.tokens))
            assert entry.drafted <= len(sequence.draft)
        assert plan.tokens <= self.scheduler.limits.max_step_tokens
        if not self.scheduler.idle:
            assert plan.entries, "there was work, and none of it was planned"

    def pause(self, sequence: Sequence) -> None:
        numbers = self.scheduler.pause(sequence)
        self.verdicts[sequence.id].append(Verdict(DecisionKind.PAUSED, sequence.id, "its reader is slow", numbers))

    def run(self) -> int:
        """Steps until there is nothing to do; returns the number of steps."""
        steps = 0
        while not self.scheduler.idle:
            self.step()
            steps += 1
            assert steps < 10_000, "livelock"
        return steps

    def wrong(self) -> list[str]:
        held = {s.id: s.computed for s in self.scheduler.running}
        return violations(self.pool.snapshot(), held) + [
            f"sequence {s.id} has something else than its token {position} in the cache"
            for s in self.scheduler.running
            for position, token in enumerate(s.tokens[: s.computed])
            if self.content[self.pool.table(s.id)[position // PAGE] * PAGE + position % PAGE] != token
        ]


BEGINNING = tuple(range(6))


def alone(passage: int) -> tuple[int, ...]:
    """The beginning of every prompt, a passage, and what fills up its last page."""
    text = (*BEGINNING, *range(500 + 20 * passage, 500 + 20 * passage + 7 + passage))
    return (*text, *[9] * (-len(text) % PAGE + 1))


def with_passages(passages: Iterable[int], recompute: int) -> tuple[list[int], tuple[PassageSpan, ...]]:
    """A prompt of passages, and where they are."""
    prompt, spans = list(BEGINNING), []
    for passage in passages:
        text = alone(passage)[len(BEGINNING) : len(BEGINNING) + 7 + passage]
        start, offset = len(prompt) + recompute, len(BEGINNING) + recompute
        spans.append(PassageSpan(start, len(text) - recompute, alone(passage), offset))
        prompt += text
    return [*prompt, 9], tuple(spans)


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


def test_a_batch_request_finishes_however_many_interactive_ones_come() -> None:
    bench = Bench(40, SchedulerLimits(2, 64, 8), aging_s=20)
    low = bench.submit(3, 15, Priority.BATCH, client="nightly")
    for _ in range(400):
        bench.submit(3, 4, Priority.INTERACTIVE, client="counter")
        bench.step()
        if low.status is Status.FINISHED:
            break
    assert low.status is Status.FINISHED
    assert len(bench.scheduler.waiting) > 20, "there was no overload"


def test_a_batch_request_that_is_put_out_again_and_again_finishes_too() -> None:
    bench = Bench(40, SchedulerLimits(1, 64, 8), aging_s=20)
    low = bench.submit(3, 60, Priority.BATCH)
    for step in range(500):
        if step % 4 == 0:
            bench.submit(3, 2, Priority.INTERACTIVE, client="counter")
        bench.step()
        if low.status is Status.FINISHED:
            break
    assert low.status is Status.FINISHED
    assert low.preemptions > 5
    assert low.level is Priority.INTERACTIVE


def test_aging_interrupts_nobody() -> None:
    bench = Bench(400, SchedulerLimits(4, 64, 8), aging_s=10)
    for _ in range(40):
        bench.submit(3, 30, Priority.BATCH)
    bench.run()
    assert sum(s.preemptions for s in bench.sequences.values()) == 0
    assert bench.finished == sorted(bench.finished)


def test_a_request_that_has_risen_is_not_displaced_any_more() -> None:
    bench = Bench(40, SchedulerLimits(1, 64, 8), aging_s=10)
    bench.submit(3, 25, Priority.NORMAL)
    low = bench.submit(3, 20, Priority.BATCH)
    while low.status is not Status.RUNNING:
        bench.step()
    bench.submit(3, 2, Priority.INTERACTIVE)
    bench.run()
    assert low.level is Priority.INTERACTIVE
    assert bench.finished == [1, 2, 3]


def test_an_interactive_request_does_not_wait_behind_a_batch_request_that_has_risen_and_lacks_a_slot() -> None:
    bench = Bench(40, SchedulerLimits(1, 64, 8), aging_s=10)
    running = bench.submit(3, 100, Priority.BATCH, client="a")
    bench.step()
    risen = bench.submit(3, 4, Priority.BATCH, client="b")
    for _ in range(25):
        bench.step()
    assert risen.level is Priority.INTERACTIVE
    bench.submit(3, 4, Priority.INTERACTIVE, client="c")
    plan = bench.step()
    assert (plan.preempted, plan.admitted) == ((running.id,), (3,))
    bench.run()
    assert bench.finished == [3, 2, 1]


def test_one_client_with_a_hundred_requests_does_not_shut_out_one_with_a_single_one() -> None:
    def longest_wait(queued: int, moments: range) -> float:
        """Most steps that a single request waits while another client has all slots, and so many requests more."""
        waits = []
        for moment in moments:
            bench = Bench(400, SchedulerLimits(4, 64, 8), aging_s=30)
            for n in range(4 + queued):
                bench.submit(3, 20 + n % 7, client="busy")
            for _ in range(moment):
                bench.step()
            single = bench.submit(3, 10, client="quiet")
            came = bench.now
            while single.status is not Status.RUNNING:
                bench.step()
            waits.append(bench.now - came)
        return max(waits)

    alone = longest_wait(0, range(1, 20))
    assert alone > 10
    assert longest_wait(96, range(100, 140, 3)) <= 2 * alone


def test_clients_that_always_have_work_get_equal_service() -> None:
    bench = Bench(400, SchedulerLimits(4, 64, 8))
    for _ in range(60):
        bench.submit(4, 40, client="long answers")
        for _ in range(5):
            bench.submit(4, 5, client="short answers")
    served = dict.fromkeys(["long answers", "short answers"], 0)
    while len(bench.finished) < 200:
        for entry in bench.step().entries:
            served[bench.sequences[entry.sequence].client] += entry.count
    assert max(served.values()) < 1.3 * min(served.values())


def test_a_sequence_put_out_for_pages_comes_back_only_to_more_room_each_time() -> None:
    bench = Bench(60, SchedulerLimits(8, 64, 8))
    for n in range(40):
        bench.submit(4 + n % 5, 100)
    bench.run()
    shortages = [s.shortages for s in bench.sequences.values()]
    assert max(shortages) >= 1
    # A neighbour grows by at most 25 pages, so five doublings leave no room to run out again.
    assert max(shortages) <= 6


def test_fewer_slots_let_nobody_in_until_enough_have_left_and_put_nobody_out() -> None:
    bench = Bench(100, SchedulerLimits(4, 64, 8))
    for n in range(8):
        bench.submit(3, 10 + n)
    bench.step()
    bench.scheduler.resize(2)
    while len(bench.finished) < 2:
        assert bench.step().verdicts == ()
    assert bench.step().admitted == ()
    bench.run()
    assert all(s.preemptions == 0 for s in bench.sequences.values())


def test_every_decision_says_why_and_on_which_numbers() -> None:
    bench = Bench(40, SchedulerLimits(1, 16, 4))
    low = bench.submit(3, 10, Priority.BATCH, client="a")
    behind = bench.submit(3, 10, Priority.BATCH, client="a")
    third = bench.submit(3, 10, Priority.BATCH, client="a")
    bench.step()
    urgent = bench.submit(5, 2, Priority.INTERACTIVE, client="b")
    bench.step()
    bench.run()
    (admitted, preempted, _, resumed) = bench.verdicts[low.id]
    expected: dict[str, float] = {"slots": 1, "slots_busy": 0, "prompt_tokens": 3, "cached_tokens": 0}
    assert {name: admitted.numbers[name] for name in expected} == expected
    assert (preempted.kind, preempted.in_favour_of) == (DecisionKind.PREEMPTED, urgent.id)
    assert preempted.reason == Displacement.SLOT.value
    expected = {"class": 0, "class_of_preempted": 2, "computed_tokens": 3, "pages_held": 1}
    assert {name: preempted.numbers[name] for name in expected} == expected
    assert (resumed.kind, resumed.numbers["cached_tokens"], resumed.numbers["recompute_tokens"]) == (
        DecisionKind.RESUMED,
        0,
        4,
    )
    said = [(v.kind, v.reason) for v in bench.verdicts[behind.id]]
    assert said[0] == (DecisionKind.DEFERRED, Deferral.SLOTS.value)
    assert bench.verdicts[third.id][0].reason == Deferral.ORDER.value
    assert bench.verdicts[third.id][-1].numbers["client_service_tokens"] > 0
    assert all(v.numbers["waited_s"] >= 0 for verdicts in bench.verdicts.values() for v in verdicts)


def test_waiting_is_said_once_for_each_reason() -> None:
    bench = Bench(10, SchedulerLimits(2, 64, 8))
    bench.submit(20, 15)
    bench.submit(2, 3)
    blocked = bench.submit(24, 10)
    bench.run()
    assert [v.reason for v in bench.verdicts[blocked.id]][:-1] == [Deferral.SLOTS.value, Deferral.PAGES.value]


def test_drafts_take_what_a_step_has_to_spare() -> None:
    bench = Bench(40, SchedulerLimits(4, 16, 4))
    bench.submit(3, 40)
    bench.submit(3, 40)
    bench.step()
    plan = bench.step(draft=10, right=3)
    assert [(entry.count, entry.drafted) for entry in plan.entries] == [(1, 10), (1, 4)]
    assert [s.computed for s in bench.sequences.values()] == [7, 7]
    bench.submit(30, 5)
    assert [(entry.count, entry.drafted) for entry in bench.step(draft=10).entries] == [(1, 0), (1, 0), (14, 0)]


def test_nobody_gives_way_to_a_draft() -> None:
    bench = Bench(7, SchedulerLimits(4, 32, 4))
    bench.submit(9, 11)
    bench.submit(9, 3)
    bench.step()
    plan = bench.step(draft=10, right=10)
    assert plan.preempted == ()
    assert [entry.drafted for entry in plan.entries] == [6, 1]
    assert bench.wrong() == []


def test_pages_of_what_was_drafted_in_vain_are_free_again() -> None:
    bench = Bench(20, SchedulerLimits(4, 32, 4))
    sequence = bench.submit(3, 30)
    bench.step()
    bench.step(draft=12, right=0)
    assert bench.pool.held(sequence.id) == 1
    bench.step(draft=12, right=12)
    assert bench.pool.held(sequence.id) == 5


def test_what_was_computed_alone_is_copied_and_the_rest_computed() -> None:
    bench = Bench(60, SchedulerLimits(4, 64, 8))
    for passage in (2, 3):
        bench.submit(list(alone(passage)), 1)
    bench.run()
    prompt, spans = with_passages((1, 2, 3), recompute=2)
    sequence = bench.submit(prompt, 3, spans=spans)
    plan = bench.step()
    (entry,) = plan.entries
    assert [(loan.start, loan.length) for loan in entry.loans] == [(16, 7), (25, 8)]
    assert entry.count == len(prompt) - 7 - 8 - sequence.cached_tokens
    assert (sequence.copied_tokens, sequence.cached_tokens) == (15, 4)
    assert bench.wrong() == []
    bench.run()
    again = bench.submit(prompt, 1)
    bench.step()
    assert again.cached_tokens == 16, "an approximation is nobody else's prefix"


def test_pages_that_run_out_are_not_kept_for_copying() -> None:
    bench = Bench(17, SchedulerLimits(4, 12, 4))
    for passage in (1, 2, 3):
        bench.submit(list(alone(passage)), 1)
    bench.run()
    prompt, spans = with_passages((3, 2, 1), recompute=1)
    bench.submit(prompt, 12, spans=spans)
    bench.submit(4, 20)
    bench.run()
    assert bench.finished[-2:] in ([4, 5], [5, 4])


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
            with pytest.raises(NeverFits):
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
        self.bench.scheduler.resize(1 + pick % self.bench.limits.max_slots)

    @rule(passes=st.integers(1, 30))
    def let_time_pass(self, passes: int) -> None:
        self.bench.now += passes

    @invariant()
    def decisions_are_legal(self) -> None:
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
        self.decisions_are_legal()
        assert self.bench.pool.available == self.bench.pool.pages
        assert self.bench.pool.snapshot().tables == {}


SchedulerMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestAnyOrderOfEvents = SchedulerMachine.TestCase
