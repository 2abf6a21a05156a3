import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.offload.remotes.latency_model import EncoderLatency, Estimate, LatencyModel, Sample

SECONDS = st.floats(0, 1e4)
REPORTED = st.floats(allow_nan=False, allow_infinity=False)


def test_without_a_measurement_nothing_is_predicted() -> None:
    assert LatencyModel().estimate(100, 100, 5, 1) == Estimate()


def test_a_prediction_adds_queueing_prefill_and_decoding() -> None:
    model = LatencyModel()
    model.observe(Sample(queue_s=1.0, first_token_s=2.0, finish_s=6.0, prompt_tokens=100, tokens=41))
    assert model.service_s == 5.0
    free = model.estimate(prompt_tokens=200, max_tokens=21, ahead=3, slots=4)
    assert free == Estimate(2.0, 2.0 + 21 * 0.1, 0.1, 4.0)
    behind = model.estimate(prompt_tokens=100, max_tokens=500, ahead=7, slots=4)
    assert behind.first_token_s == 4 / 4 * 5.0 + 1.0


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9), st.floats(0, 9)), min_size=1), st.integers(0, 50))
def test_more_requests_ahead_never_finish_sooner(samples: list[tuple[float, float, float]], ahead: int) -> None:
    model = LatencyModel()
    for queue, start, rest in samples:
        model.observe(Sample(queue, queue + start, queue + start + rest, 100, 10))
    less, more = (model.estimate(100, 50, n, 4).finish_s for n in (ahead, ahead + 1))
    assert less is not None
    assert more is not None
    assert 0 <= less <= more


def test_a_varying_latency_gives_larger_bounds() -> None:
    even, uneven = LatencyModel(), LatencyModel()
    for n in range(40):
        even.observe(Sample(0.0, 1.0, 3.0, 100, 10))
        uneven.observe(Sample(0.0, 0.2 + 1.6 * (n % 2), 1.0 + 4.0 * (n % 2), 100, 10))
    steady, unsteady = (model.estimate(100, 50, 0, 4) for model in (even, uneven))
    assert steady.unusual_s == 2.0
    assert unsteady.unusual_s is not None
    assert unsteady.unusual_s > 3.0
    assert unsteady.finish_s is not None
    assert steady.finish_s is not None
    assert unsteady.finish_s > steady.finish_s + 0.5


def test_without_a_measurement_no_encoding_time_is_predicted() -> None:
    assert EncoderLatency().expected_s(8) is None
    assert EncoderLatency().unusual_s(8) is None
    assert EncoderLatency().texts_per_s is None


def test_network_queueing_and_compute_time_are_separated() -> None:
    latency = EncoderLatency().after(64, elapsed_s=1.0, queue_s=0.2, compute_s=0.64)
    assert latency.round_trip_s == pytest.approx(0.16)
    assert latency.texts_per_s == pytest.approx(100)
    assert latency.expected_s(8) == pytest.approx(0.16 + 0.2 + 0.08)


def test_local_work_has_no_network_time() -> None:
    latency = EncoderLatency().after(10, elapsed_s=2.0)
    assert (latency.round_trip_s, latency.queue_s, latency.texts_per_s) == (0, 0, 5)


def test_a_remote_that_slows_down_is_predicted_slow() -> None:
    latency = EncoderLatency().after(1, 0.01, 0.0, 0.01)
    for _ in range(20):
        latency = latency.after(1, 0.2, 0.0, 0.2)
    assert latency.expected_s(1) == pytest.approx(0.2, rel=0.02)


@given(texts=st.integers(1, 1000), samples=st.lists(st.tuples(SECONDS, REPORTED, REPORTED), min_size=1))
def test_reported_times_never_give_negative_times_or_more_than_elapsed(
    texts: int, samples: list[tuple[float, float, float]]
) -> None:
    latency = EncoderLatency()
    for elapsed, queue, compute in samples:
        latency = latency.after(texts, elapsed, queue, compute)
    longest = max(elapsed for elapsed, _, _ in samples)
    expected, unusual = latency.expected_s(texts), latency.unusual_s(texts)
    assert expected is not None
    assert unusual is not None
    assert min(latency.round_trip_s, latency.queue_s, latency.deviation_s) >= 0
    assert 0 <= expected <= longest * (1 + 1e-9) + 1e-9
    assert unusual >= expected
