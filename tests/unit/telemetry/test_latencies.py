from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.answer import StageTime
from edge_rag.core.monitoring.metrics import Latency, LatencyMetric
from edge_rag.core.monitoring.status import StageSnapshot
from edge_rag.telemetry.activity import GAP_SAMPLES, REQUEST_SAMPLES, Latencies, percentiles

SECONDS = st.floats(0, 1e6)


@given(st.lists(SECONDS, min_size=2, max_size=50))
def test_percentiles_agree_with_the_standard_librarys(samples: list[float]) -> None:
    expected = quantiles(samples, n=100, method="inclusive")
    assert percentiles(samples, (50, 95, 99)) == pytest.approx([expected[49], expected[94], expected[98]])


@given(st.lists(SECONDS, min_size=1, max_size=50))
def test_percentiles_are_in_order_and_within_the_samples(samples: list[float]) -> None:
    p50, p95, p99 = percentiles(samples, (50, 95, 99))
    assert min(samples) <= p50 * (1 + 1e-12)
    assert p50 <= p95 * (1 + 1e-12)
    assert p99 <= max(samples) * (1 + 1e-12)


def test_what_was_never_measured_is_left_out() -> None:
    kept = Latencies()
    assert kept.read() == ()
    kept.add(LatencyMetric.QUEUE, (0.25,))
    assert kept.read() == (Latency(LatencyMetric.QUEUE, 1, 0.25, 0.25, 0.25),)


@pytest.mark.parametrize(
    ("measure", "length"), [(LatencyMetric.QUEUE, REQUEST_SAMPLES), (LatencyMetric.TOKEN_GAP, GAP_SAMPLES)]
)
def test_only_the_latest_samples_count(measure: LatencyMetric, length: int) -> None:
    kept = Latencies()
    kept.add(measure, [1000.0] * length)
    kept.add(measure, [1.0] * length)
    assert kept.read() == (Latency(measure, length, 1.0, 1.0, 1.0),)


def test_a_stage_has_the_percentiles_of_waiting_and_computing_in_it() -> None:
    kept = Latencies()
    stage = StageSnapshot("reranker", 0, 256, 0, 0, 0)
    assert kept.of_stage(stage) is stage
    for seconds in range(101):
        kept.add_stages([StageTime("retriever", 0.0, 9.0), StageTime("reranker", seconds / 2, seconds / 2)])
    assert kept.of_stage(stage) == StageSnapshot("reranker", 0, 256, 0, 0, 0, 0.0, 50.0, 95.0, 99.0)
