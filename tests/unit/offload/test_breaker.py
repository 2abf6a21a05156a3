from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from edge_rag.offload.remotes.circuit_breaker import Breaker, BreakerState


def test_it_opens_at_the_threshold_and_is_tried_once_after_its_rest() -> None:
    breaker = Breaker(threshold=2, rest_s=3.0).failed(0.0)
    assert breaker.lets_through(0.0)
    breaker = breaker.failed(1.0)
    assert [breaker.lets_through(at) for at in (1.0, 3.9, 4.0)] == [False, False, True]
    probe = breaker.sent(4.0)
    assert probe.state is BreakerState.HALF_OPEN
    assert not probe.lets_through(4.0)
    assert probe.succeeded(5.0).state is BreakerState.CLOSED


def test_it_rests_twice_as_long_after_each_failed_try_and_as_at_first_after_a_good_one() -> None:
    breaker, now, rests = Breaker(threshold=1, rest_s=1.0), 0.0, []
    for _ in range(9):
        breaker = breaker.failed(now)
        rests.append(breaker.open_s)
        now += breaker.open_s
        breaker = breaker.sent(now)
    assert rests == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    assert breaker.succeeded(now).failed(now).open_s == 1


def test_a_success_in_between_starts_the_count_again() -> None:
    breaker = Breaker(threshold=2).failed(0.0).succeeded(0.0).failed(0.0)
    assert breaker.state is BreakerState.CLOSED


class AnyHistory(RuleBasedStateMachine):
    """Requests that are let through, and what becomes of them, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(threshold=3, rest_s=1.0)
        self.now = 0.0
        self.failed_in_a_row = 0

    @rule(seconds=st.floats(0, 200))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def send(self) -> None:
        if self.breaker.lets_through(self.now):
            before = self.breaker.state
            self.breaker = self.breaker.sent(self.now)
            if before is not BreakerState.CLOSED:
                assert not self.breaker.lets_through(self.now)

    @rule()
    def succeed(self) -> None:
        self.breaker = self.breaker.succeeded(self.now)
        self.failed_in_a_row = 0
        assert self.breaker.state is BreakerState.CLOSED

    @rule()
    def fail(self) -> None:
        self.breaker = self.breaker.failed(self.now)
        self.failed_in_a_row += 1

    @invariant()
    def it_is_closed_exactly_below_the_threshold(self) -> None:
        assert (self.breaker.state is BreakerState.CLOSED) == (self.failed_in_a_row < 3)

    @invariant()
    def it_always_lets_through_again_within_its_rest(self) -> None:
        assert self.breaker.lets_through(self.now + self.breaker.open_s)
        assert self.breaker.open_s <= 64


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=60, stateful_step_count=30)
