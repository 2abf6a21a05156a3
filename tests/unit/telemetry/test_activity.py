from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.telemetry.activity import WINDOW_S, Activity, BusyShare, Rate
from tests.support.clock import Clock

STEPS = st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=60)


@given(STEPS, st.floats(0.001, 4))
def test_the_share_is_the_time_worked_over_the_window_to_a_hundredth_and_a_half(
    steps: list[tuple[float, bool]], last_s: float
) -> None:
    clock = Clock()
    busy = BusyShare(clock)
    stretches = []
    for seconds, works in [*steps, (last_s, False)]:
        start = clock.now
        if works:
            with busy.working():
                clock.now += seconds
            stretches.append((start, clock.now))
        else:
            clock.now += seconds
    since = clock.now - WINDOW_S
    worked = sum(max(0.0, end - max(start, since)) for start, end in stretches)
    assert busy.share() == pytest.approx(worked / WINDOW_S, abs=0.015)


def test_overlapping_work_counts_once_and_unfinished_work_counts() -> None:
    clock = Clock()
    activity = Activity(clock)
    with activity.working("retriever", "cpu"):
        clock.now += 1
        with activity.working("generator", "cpu"):
            clock.now += 1
        clock.now += 1
    clock.now += 1
    (cpu,) = activity.devices()
    assert (cpu.name, cpu.stages) == ("cpu", ("retriever", "generator"))
    assert cpu.busy == pytest.approx(3 / WINDOW_S)
    assert activity.stage_share("generator") == pytest.approx(1 / WINDOW_S)
    assert activity.stage_share("reranker") == 0
    with activity.working("embedder", "npu"):
        clock.now += 5
        assert [(each.name, each.busy) for each in activity.devices()] == [("cpu", 0), ("npu", pytest.approx(1))]


def test_what_raises_has_stopped_working() -> None:
    clock = Clock()
    busy = BusyShare(clock)
    with suppress(RuntimeError), busy.working():
        clock.now += 1
        raise RuntimeError
    clock.now += 1
    assert busy.share() == pytest.approx(1 / WINDOW_S)


def test_a_rate_counts_what_came_within_the_window_and_forgets_what_came_before() -> None:
    clock = Clock()
    rate = Rate(clock)
    assert rate.per_second() == 0
    for _ in range(100):
        clock.now += 0.1
        rate.add(3)
    assert rate.per_second() == pytest.approx(30, abs=3 / WINDOW_S + 0.01)
    clock.now += WINDOW_S
    assert rate.per_second() == pytest.approx(0)
    clock.now += 1000
    rate.add(10)
    assert rate.per_second() == pytest.approx(10 / WINDOW_S)
