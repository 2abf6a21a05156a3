"""Heat and power hold the daemon back and let go again; what a look saw is in what is said about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.monitoring.resources import ThrottleCause
from edge_rag.device.facts import ThermalZone
from edge_rag.throttle.hysteresis import LoadLevel
from edge_rag.throttle.policy import BoardReading, HeatPolicy, Throttle, heat, hottest, power

POLICY = HeatPolicy(throttle_c=85, margin_c=8)


def zone(celsius: float, passive: float | None = None, critical: float | None = None, name: str = "cpu") -> ThermalZone:
    return ThermalZone(name, celsius, passive, critical)


def reading(celsius: float, watts: float | None = None, *slowdowns: str) -> BoardReading:
    return BoardReading((zone(celsius),), slowdowns, watts)


@pytest.mark.parametrize(
    ("zones", "slowed", "burden"),
    [
        ([zone(60)], False, LoadLevel.LITTLE),
        ([zone(80)], False, LoadLevel.BEARABLE),
        ([zone(85.1)], False, LoadLevel.TOO_MUCH),
        ([zone(93.1)], False, LoadLevel.EXTREME),
        ([zone(60), zone(86, name="gpu")], False, LoadLevel.TOO_MUCH),
        ([zone(72, passive=70)], False, LoadLevel.TOO_MUCH),
        ([zone(80, passive=99)], False, LoadLevel.BEARABLE),
        ([zone(82, critical=86)], False, LoadLevel.EXTREME),
        ([zone(60)], True, LoadLevel.TOO_MUCH),
        ([], True, LoadLevel.TOO_MUCH),
        ([], False, LoadLevel.LITTLE),
    ],
)
def test_heat_weighs_by_the_zone_nearest_to_its_own_limit(
    zones: list[ThermalZone], slowed: bool, burden: LoadLevel
) -> None:
    assert heat(hottest(zones, POLICY), slowed, POLICY) is burden


@pytest.mark.parametrize(
    ("watts", "burden"),
    [(None, LoadLevel.LITTLE), (8.0, LoadLevel.LITTLE), (9.5, LoadLevel.BEARABLE), (10.1, LoadLevel.TOO_MUCH)],
)
def test_power_weighs_by_its_budget(watts: float | None, burden: LoadLevel) -> None:
    assert power(watts, 10.0) is burden


def test_a_hot_board_is_held_back_and_let_go_and_both_are_said_with_their_numbers() -> None:
    throttle = Throttle(0.125, POLICY, None)
    changes = [change for _ in range(6) for change in throttle.observe(reading(88))]
    assert [change.share for change in changes] == pytest.approx([0.75, 0.5625, 0.421875])
    assert [*throttle.causes] == [ThrottleCause.HEAT]
    assert changes[0].reason == "the board is too hot"
    assert changes[0].numbers == {"slowdowns": 0, "celsius": 88, "limit_celsius": 85}
    assert changes[1].before == changes[0].share
    back = [change for _ in range(15) for change in throttle.observe(reading(60))]
    assert [change.reason for change in back] == ["the board has cooled down"] * 3
    assert (throttle.share, [*throttle.causes]) == (1, [])


def test_of_heat_and_power_the_smaller_share_wins() -> None:
    throttle = Throttle(0.1, POLICY, 10.0)
    for _ in range(2):
        throttle.observe(reading(60, watts=12))
    assert (throttle.share, [*throttle.causes]) == (0.75, [ThrottleCause.POWER])
    for _ in range(4):
        throttle.observe(reading(86, watts=9.5))
    assert throttle.share == pytest.approx(0.5625)
    assert [*throttle.causes] == [ThrottleCause.HEAT, ThrottleCause.POWER]
    for _ in range(20):
        throttle.observe(reading(60, watts=9.5))
    assert (throttle.share, [*throttle.causes]) == (0.75, [ThrottleCause.POWER])


@given(
    st.floats(0.01, 1), st.lists(st.tuples(st.floats(0, 120), st.none() | st.floats(0, 50), st.booleans()), max_size=80)
)
def test_never_less_than_the_least_share_is_left(least: float, looks: list[tuple[float, float | None, bool]]) -> None:
    throttle = Throttle(least, POLICY, 10.0)
    for celsius, watts, slowed in looks:
        before = throttle.share
        changes = throttle.observe(reading(celsius, watts, *["throttled"] * slowed))
        assert least <= throttle.share <= 1
        assert (throttle.share == 1) == (not throttle.causes) or least == 1
        if throttle.share != before:
            assert changes
