"""Who gives calls up now and then is let be; who does nothing else is not."""

from __future__ import annotations

from edge_rag.server.limits.connections import CancelRateLimiter


def test_as_many_as_a_busy_client_gives_up_are_let_be_and_no_more() -> None:
    now = [0.0]
    resets = CancelRateLimiter(clock=lambda: now[0])
    for _ in range(2000):
        now[0] += 0.011
        assert not resets.cancelled("busy")
    counted = [resets.cancelled("busy") for _ in range(400)]
    assert counted.count(False) == 299
    assert counted == sorted(counted)


def test_one_caller_is_not_held_to_account_for_another_and_time_heals() -> None:
    now = [0.0]
    resets = CancelRateLimiter(clock=lambda: now[0])
    while not resets.cancelled("flood"):
        pass
    assert not resets.cancelled("other")
    now[0] = 0.5
    assert [resets.cancelled("flood") for _ in range(51)].count(False) == 50


def test_the_number_of_callers_that_are_remembered_is_bounded_and_a_flood_among_them_stays() -> None:
    resets = CancelRateLimiter(clock=lambda: 0.0)
    while not resets.cancelled("flood"):
        pass
    for n in range(20_000):
        resets.cancelled(f"192.0.2.{n}")
        if n % 1000 == 0:
            assert resets.cancelled("flood")
    assert len(resets._left) <= 4096


def test_who_gave_up_many_calls_is_taken_for_hasty_until_it_has_let_be_for_a_while() -> None:
    now = [0.0]
    resets = CancelRateLimiter(clock=lambda: now[0])
    for _ in range(40):
        assert not resets.is_abusive("flood")
        if resets.cancelled("flood") or resets.is_abusive("flood"):
            break
    assert resets.is_abusive("flood")
    assert not resets.is_abusive("other")
    now[0] = 0.05
    assert not resets.is_abusive("flood")
