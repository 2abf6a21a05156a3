"""What an engine reports to: the audit trail, metrics, percentiles, usage, activity and the watchdog at once.

Whether the work goes on: every engine that runs has to go round, not just one of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from edge_rag.core.answer import Usage
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.metrics import LatencyMetric, RequestReport, StepReport
from edge_rag.telemetry.activity import Activity
from edge_rag.telemetry.audit_log import AuditLog
from edge_rag.telemetry.latencies import Latencies
from edge_rag.telemetry.metrics.engine import EngineMetrics
from edge_rag.telemetry.usage import UsageMeter


class LivenessMonitor:
    """Says that the work goes on each time all engines that run have gone round since it was last said. Any thread.

    While a model takes the place of another there are two, and one that hangs must not hide behind the other.

    Args:
        alive: Says it; must return at once.
    """

    def __init__(self, alive: Callable[[], None]) -> None:
        self._alive = alive
        self._lock = threading.Lock()
        self._running: set[EngineLiveness] = set()
        self._awaited: set[EngineLiveness] = set()

    def turned(self, pulse: EngineLiveness) -> None:
        """An engine went round; from the first time on it is waited for."""
        with self._lock:
            self._running.add(pulse)
            self._awaited.discard(pulse)
            if self._awaited:
                return
            self._awaited = set(self._running)
        self._alive()

    def ended(self, pulse: EngineLiveness) -> None:
        """An engine has ended and is waited for no more."""
        with self._lock:
            self._running.discard(pulse)
            self._awaited.discard(pulse)


class EngineLiveness:
    """One engine's.

    Args:
        pulses: All of them.
    """

    def __init__(self, pulses: LivenessMonitor) -> None:
        self._pulses = pulses

    def turned(self) -> None:
        """The engine went round."""
        self._pulses.turned(self)

    def ended(self) -> None:
        """It does no more."""
        self._pulses.ended(self)


class EngineObserver:
    """Passes reports and decisions on. Called on the engine's thread, and on others for refusals.

    Args:
        trail: Keeps the decisions.
        metrics: Counts.
        latencies: Keeps the percentiles.
        usage: Sums up by client.
        activity: Knows what was done in the last seconds.
        pulses: Told of every turn of the engine's loop, and of its end; feeds the watchdog.
    """

    def __init__(
        self,
        trail: AuditLog,
        metrics: EngineMetrics,
        latencies: Latencies,
        usage: UsageMeter,
        activity: Activity,
        pulses: LivenessMonitor,
    ) -> None:
        self.trail = trail
        self.metrics = metrics
        self.latencies = latencies
        self.usage = usage
        self.activity = activity
        self._pulses = pulses
        pulse = EngineLiveness(pulses)
        self.on_turn = pulse.turned
        self.on_end = pulse.ended

    def for_another(self) -> EngineObserver:
        """Returns what another engine reports to: all the same but its pulse."""
        return EngineObserver(self.trail, self.metrics, self.latencies, self.usage, self.activity, self._pulses)

    def on_step(self, report: StepReport) -> None:
        """A step was done, or failed."""
        self.metrics.on_step(report)
        self.activity.computed.add(report.tokens)
        self.activity.generated.add(report.generated_tokens)
        if report.token_gaps_s:
            self.latencies.add(LatencyMetric.TOKEN_GAP, report.token_gaps_s)

    def on_request(self, report: RequestReport) -> None:
        """A request is over."""
        self.metrics.on_request(report)
        self.usage.ended(report)
        if report.usage.model_steps:
            self.latencies.add(LatencyMetric.QUEUE, (report.queue_s,))
        if report.per_token_s is not None:
            self.latencies.add(LatencyMetric.PER_TOKEN, (report.per_token_s,))

    def record_remote(self, client: str, usage: Usage, alone: bool) -> None:
        """Other machines wrote an answer, or a part of one; see ``UsageMeter.record_remote``."""
        self.usage.record_remote(client, usage, alone)

    def record(self, decision: AuditEvent) -> None:
        """A decision was made."""
        self.trail.record(decision)
        self.metrics.record(decision)
        if decision.kind is AuditEventKind.REFUSED:
            self.usage.refused(decision.client)
