"""Receives reports and events of engines, and passes them to audit log, metrics, usage, activity and watchdog."""

from __future__ import annotations

import threading
from collections.abc import Callable

from edge_rag.core.answer import Usage
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.metrics import LatencyMetric, RequestReport, StepReport
from edge_rag.telemetry.activity import Activity, Latencies
from edge_rag.telemetry.audit_log import AuditLog
from edge_rag.telemetry.metrics.engine import EngineMetrics
from edge_rag.telemetry.usage import UsageMeter


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
