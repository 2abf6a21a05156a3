"""The engine's metrics, under the names that operators of such engines know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.metrics import RequestReport, StepReport
from edge_rag.core.monitoring.status import DiskStats, EngineStats

_GAPS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PARTS_S: Final = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.97, 0.99, 1.0)
_TOKENS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class EngineMetrics:
    """Counts steps, requests and decisions.

    Args:
        registry: Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.occupancy = Histogram(
            "edge_rag_slot_occupancy",
            "Share of the slots taken, one sample a step; 1 also while more are taken than a lowered limit allows.",
            buckets=_SHARES,
            registry=registry,
        )
        self.preemptions = Counter(
            "edge_rag_num_preemptions_total", "Running requests that gave way, by cause.", ("cause",), registry=registry
        )
        self.decisions = Counter("edge_rag_audit_events_total", "Decisions by kind.", ("kind",), registry=registry)
        self.cache_queries = Counter(
            "edge_rag_prefix_cache_queries_total", "Tokens that the prefix cache was asked for.", registry=registry
        )
        self.cache_hits = Counter(
            "edge_rag_prefix_cache_hits_total", "Those of them that were found.", registry=registry
        )
        self.drafted = Counter(
            "edge_rag_spec_decode_num_draft_tokens_total", "Tokens drafted by prompt lookup.", registry=registry
        )
        self.accepted = Counter(
            "edge_rag_spec_decode_num_accepted_tokens_total", "Those of them that were said.", registry=registry
        )
        self.step_tokens = Histogram(
            "edge_rag_iteration_tokens", "Tokens computed in a step.", buckets=_TOKENS, registry=registry
        )
        self.failed_steps = Counter(
            "edge_rag_failed_steps_total", "Steps in which the model failed.", registry=registry
        )
        step = Histogram(
            "edge_rag_step_time_seconds",
            "Time of a step by part: to schedule it, to run the model, to sample and commit.",
            ("part",),
            buckets=_PARTS_S,
            registry=registry,
        )
        self.schedule_time, self.run_time, self.sample_time = (step.labels(p) for p in ("schedule", "run", "sample"))
        self.token_gap = Histogram(
            "edge_rag_inter_token_latency_seconds",
            "Between two moments at which a request's tokens came.",
            buckets=_GAPS_S,
            registry=registry,
        )
        self.per_token = Histogram(
            "edge_rag_request_time_per_output_token_seconds",
            "Mean time of a token after the first, one sample a request.",
            buckets=_GAPS_S,
            registry=registry,
        )

    def on_step(self, report: StepReport) -> None:
        """Counts a step."""
        self.occupancy.observe(min(1.0, report.slots_busy / report.slots))
        self.step_tokens.observe(report.tokens)
        self.schedule_time.observe(report.schedule_s)
        self.run_time.observe(report.run_s)
        self.sample_time.observe(report.choose_s)
        self.failed_steps.inc(report.failed)
        self.cache_queries.inc(report.cache_query_tokens)
        self.cache_hits.inc(report.cache_hit_tokens)
        self.drafted.inc(report.drafted)
        self.accepted.inc(report.accepted)
        for gap in report.token_gaps_s:
            self.token_gap.observe(gap)

    def on_request(self, report: RequestReport) -> None:
        """Counts a request that is over."""
        if report.per_token_s is not None:
            self.per_token.observe(report.per_token_s)

    def record(self, decision: AuditEvent) -> None:
        """Counts a decision. Reasons are sentences from the program, so that there are few of them."""
        self.decisions.labels(decision.kind.value).inc()
        if decision.kind is AuditEventKind.PREEMPTED:
            self.preemptions.labels(decision.reason).inc()

    def read_from(self, engine: Callable[[], EngineStats], lines_dropped: Callable[[], int]) -> None:
        """Registers what is read at the time the metrics are asked for.

        Args:
            engine: Returns the engine's present state.
            lines_dropped: Returns how many lines of the audit file were lost.
        """
        self._registry.register(_Present(engine, lines_dropped))


class _Present:
    """A Prometheus collector of the engine's present state."""

    def __init__(self, engine: Callable[[], EngineStats], lines_dropped: Callable[[], int]) -> None:
        self._engine = engine
        self._lines_dropped = lines_dropped

    def collect(self) -> Iterator[Metric]:
        now = self._engine()
        yield GaugeMetricFamily("edge_rag_num_requests_running", "Requests in a slot.", now.slots_busy)
        yield GaugeMetricFamily("edge_rag_num_requests_waiting", "Requests without a slot so far.", now.waiting)
        yield GaugeMetricFamily("edge_rag_slots", "Slots there are.", now.slots)
        used = now.pages_used / now.pages
        yield GaugeMetricFamily(
            "edge_rag_kv_cache_usage_ratio", "Share of the KV pages that requests hold, 0 to 1.", used
        )
        yield GaugeMetricFamily("edge_rag_kv_pages", "KV pages there are.", now.pages)
        yield GaugeMetricFamily(
            "edge_rag_kv_pages_cached", "KV pages kept for prompts that begin alike.", now.pages_cached
        )
        if (disk := now.disk) is not None:
            yield from _on_disk(disk)
        yield CounterMetricFamily(
            "edge_rag_audit_lines_dropped", "Lines of the audit file lost.", self._lines_dropped()
        )


def _on_disk(disk: DiskStats) -> Iterator[Metric]:
    yield GaugeMetricFamily("edge_rag_kv_disk_pages", "KV pages on disk.", disk.pages)
    yield GaugeMetricFamily(
        "edge_rag_kv_disk_failed", "1 once the disk failed; it is not used for KV pages any more.", disk.failed
    )
    yield CounterMetricFamily("edge_rag_kv_disk_pages_written", "KV pages written to disk.", disk.written)
    yield CounterMetricFamily("edge_rag_kv_disk_pages_read", "KV pages read from disk and used.", disk.read)
    yield CounterMetricFamily(
        "edge_rag_kv_disk_pages_dropped", "KV pages not written because the disk did not keep up.", disk.dropped
    )
    yield CounterMetricFamily(
        "edge_rag_kv_disk_files_damaged", "Files of KV pages that were damaged, and removed.", disk.damaged
    )
