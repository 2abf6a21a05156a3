"""Metrics of the engine, and the observer that passes what engines report to every monitor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from edge_rag.core.answer import Usage
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.metrics import LatencyMetric, RequestReport, StepReport
from edge_rag.core.monitoring.status import EngineStats
from edge_rag.telemetry.activity import Activity, Latencies
from edge_rag.telemetry.audit_log import AuditLog
from edge_rag.telemetry.usage import UsageMeter

_GAPS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PARTS_S: Final = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.97, 0.99, 1.0)
_TOKENS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class EngineMetrics:
    """Counts steps, requests and audit events."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.occupancy = Histogram(
            "edge_rag_slot_occupancy",
            "Share of the slots taken, one sample per step; 1 if more are taken than a lowered limit allows.",
            buckets=_SHARES,
            registry=registry,
        )
        self.preemptions = Counter(
            "edge_rag_num_preemptions_total", "Preemptions by cause.", ("cause",), registry=registry
        )
        self.audit_events = Counter(
            "edge_rag_audit_events_total", "Audit events by kind.", ("kind",), registry=registry
        )
        self.cache_queries = Counter(
            "edge_rag_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", registry=registry
        )
        self.cache_hits = Counter(
            "edge_rag_prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", registry=registry
        )
        self.drafted = Counter(
            "edge_rag_spec_decode_num_draft_tokens_total", "Tokens drafted by prompt lookup.", registry=registry
        )
        self.accepted = Counter(
            "edge_rag_spec_decode_num_accepted_tokens_total", "Drafted tokens that were accepted.", registry=registry
        )
        self.step_tokens = Histogram(
            "edge_rag_iteration_tokens", "Tokens computed in a step.", buckets=_TOKENS, registry=registry
        )
        self.failed_steps = Counter("edge_rag_failed_steps_total", "Steps with a failed model run.", registry=registry)
        step = Histogram(
            "edge_rag_step_time_seconds",
            "Time of a step by part: schedule, run (the model), sample (and commit).",
            ("part",),
            buckets=_PARTS_S,
            registry=registry,
        )
        self.schedule_time, self.run_time, self.sample_time = (step.labels(p) for p in ("schedule", "run", "sample"))
        self.token_gap = Histogram(
            "edge_rag_inter_token_latency_seconds",
            "Time between two emissions of tokens of a request.",
            buckets=_GAPS_S,
            registry=registry,
        )
        self.per_token = Histogram(
            "edge_rag_request_time_per_output_token_seconds",
            "Mean time per token after the first, one sample per request.",
            buckets=_GAPS_S,
            registry=registry,
        )

    def on_step(self, report: StepReport) -> None:
        """Counts a step."""
        self.occupancy.observe(min(1.0, report.slots_busy / report.slots))
        self.step_tokens.observe(report.tokens)
        self.schedule_time.observe(report.schedule_s)
        self.run_time.observe(report.run_s)
        self.sample_time.observe(report.sample_s)
        self.failed_steps.inc(report.failed)
        self.cache_queries.inc(report.cache_query_tokens)
        self.cache_hits.inc(report.cache_hit_tokens)
        self.drafted.inc(report.drafted)
        self.accepted.inc(report.accepted)
        for gap in report.token_gaps_s:
            self.token_gap.observe(gap)

    def on_request(self, report: RequestReport) -> None:
        if report.per_token_s is not None:
            self.per_token.observe(report.per_token_s)

    def record(self, event: AuditEvent) -> None:
        self.audit_events.labels(event.kind.value).inc()
        if event.kind is AuditEventKind.PREEMPTED:
            self.preemptions.labels(event.reason).inc()

    def read_from(self, engine: Callable[[], EngineStats], lines_dropped: Callable[[], int]) -> None:
        self._registry.register(_Present(engine, lines_dropped))


