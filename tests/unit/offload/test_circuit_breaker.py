from edge_rag.offload.remotes.circuit_breaker import BreakerState, CircuitBreaker


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
