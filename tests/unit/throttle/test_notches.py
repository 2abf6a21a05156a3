"""The lever goes down soon, comes up slowly, and does not go to and fro."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.throttle.hysteresis import DOWN_AFTER, FIRST_HOLD, LONGEST_HOLD, HysteresisController, LoadLevel

LOOK_S = 2.0
ANY = st.lists(st.sampled_from(LoadLevel), max_size=200)


def moves(notches: list[int]) -> int:
    return sum(one != other for one, other in pairwise(notches))


@given(st.integers(0, 9), ANY)
def test_the_lever_stays_between_its_ends_and_goes_up_only_where_it_is_little(
    lowest: int, looks: list[LoadLevel]
) -> None:
    lever, before = HysteresisController(lowest), 0
    for look in looks:
        now = lever.observe(look)
        assert 0 <= now <= lowest
        if now < before:
            assert (look, now) == (LoadLevel.LITTLE, before - 1)
        if now > before:
            assert look in (LoadLevel.TOO_MUCH, LoadLevel.EXTREME)
            assert now - before <= (2 if look is LoadLevel.EXTREME else 1)
        before = now


@given(ANY)
def test_equal_looks_give_equal_notches(looks: list[LoadLevel]) -> None:
    one, other = HysteresisController(6), HysteresisController(6)
    assert [one.observe(look) for look in looks] == [other.observe(look) for look in looks]


def test_what_stays_too_much_ends_at_the_lowest_notch_and_what_is_over_at_none() -> None:
    lever = HysteresisController(4)
    assert [lever.observe(LoadLevel.TOO_MUCH) for _ in range(4 * DOWN_AFTER)][-1] == 4
    assert [lever.observe(LoadLevel.LITTLE) for _ in range(4 * FIRST_HOLD)][-1] == 0


def test_extreme_heat_is_answered_at_once() -> None:
    assert HysteresisController(8).observe(LoadLevel.EXTREME) == 2


@given(
    tau_s=st.floats(5, 600),
    ambient_c=st.floats(10, 60),
    rise_c=st.floats(5, 120),
    throttle_c=st.floats(65, 90),
    margin_c=st.floats(2, 12),
)
def test_on_any_board_the_lever_comes_to_rest_but_for_rare_trials(
    tau_s: float, ambient_c: float, rise_c: float, throttle_c: float, margin_c: float
) -> None:
    """A board of first order: at notch n it tends to ambient + rise * 0.75^n, with a time constant."""
    lever, celsius, notches = HysteresisController(7), ambient_c, []
    for _ in range(12_000):
        target = ambient_c + rise_c * 0.75**lever.notch
        celsius += (target - celsius) * min(1.0, LOOK_S / tau_s)
        if celsius > throttle_c + 8:
            burden = LoadLevel.EXTREME
        elif celsius > throttle_c:
            burden = LoadLevel.TOO_MUCH
        else:
            burden = LoadLevel.LITTLE if celsius < throttle_c - margin_c else LoadLevel.BEARABLE
        notches.append(lever.observe(burden))
    settled = notches[6_000:]
    trials = len(settled) / LONGEST_HOLD + 1
    assert moves(settled) <= 4 * trials