class _Present:
    """A Prometheus collector of the engine's present state."""

    def __init__(self, engine: Callable[[], EngineStats], lines_dropped: Callable[[], int]) -> None:
        self._engine = engine
        self._lines_dropped = lines_dropped

    def collect(self) -> Iterator[Metric]:
        now = self._engine()
        yield GaugeMetricFamily("edge_rag_num_requests_running", "Requests in a slot.", now.slots_busy)
        yield GaugeMetricFamily(
            "edge_rag_num_requests_waiting", "Requests that wait for their first slot.", now.waiting
        )
        yield GaugeMetricFamily("edge_rag_slots", "Slots.", now.slots)
        used = now.pages_used / now.pages
        yield GaugeMetricFamily(
            "edge_rag_kv_cache_usage_ratio", "Share of the KV pages that requests hold, 0 to 1.", used
        )
        yield GaugeMetricFamily("edge_rag_kv_pages", "KV pages in the pool.", now.pages)
        yield GaugeMetricFamily(
            "edge_rag_kv_pages_cached", "KV pages in the prefix cache that no request holds.", now.pages_cached
        )
        yield CounterMetricFamily(
            "edge_rag_audit_lines_dropped", "Lines dropped from the audit file.", self._lines_dropped()
        )


class LivenessMonitor:
    """Notifies the watchdog each time all running engines have completed a loop iteration. Any thread.

    During a model swap two engines run, and one that hangs must not be hidden by the other.

    Args:
        alive: Notifies the watchdog; must return at once.
    """

    def __init__(self, alive: Callable[[], None]) -> None:
        self._alive = alive
        self._lock = threading.Lock()
        self._running: set[EngineLiveness] = set()
        self._waiting_for: set[EngineLiveness] = set()

    def iterated(self, own: EngineLiveness) -> None:
        """Records an iteration of an engine's loop; from the first one on the engine is waited for."""
        with self._lock:
            self._running.add(own)
            self._waiting_for.discard(own)
            if self._waiting_for:
                return
            self._waiting_for = set(self._running)
        self._alive()

    def ended(self, own: EngineLiveness) -> None:
        with self._lock:
            self._running.discard(own)
            self._waiting_for.discard(own)


class EngineLiveness:
    """Liveness of one engine."""

    def __init__(self, liveness: LivenessMonitor) -> None:
        self._liveness = liveness

    def iterated(self) -> None:
        self._liveness.iterated(self)

    def ended(self) -> None:
        self._liveness.ended(self)


class EngineObserver:
    """Observer of an engine. Called on the engine's thread, and on others for refusals.

    Args:
        activity: Keeps rates of the last seconds.
    """

    def __init__(
        self,
        audit: AuditLog,
        metrics: EngineMetrics,
        latencies: Latencies,
        usage: UsageMeter,
        activity: Activity,
        liveness: LivenessMonitor,
    ) -> None:
        self.audit = audit
        self.metrics = metrics
        self.latencies = latencies
        self.usage = usage
        self.activity = activity
        self._liveness = liveness
        own = EngineLiveness(liveness)
        self.on_turn = own.iterated
        self.on_end = own.ended

    def for_another(self) -> EngineObserver:
        return EngineObserver(self.audit, self.metrics, self.latencies, self.usage, self.activity, self._liveness)

    def on_step(self, report: StepReport) -> None:
        self.metrics.on_step(report)
        self.activity.computed.add(report.tokens)
        self.activity.generated.add(report.generated_tokens)
        if report.token_gaps_s:
            self.latencies.add(LatencyMetric.TOKEN_GAP, report.token_gaps_s)

    def on_request(self, report: RequestReport) -> None:
        self.metrics.on_request(report)
        self.usage.ended(report)
        if report.usage.model_steps:
            self.latencies.add(LatencyMetric.QUEUE, (report.queue_s,))
        if report.per_token_s is not None:
            self.latencies.add(LatencyMetric.PER_TOKEN, (report.per_token_s,))

    def record_remote(self, client: str, usage: Usage, alone: bool) -> None:
        """Records usage of an answer that other machines generated in whole or in part; see
        ``UsageMeter.record_remote``.
        """
        self.usage.record_remote(client, usage, alone)

    def record(self, event: AuditEvent) -> None:
        self.audit.record(event)
        self.metrics.record(event)
        if event.kind is AuditEventKind.REFUSED:
            self.usage.refused(event.client)
