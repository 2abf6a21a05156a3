from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.offload.generation.timeouts import Bounds, Progress, Step, look
from edge_rag.offload.remotes.latency_model import Estimate

BOUNDS = Bounds(first_text_s=8.0, stall_s=1.0)
SILENT = Progress(
    now=100.1,
    started=100.0,
    deadline=110.0,
    first_text=None,
    last_text=None,
    said=0,
    left=50,
    remote=Estimate(0.5, 2.0, 0.02, 1.0),
    local=Estimate(1.0, 3.0, 0.04),
    may_hedge=True,
)
SPEAKING = replace(SILENT, first_text=100.5, last_text=101.5, now=101.6, said=51, left=50)


@pytest.mark.parametrize(
    ("progress", "step"),
    [
        (SILENT, Step.WAIT),
        (replace(SILENT, now=101.1), Step.HEDGE),
        (replace(SILENT, now=101.1, may_hedge=False), Step.WAIT),
        (replace(SILENT, now=101.1, remote=Estimate()), Step.WAIT),
        (replace(SILENT, now=105.6), Step.TAKE_OVER),  # the box needs 3 s, half as much again is kept for it
        (replace(SILENT, now=105.6, deadline=None, may_hedge=False), Step.WAIT),
        (replace(SILENT, now=108.1, deadline=None), Step.TAKE_OVER),
        (replace(SILENT, now=105.1, local=Estimate()), Step.TAKE_OVER),
        # This box is so busy that it would be late, so that nothing is gained by leaving the remote.
        (replace(SILENT, now=105.6, local=Estimate(7.0, 9.0, 0.04), may_hedge=False), Step.WAIT),
        (replace(SILENT, now=108.1, local=Estimate(7.0, 9.0, 0.04), may_hedge=False), Step.TAKE_OVER),
        (SPEAKING, Step.WAIT),
        (replace(SPEAKING, now=102.6), Step.TAKE_OVER),
        (replace(SPEAKING, now=102.6, deadline=None), Step.TAKE_OVER),
        (replace(SPEAKING, said=3, left=98), Step.TAKE_OVER),  # 0.5 s a token: the rest takes longer than the deadline
        (replace(SPEAKING, said=3, left=98, deadline=None), Step.WAIT),
        (
            replace(SPEAKING, said=3, left=98, local=Estimate(90.0, 99.0, 1.0)),
            Step.WAIT,
        ),  # it would be later still here
        (replace(SPEAKING, said=3, left=98, local=Estimate(6.0, 9.0, 0.04)), Step.WAIT),  # sooner, but late here too
        # Two words far apart are no pace yet, where another was expected.
        (replace(SPEAKING, first_text=100.9, last_text=101.5, said=3, left=60), Step.WAIT),
        (replace(SPEAKING, first_text=100.9, last_text=101.5, said=3, left=60, remote=Estimate()), Step.TAKE_OVER),
        # Silent for longer than usual: with the time left that this box needs, it goes on; without, nothing is gained.
        (replace(SPEAKING, deadline=104.0, now=101.8, left=20, local=Estimate(0.7, 3.0, 0.04)), Step.TAKE_OVER),
        (replace(SPEAKING, deadline=104.0, now=101.8, left=20, local=Estimate(2.0, 3.0, 0.04)), Step.WAIT),
    ],
)
def test_how_long_a_remote_is_waited_for(progress: Progress, step: Step) -> None:
    assert look(progress, BOUNDS).step is step


times = st.floats(0, 500)
outlooks = st.builds(Estimate, st.none() | times, st.none() | times, st.none() | st.floats(0, 5), st.none() | times)


@given(
    window=st.none() | st.floats(0.01, 300),
    now=st.floats(0, 1000),
    first=st.none() | st.floats(0, 300),
    gap=st.floats(0, 300),
    said=st.integers(1, 500),
    left=st.integers(0, 500),
    remote=outlooks,
    local=outlooks,
    may_hedge=st.booleans(),
)
def test_a_look_always_says_when_to_look_again_and_a_silent_remote_is_given_up(
    window: float | None,
    now: float,
    first: float | None,
    gap: float,
    said: int,
    left: int,
    remote: Estimate,
    local: Estimate,
    may_hedge: bool,
) -> None:
    last = None if first is None else first + gap
    at = now if last is None else last + now
    deadline = None if window is None else max(window, 0 if last is None else last + 0.01)
    progress = Progress(
        at, 0.0, deadline, first, last, said if first is not None else 0, left, remote, local, may_hedge
    )
    seen = look(progress, BOUNDS)
    assert seen.again_at > at
    if first is None and now >= BOUNDS.first_text_s:
        assert seen.step is Step.TAKE_OVER
    if last is not None and gap < 1 and now >= BOUNDS.stall_s + 10 * gap:
        assert seen.step is Step.TAKE_OVER


@given(window=st.floats(0.05, 300), local=st.floats(0.001, 300))
def test_before_the_first_text_enough_time_is_left_for_this_box_where_there_is_enough(
    window: float, local: float
) -> None:
    progress = replace(
        SILENT, started=0.0, now=0.0, deadline=window, local=Estimate(local / 2, local, 0.01), may_hedge=False
    )
    gives_up_at = look(progress, BOUNDS).again_at
    assert gives_up_at <= BOUNDS.first_text_s
    if 1.5 * local <= 0.9 * window:
        assert window - gives_up_at >= 1.5 * local - 1e-9
