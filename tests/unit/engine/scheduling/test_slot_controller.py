from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.engine.scheduling.slot_controller import TOO_SLOW, WINDOW, SlotChange, SlotController
from edge_rag.errors import ConfigurationError
from tests.support.examples import examples

TARGET = 0.1


def drive(
    controller: SlotController,
    step_s: Callable[[int], float],
    windows: int,
    waiting: int = 10,
    busy: int | None = None,
) -> list[SlotChange]:
    """Runs steps in which as many sequences decode as there are slots, or as many as there are to decode."""
    changes = []
    for _ in range(windows * WINDOW):
        decodes = controller.slots if busy is None else min(busy, controller.slots)
        if (change := controller.observe(step_s(decodes), decodes, waiting)) is not None:
            changes.append(change)
    return changes


def linear(base: float, slope: float, noise: float = 0.0, seed: int = 0) -> Callable[[int], float]:
    chance = random.Random(seed)
    return lambda n: (base + slope * n) * (1 + noise * chance.uniform(-1, 1))


def most_that_meet(base: float, slope: float, highest: int) -> int:
    return max([n for n in range(1, highest + 1) if base + slope * n <= TOO_SLOW * TARGET], default=1)


def usual_slots(controller: SlotController, step_s: Callable[[int], float], windows: int) -> int:
    """The median over odd many windows: the controller may be trying one slot more in some of them."""
    seen = []
    for _ in range(windows):
        drive(controller, step_s, 1)
        seen.append(controller.slots)
    return sorted(seen)[windows // 2]


@settings(max_examples=examples(60), deadline=None)
@given(base=st.floats(0.005, 0.08), slope=st.floats(0.0005, 0.05), seed=st.integers(0, 99))
def test_it_settles_next_to_the_most_slots_that_meet_the_target(base: float, slope: float, seed: int) -> None:
    controller = SlotController(TARGET, 1, 32)
    step = linear(base, slope, 0.1, seed)
    drive(controller, step, 300)
    settled = usual_slots(controller, step, 101)
    best = most_that_meet(base, slope, 32)
    assert base + slope * settled <= 1.1 * TARGET or settled == 1
    assert base + slope * (settled + 1) >= 0.85 * TARGET or settled >= best - 1


@settings(max_examples=examples(30), deadline=None)
@given(base=st.floats(0.005, 0.08), slope=st.floats(0.0005, 0.05), seed=st.integers(0, 99))
def test_once_settled_it_hardly_ever_moves(base: float, slope: float, seed: int) -> None:
    controller = SlotController(TARGET, 1, 32)
    step = linear(base, slope, 0.05, seed)
    drive(controller, step, 400)
    assert len(drive(controller, step, 1000)) <= 10


def test_a_target_between_two_numbers_of_slots_is_retried_ever_more_rarely() -> None:
    controller = SlotController(TARGET, 1, 8)
    changes = drive(controller, lambda n: 0.06 if n <= 4 else 0.2, 1000)
    tries = [change for change in changes if change.slots == 5]
    assert 2 <= len(tries) <= 8
    assert controller.slots in (4, 5)


def test_slots_come_back_when_steps_become_fast_again() -> None:
    controller = SlotController(TARGET, 1, 16)
    drive(controller, linear(0.02, 0.02), 200)
    assert controller.slots <= 5
    drive(controller, linear(0.02, 0.002), 200)
    assert controller.slots == 16


def test_slots_go_when_steps_become_slow() -> None:
    controller = SlotController(TARGET, 1, 16)
    assert drive(controller, linear(0.02, 0.002), 50) == []
    drive(controller, linear(0.02, 0.02), 50)
    assert controller.slots == 4


def test_a_single_slow_window_changes_nothing() -> None:
    controller = SlotController(TARGET, 1, 16)
    drive(controller, linear(0.09, 0.0), 3)
    assert drive(controller, linear(0.5, 0.0), 1) == []
    assert drive(controller, linear(0.09, 0.0), 20) == []


def test_without_demand_no_slot_is_added() -> None:
    controller = SlotController(TARGET, 1, 16)
    drive(controller, linear(0.02, 0.02), 50)
    before = controller.slots
    assert drive(controller, linear(0.01, 0.001), 100, waiting=0) == []
    assert controller.slots == before


def test_unused_slots_are_removed_too_when_the_used_ones_are_too_many() -> None:
    controller = SlotController(TARGET, 1, 16)
    drive(controller, linear(0.02, 0.02), 20, busy=6)
    assert controller.slots <= 5


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(0, 40), st.integers(0, 3)), max_size=800))
def test_it_stays_within_its_bounds_for_any_observations(steps: list[tuple[float, int, int]]) -> None:
    controller = SlotController(TARGET, 2, 9)
    for step_s, decodes, waiting in steps:
        change = controller.observe(step_s, decodes, waiting)
        assert change is None or (change.slots == controller.slots != change.before)
        assert 2 <= controller.slots <= 9


def test_equal_observations_give_equal_limits() -> None:
    runs = []
    for _ in range(2):
        controller = SlotController(TARGET, 1, 16)
        runs.append(drive(controller, linear(0.02, 0.02, 0.3, seed=4), 100))
    assert runs[0] == runs[1] != []


@pytest.mark.parametrize(("target", "lowest", "highest"), [(0.0, 1, 4), (0.1, 0, 4), (0.1, 5, 4)])
def test_bounds_that_make_no_sense_are_refused(target: float, lowest: int, highest: int) -> None:
    with pytest.raises(ConfigurationError):
        SlotController(target, lowest, highest)
