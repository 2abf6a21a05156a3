import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.access.quotas import ANONYMOUS_ACCOUNTS, QuotaLedger
from edge_rag.core.identity import Identity, Quota, Role
from edge_rag.core.monitoring.metrics import QuotaUse
from edge_rag.errors import QuotaExceeded
from tests.support.clock import Clock


def caller(quota: Quota, name: str = "ward-3") -> Identity:
    return Identity(name, frozenset({Role.READER}), quota=quota)


@given(st.integers(1, 50), st.lists(st.floats(0, 30), max_size=80))
def test_a_minute_has_at_most_twice_the_requests_and_the_long_run_its_rate(
    per_minute: int, pauses: list[float]
) -> None:
    clock = Clock()
    ledger, identity = QuotaLedger(clock), caller(Quota(requests_per_minute=per_minute))
    started: list[float] = []
    for pause in pauses:
        clock.now += pause
        try:
            ledger.acquire(identity)
        except QuotaExceeded as refused:
            assert 0 < refused.retry_after_s <= 60 / per_minute + 1e-6
        else:
            ledger.release(identity)
            started.append(clock.now)
    for start in started:
        assert sum(start <= at < start + 60 for at in started) <= 2 * per_minute
    assert len(started) <= per_minute + (clock.now - 100) * per_minute / 60 + 1e-6


def test_a_retry_after_the_given_delay_is_admitted() -> None:
    clock = Clock()
    ledger, identity = QuotaLedger(clock), caller(Quota(requests_per_minute=6))
    for _ in range(6):
        ledger.acquire(identity)
    with pytest.raises(QuotaExceeded, match="6 requests a minute") as refused:
        ledger.acquire(identity)
    clock.now += refused.value.retry_after_s + 1e-9
    ledger.acquire(identity)


def test_tokens_are_charged_after_the_request_and_a_debt_delays_the_next() -> None:
    clock = Clock()
    ledger, identity = QuotaLedger(clock), caller(Quota(tokens_per_minute=600))
    ledger.acquire(identity)
    ledger.charge(identity, 700)
    with pytest.raises(QuotaExceeded, match="600 tokens a minute") as refused:
        ledger.acquire(identity)
    assert refused.value.retry_after_s == pytest.approx(10.1)
    clock.now += refused.value.retry_after_s
    ledger.acquire(identity)


def test_concurrent_requests_are_limited_and_a_refused_one_is_not_charged() -> None:
    ledger, identity = QuotaLedger(Clock()), caller(Quota(requests_per_minute=3, concurrent_requests=1))
    ledger.acquire(identity)
    for _ in range(5):
        with pytest.raises(QuotaExceeded, match="1 requests at once"):
            ledger.acquire(identity)
    ledger.release(identity)
    ledger.acquire(identity)
    ledger.release(identity)
    ledger.acquire(identity)


def test_quotas_of_callers_are_independent() -> None:
    ledger = QuotaLedger(Clock())
    ledger.acquire(caller(Quota(requests_per_minute=1), "a"))
    ledger.acquire(caller(Quota(requests_per_minute=1), "b"))
    with pytest.raises(QuotaExceeded):
        ledger.acquire(caller(Quota(requests_per_minute=1), "a"))


def test_without_a_quota_nothing_is_counted() -> None:
    ledger, identity = QuotaLedger(Clock()), caller(Quota())
    for _ in range(1000):
        ledger.acquire(identity)


def test_strangers_have_an_account_each_and_no_number_of_them_takes_more_memory_or_a_tokens_account() -> None:
    clock = Clock()
    ledger, known = QuotaLedger(clock), caller(Quota(requests_per_minute=1))
    ledger.acquire(known)
    ledger.release(known)
    busy = stranger("busy")
    ledger.acquire(busy)
    for number in range(ANONYMOUS_ACCOUNTS + 10):
        ledger.acquire(stranger(str(number)))
        ledger.release(stranger(str(number)))
    with pytest.raises(QuotaExceeded):
        ledger.acquire(known)
    with pytest.raises(QuotaExceeded, match="a minute"):
        ledger.acquire(stranger(str(ANONYMOUS_ACCOUNTS)))
    with pytest.raises(QuotaExceeded):
        ledger.acquire(busy)
    ledger.release(busy)
    assert ledger.accounts == ANONYMOUS_ACCOUNTS + 1


def stranger(name: str) -> Identity:
    return Identity(name, frozenset(), frozenset(), quota=Quota(requests_per_minute=1, concurrent_requests=1))


def test_what_is_left_of_quotas_is_told_by_name() -> None:
    clock = Clock()
    ledger = QuotaLedger(clock)
    limited = caller(Quota(requests_per_minute=6, tokens_per_minute=100, concurrent_requests=2), "b")
    ledger.acquire(limited)
    ledger.acquire(caller(Quota(tokens_per_minute=60), "a"))
    ledger.acquire(caller(Quota(), "unlimited"))
    ledger.charge(limited, 130)

    assert ledger.read() == (
        QuotaUse("a", None, None, 60, 60, None, 1),
        QuotaUse("b", 6, 5, 100, 0, 2, 1),
    )
    ledger.release(limited)
    clock.now += 60
    assert ledger.read()[1] == QuotaUse("b", 6, 6, 100, 70, 2, 0)
