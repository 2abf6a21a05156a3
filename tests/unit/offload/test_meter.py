from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.offload.remotes.latency_model import Estimate, LatencyModel, Sample


def test_nothing_is_predicted_before_something_was_measured() -> None:
    assert LatencyModel().outlook(100, 100, 5, 1) == Estimate()


def test_a_prediction_is_the_wait_the_prompt_and_the_tokens() -> None:
    meter = LatencyModel()
    meter.observe(Sample(queue_s=1.0, first_text_s=2.0, finish_s=6.0, prompt_tokens=100, tokens=41))
    assert meter.service_s == 5.0
    free = meter.outlook(prompt_tokens=200, max_tokens=21, ahead=3, slots=4)
    assert free == Estimate(2.0, 2.0 + 21 * 0.1, 0.1, 4.0)
    behind = meter.outlook(prompt_tokens=100, max_tokens=500, ahead=7, slots=4)
    assert behind.first_text_s == 4 / 4 * 5.0 + 1.0


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9), st.floats(0, 9)), min_size=1), st.integers(0, 50))
def test_more_ahead_is_never_sooner(samples: list[tuple[float, float, float]], ahead: int) -> None:
    meter = LatencyModel()
    for queue, start, rest in samples:
        meter.observe(Sample(queue, queue + start, queue + start + rest, 100, 10))
    less, more = (meter.outlook(100, 50, n, 4).finish_s for n in (ahead, ahead + 1))
    assert less is not None
    assert more is not None
    assert 0 <= less <= more


def test_what_varies_is_given_more_time() -> None:
    even, uneven = LatencyModel(), LatencyModel()
    for n in range(40):
        even.observe(Sample(0.0, 1.0, 3.0, 100, 10))
        uneven.observe(Sample(0.0, 0.2 + 1.6 * (n % 2), 1.0 + 4.0 * (n % 2), 100, 10))
    steady, unsteady = (meter.outlook(100, 50, 0, 4) for meter in (even, uneven))
    assert steady.unusual_s == 2.0
    assert unsteady.unusual_s is not None
    assert unsteady.unusual_s > 3.0
    assert unsteady.finish_s is not None
    assert steady.finish_s is not None
    assert unsteady.finish_s > steady.finish_s + 0.5
