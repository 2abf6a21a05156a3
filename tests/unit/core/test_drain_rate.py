"""A refused request may be tried again when one is likely to be admitted."""

import pytest

from edge_rag.core.limits.drain_rate import DrainRate


def test_the_assumed_interval_is_returned_until_one_was_measured() -> None:
    assert DrainRate(assumed_s=3.0).retry_after_s() == 3.0


def test_the_measured_interval_is_returned() -> None:
    rate = DrainRate(weight=1.0)
    rate.left(10.0, others_wait=True, tokens=100)
    rate.left(10.5, others_wait=True, tokens=100)
    assert rate.retry_after_s() == pytest.approx(0.5)


def test_time_without_waiting_requests_is_not_counted() -> None:
    rate = DrainRate(weight=1.0, assumed_s=2.0)
    rate.left(10.0, others_wait=False, tokens=100)
    rate.left(500.0, others_wait=True, tokens=100)
    assert rate.retry_after_s() == 2.0


@pytest.mark.parametrize(("interval", "expected"), [(0.001, 0.05), (1000.0, 60.0)])
def test_the_answer_is_within_sensible_bounds(interval: float, expected: float) -> None:
    rate = DrainRate(weight=1.0)
    rate.left(0.0, others_wait=True, tokens=100)
    rate.left(interval, others_wait=True, tokens=100)
    assert rate.retry_after_s() == expected


def test_a_lack_of_tokens_takes_as_many_departures_as_it_is_worth() -> None:
    rate = DrainRate(weight=1.0)
    for now in (10.0, 10.5):
        rate.left(now, others_wait=True, tokens=200)
    assert rate.retry_after_s(tokens_short=1000) == pytest.approx(2.5)
    assert rate.retry_after_s(tokens_short=10) == pytest.approx(0.5)
