from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from edge_rag.core.answer import Finished, FinishReason, StageTime, Usage
from edge_rag.core.documents.document import IngestOutcome, IngestStatus
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.monitoring.metrics import LatencyMetric, RequestReport, StepReport
from edge_rag.core.monitoring.status import EngineStats
from edge_rag.telemetry.activity import Activity, Latencies
from edge_rag.telemetry.audit_log import AuditLog
from edge_rag.telemetry.engine_observer import EngineMetrics, EngineObserver, LivenessMonitor
from edge_rag.telemetry.metrics.calls import Metrics
from edge_rag.telemetry.usage import UsageMeter
from tests.unit.telemetry.audit_events import audit_event

STEP = StepReport(
    tokens=70,
    decodes=6,
    sequences=7,
    slots=8,
    slots_busy=7,
    waiting=2,
    pages_used=30,
    preempted=0,
    cache_query_tokens=64,
    cache_hit_tokens=48,
    drafted=4,
    accepted=3,
    schedule_s=0.001,
    run_s=0.2,
    sample_s=0.003,
    generated_tokens=5,
    token_gaps_s=(0.2, 0.3),
    failed=False,
)
REQUEST = RequestReport(
    client="alice",
    usage=Usage(100, 40, 5, 2, 4),
    queue_s=0.5,
    slot_s=1.5,
    first_token_s=1.0,
    last_token_s=1.8,
    completed=True,
)
FINISHED = Finished(
    FinishReason.STOP,
    Usage(100, 40, 5, 2, 4),
    (StageTime("retriever", 0.1, 0.2), StageTime("generator", 0.5, 1.5)),
    first_token_s=1.25,
)


STATS = EngineStats(slots=8, slots_busy=3, waiting=2, pages=40, pages_used=10, pages_cached=5, page_tokens=32)


class Measured:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.latencies = Latencies()
        self.metrics = Metrics(self.registry, self.latencies)
        self.engine = EngineMetrics(self.registry)
        self.watch = EngineObserver(
            AuditLog(10), self.engine, self.latencies, UsageMeter(), Activity(), LivenessMonitor(lambda: None)
        )

    def __getitem__(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"edge_rag_{name}")

    def of(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"edge_rag_{name}", labels)


@pytest.fixture
def measured() -> Measured:
    return Measured()


def test_steps_are_measured_in_their_parts_and_tokens(measured: Measured) -> None:
    measured.watch.on_step(STEP)
    measured.watch.on_step(replace(STEP, slots_busy=8, tokens=30, token_gaps_s=(), failed=True))
    for part, seconds in (("schedule", 0.002), ("run", 0.4), ("sample", 0.006)):
        assert measured.of("step_time_seconds_sum", part=part) == pytest.approx(seconds)
        assert measured.of("step_time_seconds_count", part=part) == 2
    assert [(each.measure, each.samples) for each in measured.latencies.read()] == [(LatencyMetric.TOKEN_GAP, 2)]
    expected = {
        "slot_occupancy_count": 2,
        "slot_occupancy_sum": 7 / 8 + 1,
        "iteration_tokens_sum": 100,
        "failed_steps_total": 1,
        "prefix_cache_queries_total": 128,
        "prefix_cache_hits_total": 96,
        "spec_decode_num_draft_tokens_total": 8,
        "spec_decode_num_accepted_tokens_total": 6,
        "inter_token_latency_seconds_count": 2,
        "inter_token_latency_seconds_sum": 0.5,
    }
    assert {name: measured[name] for name in expected} == pytest.approx(expected)


def test_slots_above_a_lowered_limit_count_as_a_full_batch(measured: Measured) -> None:
    measured.watch.on_step(replace(STEP, slots=4, slots_busy=6))
    assert measured["slot_occupancy_sum"] == 1


def test_the_time_of_a_token_is_the_mean_after_the_first(measured: Measured) -> None:
    measured.watch.on_request(REQUEST)
    assert measured["request_time_per_output_token_seconds_sum"] == pytest.approx(0.8 / 4)
    measured.watch.on_request(replace(REQUEST, usage=Usage(100, 40, 1, 0, 1), last_token_s=1.0))
    measured.watch.on_request(replace(REQUEST, first_token_s=None, last_token_s=None))
    assert measured["request_time_per_output_token_seconds_count"] == 1
    kept = {latency.measure: latency for latency in measured.latencies.read()}
    assert kept[LatencyMetric.PER_TOKEN].p50_s == pytest.approx(0.2)
    assert (kept[LatencyMetric.QUEUE].samples, kept[LatencyMetric.QUEUE].p50_s) == (3, 0.5)


def test_a_request_without_a_slot_adds_no_queue_time(measured: Measured) -> None:
    measured.watch.on_request(replace(REQUEST, usage=Usage(), first_token_s=None, last_token_s=None, queue_s=0.0))
    assert measured.latencies.read() == ()
    assert measured.watch.usage.read()[0].requests == 1


def test_preemptions_are_counted_by_cause_and_audit_events_by_kind(measured: Measured) -> None:
    for reason in ("pages ran out", "pages ran out", "a better class came"):
        measured.watch.record(audit_event(AuditEventKind.PREEMPTED, reason=reason))
    measured.watch.record(audit_event(AuditEventKind.REFUSED, client="alice"))
    assert measured.of("num_preemptions_total", cause="pages ran out") == 2
    assert measured.of("num_preemptions_total", cause="a better class came") == 1
    assert measured.of("audit_events_total", kind="preempted") == 3
    assert measured.of("audit_events_total", kind="refused") == 1
    assert measured.watch.usage.read()[0].refused == 1
    assert measured.watch.audit.entries().last == 4


def test_current_state_is_read_when_metrics_are_collected(measured: Measured) -> None:
    state, dropped = [STATS], [0]
    measured.engine.read_from(lambda: state[0], lambda: dropped[0])
    assert measured["num_requests_running"] == 3
    assert measured["num_requests_waiting"] == 2
    assert measured["slots"] == 8
    assert measured["kv_cache_usage_ratio"] == 0.25
    assert measured["kv_pages"] == 40
    assert measured["kv_pages_cached"] == 5
    assert measured["audit_lines_dropped_total"] == 0
    state[0], dropped[0] = replace(STATS, slots_busy=0), 7
    assert measured["num_requests_running"] == 0
    assert measured["audit_lines_dropped_total"] == 7


def test_a_finished_answer_is_measured_by_stage_and_as_a_whole(measured: Measured) -> None:
    measured.metrics.answered(FINISHED, 2.5)
    measured.metrics.answered(replace(FINISHED, first_token_s=None), 2.5)
    assert measured.of("request_queue_time_seconds_sum", stage="retriever") == pytest.approx(0.2)
    assert measured.of("request_queue_time_seconds_sum", stage="generator") == pytest.approx(1.0)
    assert measured.of("request_compute_time_seconds_sum", stage="generator") == pytest.approx(3.0)
    assert measured["time_to_first_token_seconds_sum"] == 1.25
    assert measured["prompt_tokens_total"] == 200
    assert measured["generation_tokens_total"] == 10
    kept = {latency.measure: (latency.samples, latency.p99_s) for latency in measured.latencies.read()}
    assert kept == {LatencyMetric.FIRST_TOKEN: (1, 1.25), LatencyMetric.COMPLETION: (2, 2.5)}


def test_documents_are_counted_by_outcome(measured: Measured) -> None:
    measured.metrics.ingested(IngestOutcome("a.md", IngestStatus.REJECTED, None, "empty"))
    assert measured.of("documents_total", outcome="rejected") == 1
