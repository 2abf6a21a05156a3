"""Occasional cancellations are allowed; a flood of them is over the limit."""

from __future__ import annotations

from edge_rag.server.limits.connections import CancelRateLimiter


def test_the_cancellations_of_a_busy_client_are_allowed_and_a_flood_is_not() -> None:
    now = [0.0]
    limiter = CancelRateLimiter(clock=lambda: now[0])
    for _ in range(2000):
        now[0] += 0.011
        assert not limiter.cancelled("busy")
    counted = [limiter.cancelled("busy") for _ in range(400)]
    assert counted.count(False) == 299
    assert counted == sorted(counted)


def test_clients_are_limited_separately_and_recover_with_time() -> None:
    now = [0.0]
    limiter = CancelRateLimiter(clock=lambda: now[0])
    while not limiter.cancelled("flood"):
        pass
    assert not limiter.cancelled("other")
    now[0] = 0.5
    assert [limiter.cancelled("flood") for _ in range(51)].count(False) == 50


def test_the_number_of_tracked_clients_is_bounded_and_keeps_an_active_flood() -> None:
    limiter = CancelRateLimiter(clock=lambda: 0.0)
    while not limiter.cancelled("flood"):
        pass
    for n in range(20_000):
        limiter.cancelled(f"192.0.2.{n}")
        if n % 1000 == 0:
            assert limiter.cancelled("flood")
    assert len(limiter._left) <= 4096


def test_a_client_is_abusive_after_many_cancellations_and_until_it_pauses() -> None:
    now = [0.0]
    limiter = CancelRateLimiter(clock=lambda: now[0])
    for _ in range(40):
        assert not limiter.is_abusive("flood")
        if limiter.cancelled("flood") or limiter.is_abusive("flood"):
            break
    assert limiter.is_abusive("flood")
    assert not limiter.is_abusive("other")
    now[0] = 0.05
    assert not limiter.is_abusive("flood")
