from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from edge_rag.core.query import Priority
from edge_rag.engine.scheduling.plan import PlanEntry
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.engine.sequence import SequenceId
from edge_rag.throttle.policy import HeatThresholds, ThrottlePolicy
from tests.unit.engine.scheduling.simulation.arrivals import Arrival, Shape, Trace, arrivals
from tests.unit.engine.scheduling.simulation.box import Box, Policy, Record, Simulation
from tests.unit.engine.scheduling.simulation.heat import Board
from tests.unit.engine.scheduling.simulation.report import fairness, summary
from tests.unit.engine.scheduling.simulation.step_time import StepTime

TIME = StepTime(base_s=0.002, decode_s=0.002, prefill_token_s=0.0002, context_s=0.0)
BOX = Box(limits=SchedulerLimits(8, 256, 62), pages=512, page_tokens=32, max_context=4096, step_time=TIME, queue=10_000)


def flood(requests: int = 600) -> Iterator[Arrival]:
    return arrivals(Trace.FLOOD, Shape.CHAT, requests, 1.6, clients=4, batch_share=0.0, seed=1)


def first_tokens(record: Record, client: str) -> list[float]:
    index = record.clients[client]
    return [t for t, owner in zip(record.first_token_s, record.client, strict=True) if owner == index]


@pytest.fixture(scope="module")
def runs() -> dict[Policy, Record]:
    return {policy: Simulation(BOX, policy).run(flood()) for policy in Policy}


@pytest.mark.parametrize("policy", Policy)
def test_every_request_that_was_taken_in_finishes(runs: dict[Policy, Record], policy: Policy) -> None:
    record = runs[policy]
    assert (record.finished, record.refused) == (600, 0)
    assert all(
        0 <= q < t <= c for q, t, c in zip(record.queue_s, record.first_token_s, record.completion_s, strict=True)
    )
    assert record.output_tokens == sum(a.output_tokens for a in flood())


def test_a_flooding_client_holds_up_the_others_less_than_in_order_of_arrival(runs: dict[Policy, Record]) -> None:
    for client in ("client 1", "client 2", "client 3", "client 4"):
        fair, fcfs = (np.percentile(first_tokens(runs[p], client), 95) for p in (Policy.FAIR, Policy.FCFS))
        assert fair < fcfs / 5
    assert fairness(runs[Policy.FAIR]) > fairness(runs[Policy.FCFS]) + 0.2


def test_preemption_costs_little_and_nothing_where_there_is_none(runs: dict[Policy, Record]) -> None:
    fair, fcfs = summary(runs[Policy.FAIR]), summary(runs[Policy.FCFS])
    assert (fcfs["preemptions"], fcfs["recomputed_share"]) == (0, 0)
    assert fair["preemptions"] > 0
    assert 0 < fair["recomputed_share"] < 0.1


def test_no_slot_stays_empty_while_requests_wait(runs: dict[Policy, Record]) -> None:
    assert runs[Policy.FAIR].occupancy >= 0.97
    assert runs[Policy.FAIR].seconds == pytest.approx(runs[Policy.FCFS].seconds, rel=0.05)


def test_a_batch_request_finishes_under_a_lasting_overload_of_interactive_ones() -> None:
    urgent = [Arrival(0.05 * n, f"client {n % 5}", Priority.INTERACTIVE, 200, 20, 64) for n in range(2000)]
    low = Arrival(1.01, "nightly", Priority.BATCH, 200, 20, 64)
    box = replace(BOX, limits=SchedulerLimits(2, 64, 16), aging_s=5.0)
    record = Simulation(box, Policy.FAIR).run(sorted([*urgent, low], key=lambda a: a.at_s))
    (taken,) = first_tokens(record, "nightly")
    assert record.seconds > 105, "there was no overload"
    assert taken < 20


def test_a_longer_step_is_never_a_shorter_one() -> None:
    time_of = StepTime(1.0, 0.1, 0.01, 0.001)
    decodes = tuple(PlanEntry(SequenceId(n), 9, 1, True) for n in range(3))
    assert time_of.of(decodes) == pytest.approx(1 + 3 * 0.1 + 3 * 10 * 0.001)
    prefill = (*decodes, PlanEntry(SequenceId(9), 0, 4, True))
    assert time_of.of(prefill) == pytest.approx(time_of.of(decodes) + 4 * 0.01 + (1 + 2 + 3 + 4) * 0.001)


def test_alone_on_the_box_a_request_takes_as_long_as_reckoned() -> None:
    alone = Simulation(BOX, Policy.FAIR).run([Arrival(0.0, "c", Priority.NORMAL, 500, 100, 100)])
    assert alone.completion_s[0] == pytest.approx(TIME.alone(500, 100, 256), rel=0.02)


def test_a_full_queue_refuses_in_the_simulation_too() -> None:
    record = Simulation(replace(BOX, queue=20), Policy.FAIR).run(flood(200))
    assert record.refused > 0
    assert record.finished + record.refused == 200


@pytest.mark.parametrize("trace", Trace)
def test_traces_are_ordered_reproducible_and_of_the_requested_rate(trace: Trace) -> None:
    def make(seed: int) -> list[Arrival]:
        return list(arrivals(trace, Shape.QUOTE, 20_000, 5.0, clients=6, batch_share=0.3, seed=seed))

    made = make(2)
    assert all(a.at_s <= b.at_s for a, b in pairwise(made))
    assert made[-1].at_s == pytest.approx(20_000 / 5.0, rel=0.1)
    assert made == make(2) != make(3)
    assert all(1 <= a.output_tokens <= a.max_tokens for a in made)
    batch = sum(a.priority is Priority.BATCH for a in made) / len(made)
    assert batch == pytest.approx(0.15 if trace is Trace.FLOOD else 0.3, abs=0.02)


def test_an_empty_run_has_figures_too() -> None:
    assert summary(Simulation(BOX, Policy.FAIR).run([]))["finished"] == 0


def test_a_throttled_board_stays_cooler_and_its_hardware_hardly_slows_itself_down() -> None:
    warm = replace(BOX, board=Board(step_j=0.02, token_j=0.012))
    throttle = partial(ThrottlePolicy, 1 / BOX.limits.max_slots, HeatThresholds(85, 8), None)
    alone, throttled = (
        Simulation(box, Policy.FAIR).run(
            arrivals(Trace.STEADY, Shape.CHAT, 450, 0.5, clients=4, batch_share=0.2, seed=3)
        )
        for box in (warm, replace(warm, throttle=throttle))
    )
    assert alone.slowed_s > 60
    assert throttled.slowed_s < alone.slowed_s / 4
    assert throttled.hottest_c < alone.hottest_c
    assert 0 < throttled.throttle_moves < 60
    assert throttled.finished == alone.finished == 450
