from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.throttle.hysteresis import (
    HIGH_READINGS,
    MAX_LOW_READINGS,
    MIN_LOW_READINGS,
    HysteresisController,
    LoadLevel,
)

INTERVAL_S = 2.0
ANY = st.lists(st.sampled_from(LoadLevel), max_size=200)


def changes(steps: list[int]) -> int:
    return sum(one != other for one, other in pairwise(steps))


@given(st.integers(0, 9), ANY)
def test_steps_stay_in_range_and_recover_only_at_low_load(max_step: int, levels: list[LoadLevel]) -> None:
    controller, before = HysteresisController(max_step), 0
    for level in levels:
        now = controller.observe(level)
        assert 0 <= now <= max_step
        if now < before:
            assert (level, now) == (LoadLevel.LOW, before - 1)
        if now > before:
            assert level in (LoadLevel.HIGH, LoadLevel.EXTREME)
            assert now - before <= (2 if level is LoadLevel.EXTREME else 1)
        before = now


def test_lasting_load_ends_at_the_largest_step_and_recovers_to_none() -> None:
    controller = HysteresisController(4)
    assert [controller.observe(LoadLevel.HIGH) for _ in range(4 * HIGH_READINGS)][-1] == 4
    assert [controller.observe(LoadLevel.LOW) for _ in range(4 * MIN_LOW_READINGS)][-1] == 0


def test_an_extreme_reading_takes_two_steps_at_once() -> None:
    assert HysteresisController(8).observe(LoadLevel.EXTREME) == 2


@given(
    tau_s=st.floats(5, 600),
    ambient_c=st.floats(10, 60),
    rise_c=st.floats(5, 120),
    throttle_c=st.floats(65, 90),
    margin_c=st.floats(2, 12),
)
def test_on_any_board_the_controller_settles_except_for_rare_trials(
    tau_s: float, ambient_c: float, rise_c: float, throttle_c: float, margin_c: float
) -> None:
    """A first-order thermal model: at step n the temperature tends to ambient + rise * 0.75^n."""
    controller, celsius, steps = HysteresisController(7), ambient_c, []
    for _ in range(12_000):
        target = ambient_c + rise_c * 0.75**controller.step
        celsius += (target - celsius) * min(1.0, INTERVAL_S / tau_s)
        if celsius > throttle_c + 8:
            level = LoadLevel.EXTREME
        elif celsius > throttle_c:
            level = LoadLevel.HIGH
        else:
            level = LoadLevel.LOW if celsius < throttle_c - margin_c else LoadLevel.NORMAL
        steps.append(controller.observe(level))
    settled = steps[6_000:]
    trials = len(settled) / MAX_LOW_READINGS + 1
    assert changes(settled) <= 4 * trials
