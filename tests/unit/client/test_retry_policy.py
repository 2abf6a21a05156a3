import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.client import CallStatus, ClientError, RetryPolicy

RETRIED = (CallStatus.RESOURCE_EXHAUSTED, CallStatus.UNAVAILABLE)


@given(
    max_backoff_s=st.floats(0, 100),
    failures=st.lists(
        st.tuples(st.sampled_from(RETRIED), st.none() | st.floats(0, 30), st.floats(0, 1)), min_size=1, max_size=50
    ),
)
def test_waiting_never_exceeds_the_bound(
    max_backoff_s: float, failures: list[tuple[CallStatus, float | None, float]]
) -> None:
    policy = RetryPolicy(max_backoff_s=max_backoff_s)
    waited_s = 0.0
    for count, (status, retry_after_s, jitter) in enumerate(failures, start=1):
        delay_s = policy.delay(ClientError(status, "busy", retry_after_s=retry_after_s), count, waited_s, jitter)
        if delay_s is None:
            break
        assert delay_s >= (retry_after_s or 0.0)
        waited_s += delay_s
    assert waited_s <= max_backoff_s


def test_delays_double_up_to_their_bound() -> None:
    policy = RetryPolicy(max_backoff_s=1000, first_delay_s=0.25, longest_delay_s=1)
    error = ClientError(CallStatus.UNAVAILABLE, "draining")
    assert [policy.delay(error, failures, 0, 0) for failures in range(1, 6)] == [0.25, 0.5, 1, 1, 1]


@pytest.mark.parametrize("status", [status for status in CallStatus if status not in RETRIED])
def test_other_failures_are_final(status: CallStatus) -> None:
    assert RetryPolicy(max_backoff_s=1000).delay(ClientError(status, "no", retry_after_s=1), 1, 0, 0) is None


def test_a_server_that_was_never_reached_is_not_called_again() -> None:
    error = ClientError(CallStatus.UNAVAILABLE, "nobody", connected=False)
    assert RetryPolicy(max_backoff_s=1000).delay(error, 1, 0, 0) is None
    assert RetryPolicy(max_backoff_s=1000).delay(error, 1, 0, 0, reached=True) is not None
