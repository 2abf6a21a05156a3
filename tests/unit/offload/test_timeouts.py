from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.offload.generation.timeouts import Action, StreamProgress, Timeouts, assess
from edge_rag.offload.remotes.latency_model import Estimate

SHORT_TIMEOUTS = Timeouts(first_token_s=8.0, stall_s=1.0)
SILENT = StreamProgress(
    now=100.1,
    started=100.0,
    deadline=110.0,
    first_chunk=None,
    last_chunk=None,
    tokens=0,
    remaining=50,
    remote=Estimate(0.5, 2.0, 0.02, 1.0),
    local=Estimate(1.0, 3.0, 0.04),
    may_hedge=True,
)
STREAMING = replace(SILENT, first_chunk=100.5, last_chunk=101.5, now=101.6, tokens=51, remaining=50)


@pytest.mark.parametrize(
    ("progress", "action"),
    [
        (SILENT, Action.WAIT),
        (replace(SILENT, now=101.1), Action.HEDGE),
        (replace(SILENT, now=101.1, may_hedge=False), Action.WAIT),
        (replace(SILENT, now=101.1, remote=Estimate()), Action.WAIT),
        (replace(SILENT, now=105.6), Action.TAKE_OVER),  # the local generator needs 3 s, 4.5 s are reserved
        (replace(SILENT, now=105.6, deadline=None, may_hedge=False), Action.WAIT),
        (replace(SILENT, now=108.1, deadline=None), Action.TAKE_OVER),
        (replace(SILENT, now=105.1, local=Estimate()), Action.TAKE_OVER),
        # The local generator would be late too, so a takeover gains nothing.
        (replace(SILENT, now=105.6, local=Estimate(7.0, 9.0, 0.04), may_hedge=False), Action.WAIT),
        (replace(SILENT, now=108.1, local=Estimate(7.0, 9.0, 0.04), may_hedge=False), Action.TAKE_OVER),
        (STREAMING, Action.WAIT),
        (replace(STREAMING, now=102.6), Action.TAKE_OVER),
        (replace(STREAMING, now=102.6, deadline=None), Action.TAKE_OVER),
        (
            replace(STREAMING, tokens=3, remaining=98),
            Action.TAKE_OVER,
        ),  # 0.5 s a token: the rest would miss the deadline
        (replace(STREAMING, tokens=3, remaining=98, deadline=None), Action.WAIT),
        (
            replace(STREAMING, tokens=3, remaining=98, local=Estimate(90.0, 99.0, 1.0)),
            Action.WAIT,
        ),  # the local generator would be later still
        (
            replace(STREAMING, tokens=3, remaining=98, local=Estimate(6.0, 9.0, 0.04)),
            Action.WAIT,
        ),  # sooner, but still late
        # Few tokens: the predicted inter-token time has more weight than the measured one.
        (replace(STREAMING, first_chunk=100.9, last_chunk=101.5, tokens=3, remaining=60), Action.WAIT),
        (
            replace(STREAMING, first_chunk=100.9, last_chunk=101.5, tokens=3, remaining=60, remote=Estimate()),
            Action.TAKE_OVER,
        ),
        # An unusual gap: the local generator takes over if it can still meet the deadline.
        (replace(STREAMING, deadline=104.0, now=101.8, remaining=20, local=Estimate(0.7, 3.0, 0.04)), Action.TAKE_OVER),
        (replace(STREAMING, deadline=104.0, now=101.8, remaining=20, local=Estimate(2.0, 3.0, 0.04)), Action.WAIT),
    ],
)
def test_the_action_follows_from_the_progress(progress: StreamProgress, action: Action) -> None:
    assert assess(progress, SHORT_TIMEOUTS).action is action


times = st.floats(0, 500)
estimates = st.builds(Estimate, st.none() | times, st.none() | times, st.none() | st.floats(0, 5), st.none() | times)


@given(
    window=st.none() | st.floats(0.01, 300),
    now=st.floats(0, 1000),
    first=st.none() | st.floats(0, 300),
    gap=st.floats(0, 300),
    tokens=st.integers(1, 500),
    remaining=st.integers(0, 500),
    remote=estimates,
    local=estimates,
    may_hedge=st.booleans(),
)
def test_a_check_schedules_the_next_one_and_a_silent_remote_is_taken_over(
    window: float | None,
    now: float,
    first: float | None,
    gap: float,
    tokens: int,
    remaining: int,
    remote: Estimate,
    local: Estimate,
    may_hedge: bool,
) -> None:
    last = None if first is None else first + gap
    at = now if last is None else last + now
    deadline = None if window is None else max(window, 0 if last is None else last + 0.01)
    progress = StreamProgress(
        at, 0.0, deadline, first, last, tokens if first is not None else 0, remaining, remote, local, may_hedge
    )
    result = assess(progress, SHORT_TIMEOUTS)
    assert result.check_at > at
    if first is None and now >= SHORT_TIMEOUTS.first_token_s:
        assert result.action is Action.TAKE_OVER
    if last is not None and gap < 1 and now >= SHORT_TIMEOUTS.stall_s + 10 * gap:
        assert result.action is Action.TAKE_OVER


@given(window=st.floats(0.05, 300), local=st.floats(0.001, 300))
def test_before_the_first_chunk_time_is_reserved_for_the_local_generator(window: float, local: float) -> None:
    progress = replace(
        SILENT, started=0.0, now=0.0, deadline=window, local=Estimate(local / 2, local, 0.01), may_hedge=False
    )
    timeout_at = assess(progress, SHORT_TIMEOUTS).check_at
    assert timeout_at <= SHORT_TIMEOUTS.first_token_s
    if 1.5 * local <= 0.9 * window:
        assert window - timeout_at >= 1.5 * local - 1e-9
