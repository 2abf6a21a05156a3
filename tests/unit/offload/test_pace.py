from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.offload.remotes.latency_model import Pace

SECONDS = st.floats(0, 1e4)
STATED = st.floats(allow_nan=False, allow_infinity=False)


def test_nothing_is_expected_before_anything_was_measured() -> None:
    assert Pace().expected_s(8) is None
    assert Pace().unusual_s(8) is None
    assert Pace().texts_per_s is None


def test_the_way_the_queue_and_the_texts_are_told_apart() -> None:
    pace = Pace().after(64, took_s=1.0, queue_s=0.2, compute_s=0.64)
    assert pace.round_trip_s == pytest.approx(0.16)
    assert pace.texts_per_s == pytest.approx(100)
    assert pace.expected_s(8) == pytest.approx(0.16 + 0.2 + 0.08)


def test_what_is_done_here_has_no_way() -> None:
    pace = Pace().after(10, took_s=2.0)
    assert (pace.round_trip_s, pace.queue_s, pace.texts_per_s) == (0, 0, 5)


def test_a_place_that_slows_down_is_expected_to_be_slow() -> None:
    pace = Pace().after(1, 0.01, 0.0, 0.01)
    for _ in range(20):
        pace = pace.after(1, 0.2, 0.0, 0.2)
    assert pace.expected_s(1) == pytest.approx(0.2, rel=0.02)


@given(texts=st.integers(1, 1000), samples=st.lists(st.tuples(SECONDS, STATED, STATED), min_size=1))
def test_whatever_a_place_states_no_time_is_negative_or_more_than_passed(
    texts: int, samples: list[tuple[float, float, float]]
) -> None:
    pace = Pace()
    for took, queue, compute in samples:
        pace = pace.after(texts, took, queue, compute)
    longest = max(took for took, _, _ in samples)
    expected, unusual = pace.expected_s(texts), pace.unusual_s(texts)
    assert expected is not None
    assert unusual is not None
    assert min(pace.round_trip_s, pace.queue_s, pace.deviation_s) >= 0
    assert 0 <= expected <= longest * (1 + 1e-9) + 1e-9
    assert unusual >= expected
