import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.monitoring.resources import ThrottleCause
from edge_rag.device.facts import ThermalZone
from edge_rag.throttle.hysteresis import LoadLevel
from edge_rag.throttle.policy import BoardReading, HeatThresholds, ThrottlePolicy, heat_level, hottest, power_level

THRESHOLDS = HeatThresholds(throttle_c=85, margin_c=8)


def zone(celsius: float, passive: float | None = None, critical: float | None = None, name: str = "cpu") -> ThermalZone:
    return ThermalZone(name, celsius, passive, critical)


def reading(celsius: float, watts: float | None = None, *slowdowns: str) -> BoardReading:
    return BoardReading((zone(celsius),), slowdowns, watts)


@pytest.mark.parametrize(
    ("zones", "slowed_down", "level"),
    [
        ([zone(60)], False, LoadLevel.LOW),
        ([zone(80)], False, LoadLevel.NORMAL),
        ([zone(85.1)], False, LoadLevel.HIGH),
        ([zone(93.1)], False, LoadLevel.EXTREME),
        ([zone(60), zone(86, name="gpu")], False, LoadLevel.HIGH),
        ([zone(72, passive=70)], False, LoadLevel.HIGH),
        ([zone(80, passive=99)], False, LoadLevel.NORMAL),
        ([zone(82, critical=86)], False, LoadLevel.EXTREME),
        ([zone(60)], True, LoadLevel.HIGH),
        ([], True, LoadLevel.HIGH),
        ([], False, LoadLevel.LOW),
    ],
)
def test_heat_is_rated_by_the_zone_nearest_to_its_limit(
    zones: list[ThermalZone], slowed_down: bool, level: LoadLevel
) -> None:
    assert heat_level(hottest(zones, THRESHOLDS), slowed_down, THRESHOLDS) is level


@pytest.mark.parametrize(
    ("watts", "level"),
    [(None, LoadLevel.LOW), (8.0, LoadLevel.LOW), (9.5, LoadLevel.NORMAL), (10.1, LoadLevel.HIGH)],
)
def test_power_is_rated_by_its_budget(watts: float | None, level: LoadLevel) -> None:
    assert power_level(watts, 10.0) is level


def test_the_smaller_share_of_heat_and_power_counts() -> None:
    policy = ThrottlePolicy(0.1, THRESHOLDS, 10.0)
    for _ in range(2):
        policy.observe(reading(60, watts=12))
    assert (policy.share, [*policy.causes]) == (0.75, [ThrottleCause.POWER])
    for _ in range(4):
        policy.observe(reading(86, watts=9.5))
    assert policy.share == pytest.approx(0.5625)
    assert [*policy.causes] == [ThrottleCause.HEAT, ThrottleCause.POWER]
    for _ in range(20):
        policy.observe(reading(60, watts=9.5))
    assert (policy.share, [*policy.causes]) == (0.75, [ThrottleCause.POWER])


@given(
    st.floats(0.01, 1), st.lists(st.tuples(st.floats(0, 120), st.none() | st.floats(0, 50), st.booleans()), max_size=80)
)
def test_the_share_has_a_minimum(min_share: float, readings: list[tuple[float, float | None, bool]]) -> None:
    policy = ThrottlePolicy(min_share, THRESHOLDS, 10.0)
    for celsius, watts, slowed_down in readings:
        before = policy.share
        changes = policy.observe(reading(celsius, watts, *["throttled"] * slowed_down))
        assert min_share <= policy.share <= 1
        assert (policy.share == 1) == (not policy.causes) or min_share == 1
        if policy.share != before:
            assert changes
