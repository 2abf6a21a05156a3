"""What the scheduler plans, admits and preempts."""

from dataclasses import replace

import pytest

from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.query import Priority
from edge_rag.engine.scheduling.plan import PreemptionReason
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.engine.sequence import Status, WaitReason
from edge_rag.errors import RequestTooLarge
from tests.unit.engine.scheduling.scheduler_bench import Bench, alone, entries, with_passages


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


def test_no_sequence_is_preempted_if_that_would_not_make_room() -> None:
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
    with pytest.raises(RequestTooLarge) as refused:
        bench.submit(30, 11)
    assert (refused.value.needed, refused.value.available) == (41, 40)
    bench.submit(30, 10)
    bench.run()
    assert bench.finished == [1]


def test_the_models_context_limits_a_request_too() -> None:
    bench = Bench(10, SchedulerLimits(4, 16, 4), max_context=20)
    with pytest.raises(RequestTooLarge):
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


def test_a_sequence_preempted_for_pages_needs_more_room_each_time() -> None:
    bench = Bench(60, SchedulerLimits(8, 64, 8))
    for n in range(40):
        bench.submit(4 + n % 5, 100)
    bench.run()
    shortages = [s.shortages for s in bench.sequences.values()]
    assert max(shortages) >= 1
    # A neighbour grows by at most 25 pages, so five doublings leave no room to run out again.
    assert max(shortages) <= 6


def test_fewer_slots_admit_none_until_enough_are_free_and_preempt_none() -> None:
    bench = Bench(100, SchedulerLimits(4, 64, 8))
    for n in range(8):
        bench.submit(3, 10 + n)
    bench.step()
    bench.scheduler.limit(replace(bench.limits, max_slots=2))
    while len(bench.finished) < 2:
        assert bench.step().events == ()
    assert bench.step().admitted == ()
    bench.run()
    assert all(s.preemptions == 0 for s in bench.sequences.values())


def test_every_event_has_a_reason_and_its_numbers() -> None:
    bench = Bench(40, SchedulerLimits(1, 16, 4))
    low = bench.submit(3, 10, Priority.BATCH, client="a")
    behind = bench.submit(3, 10, Priority.BATCH, client="a")
    third = bench.submit(3, 10, Priority.BATCH, client="a")
    bench.step()
    urgent = bench.submit(5, 2, Priority.INTERACTIVE, client="b")
    bench.step()
    bench.run()
    (admitted, preempted, _, resumed) = bench.events[low.id]
    expected: dict[str, float] = {"slots": 1, "slots_busy": 0, "prompt_tokens": 3, "cached_tokens": 0}
    assert {name: admitted.numbers[name] for name in expected} == expected
    assert (preempted.kind, preempted.preempted_for) == (AuditEventKind.PREEMPTED, urgent.id)
    assert preempted.reason == PreemptionReason.SLOT.value
    expected = {"class": 0, "class_of_preempted": 2, "computed_tokens": 3, "pages_held": 1}
    assert {name: preempted.numbers[name] for name in expected} == expected
    assert (resumed.kind, resumed.numbers["cached_tokens"], resumed.numbers["recompute_tokens"]) == (
        AuditEventKind.RESUMED,
        0,
        4,
    )
    recorded = [(v.kind, v.reason) for v in bench.events[behind.id]]
    assert recorded[0] == (AuditEventKind.DEFERRED, WaitReason.SLOTS.value)
    assert bench.events[third.id][0].reason == WaitReason.ORDER.value
    assert bench.events[third.id][-1].numbers["client_service_tokens"] > 0
    assert all(v.numbers["waited_s"] >= 0 for events in bench.events.values() for v in events)


def test_a_wait_is_recorded_once_for_each_reason() -> None:
    bench = Bench(10, SchedulerLimits(2, 64, 8))
    bench.submit(20, 15)
    bench.submit(2, 3)
    blocked = bench.submit(24, 10)
    bench.run()
    assert [v.reason for v in bench.events[blocked.id]][:-1] == [WaitReason.SLOTS.value, WaitReason.PAGES.value]


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


def test_what_was_drafted_before_a_sequence_gave_its_slot_up_is_not_tried_after_it() -> None:
    bench = Bench(20, SchedulerLimits(4, 32, 28))
    sequence = bench.submit(3, 30)
    bench.step()
    bench.step(draft=2, right=0)
    bench.pause(sequence)
    bench.scheduler.resume(sequence, bench.now)
    plan = bench.step()
    assert [(entry.end, entry.drafted) for entry in plan.entries] == [(5, 0)]


def test_what_was_computed_alone_is_copied_and_the_rest_computed() -> None:
    bench = Bench(60, SchedulerLimits(4, 64, 8))
    for passage in (2, 3):
        bench.submit(list(alone(passage)), 1)
    bench.run()
    prompt, spans = with_passages((1, 2, 3), recompute=2)
    sequence = bench.submit(prompt, 3, spans=spans)
    plan = bench.step()
    (entry,) = plan.entries
    assert [(copy.start, copy.length) for copy in entry.copies] == [(16, 7), (25, 8)]
    assert entry.count == len(prompt) - 7 - 8 - sequence.cached_tokens
    assert (sequence.copied_tokens, sequence.cached_tokens) == (15, 4)
    assert bench.wrong() == []
    bench.run()
    again = bench.submit(prompt, 1)
    bench.step()
    assert again.cached_tokens == 16, "an approximation is not shared as a prefix"


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
