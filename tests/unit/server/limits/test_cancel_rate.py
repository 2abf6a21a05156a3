"""Occasional cancellations are allowed; a flood of them is over the limit."""

from edge_rag.server.limits.connections import UNKNOWN, CancelRateLimiter

ONE = "ipv4:192.0.2.7:5000"
OTHER = "ipv4:192.0.2.7:5001"


def test_the_cancellations_of_a_busy_client_are_allowed_and_a_flood_is_not() -> None:
    now = [0.0]
    limiter = CancelRateLimiter(clock=lambda: now[0])
    for _ in range(2000):
        now[0] += 0.011
        assert not limiter.cancelled("busy")
    counted = [limiter.cancelled("busy") for _ in range(400)]
    assert counted.count(False) in (299, 300)
    assert counted == sorted(counted)


def test_networks_are_limited_separately_and_recover_with_time() -> None:
    now = [0.0]
    limiter = CancelRateLimiter(clock=lambda: now[0])
    while not limiter.cancelled("flood"):
        pass
    assert not limiter.cancelled("other")
    now[0] = 0.5
    assert [limiter.cancelled("flood") for _ in range(60)].count(False) in (49, 50)


def test_strangers_may_cancel_less() -> None:
    limiter = CancelRateLimiter(clock=lambda: 0.0)
    assert [limiter.cancelled("stranger", limits=UNKNOWN) for _ in range(60)].count(False) == UNKNOWN.burst


def test_of_the_connections_of_a_network_only_one_with_many_cancellations_is_to_blame() -> None:
    now = [0.0]
    limiter = CancelRateLimiter(clock=lambda: now[0])
    assert not limiter.cancelled("shared", OTHER)
    while not limiter.cancelled("shared", ONE):
        pass
    assert limiter.cancelled("shared", OTHER)
    assert limiter.is_offender("shared", ONE)
    assert not limiter.is_offender("shared", OTHER)
    assert not limiter.is_offender("elsewhere", ONE)
    now[0] = 10.0
    assert not limiter.cancelled("shared", ONE)
    assert not limiter.is_offender("shared", ONE)


def test_the_number_of_tracked_networks_and_connections_is_bounded_and_keeps_an_active_flood() -> None:
    limiter = CancelRateLimiter(clock=lambda: 0.0)
    while not limiter.cancelled("flood", ONE):
        pass
    for n in range(20_000):
        limiter.cancelled(f"192.0.2.{n}")
        limiter.cancelled("flood", f"ipv4:192.0.2.7:{n}")
        if n % 1000 == 0:
            assert limiter.cancelled("flood", ONE)
    assert limiter.is_offender("flood", ONE)
    assert len(limiter._accounts) <= 4096
    assert len(limiter._accounts["flood"].by_connection) <= 256


def test_a_network_is_abusive_after_many_cancellations_and_until_it_pauses() -> None:
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
