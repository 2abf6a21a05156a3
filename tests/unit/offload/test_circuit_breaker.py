from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from edge_rag.offload.remotes.circuit_breaker import BreakerState, CircuitBreaker
from tests.support.examples import examples


def test_it_opens_at_the_threshold_and_allows_one_trial_after_the_open_time() -> None:
    breaker = CircuitBreaker(threshold=2, base_open_s=3.0).on_failure(0.0)
    assert breaker.allows(0.0)
    breaker = breaker.on_failure(1.0)
    assert [breaker.allows(at) for at in (1.0, 3.9, 4.0)] == [False, False, True]
    trial = breaker.on_attempt(4.0)
    assert trial.state is BreakerState.HALF_OPEN
    assert not trial.allows(4.0)
    assert trial.on_success(5.0).state is BreakerState.CLOSED


def test_the_open_time_doubles_after_each_failed_trial_and_resets_after_a_success() -> None:
    breaker, now, open_times = CircuitBreaker(threshold=1, base_open_s=1.0), 0.0, []
    for _ in range(9):
        breaker = breaker.on_failure(now)
        open_times.append(breaker.open_s)
        now += breaker.open_s
        breaker = breaker.on_attempt(now)
    assert open_times == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    assert breaker.on_success(now).on_failure(now).open_s == 1


def test_a_success_resets_the_failure_count() -> None:
    breaker = CircuitBreaker(threshold=2).on_failure(0.0).on_success(0.0).on_failure(0.0)
    assert breaker.state is BreakerState.CLOSED


class AnyHistory(RuleBasedStateMachine):
    """Attempts, successes and failures in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = CircuitBreaker(threshold=3, base_open_s=1.0)
        self.now = 0.0
        self.consecutive_failures = 0

    @rule(seconds=st.floats(0, 200))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def send(self) -> None:
        if self.breaker.allows(self.now):
            before = self.breaker.state
            self.breaker = self.breaker.on_attempt(self.now)
            if before is not BreakerState.CLOSED:
                assert not self.breaker.allows(self.now)

    @rule()
    def succeed(self) -> None:
        self.breaker = self.breaker.on_success(self.now)
        self.consecutive_failures = 0
        assert self.breaker.state is BreakerState.CLOSED

    @rule()
    def fail(self) -> None:
        self.breaker = self.breaker.on_failure(self.now)
        self.consecutive_failures += 1

    @invariant()
    def it_is_closed_exactly_below_the_threshold(self) -> None:
        assert (self.breaker.state is BreakerState.CLOSED) == (self.consecutive_failures < 3)

    @invariant()
    def it_allows_a_request_after_the_open_time(self) -> None:
        assert self.breaker.allows(self.now + self.breaker.open_s)
        assert self.breaker.open_s <= 64


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=examples(60), stateful_step_count=30)
