"""Metrics of board, remotes, placement and stages, collected when Prometheus scrapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from edge_rag.core.monitoring.resources import (
    MemoryPressureState,
    PassageSources,
    ShedTarget,
    Temperature,
    ThrottleCause,
    Throttling,
    TokenVectorUse,
)
from edge_rag.core.monitoring.status import (
    Alert,
    AlertKind,
    AlertSeverity,
    LibraryDamage,
    ModelInUse,
    RemoteInUse,
    StageSnapshot,
)
from edge_rag.telemetry.activity import Activity


class BoardMetrics:
    """A Prometheus collector of the present values.

    Args:
        activity: Busy times of the last seconds.
    """

    def __init__(
        self,
        activity: Activity,
        temperatures: Callable[[], tuple[Temperature, ...]],
        throttling: Callable[[], Throttling],
        memory: Callable[[], MemoryPressureState],
    ) -> None:
        self._activity = activity
        self._temperatures = temperatures
        self._throttling = throttling
        self._memory = memory

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics."""
        busy = GaugeMetricFamily(
            "edge_rag_device_busy_ratio",
            "Share of the last 5 seconds in which a stage computed on the device, 0 to 1.",
            labels=("device",),
        )
        for device in self._activity.devices():
            busy.add_metric((device.name,), device.busy)
        yield busy
        temperature = GaugeMetricFamily(
            "edge_rag_temperature_celsius", "Temperature by thermal zone.", labels=("zone",)
        )
        for reading in self._temperatures():
            temperature.add_metric((reading.zone,), reading.celsius)
        yield temperature
        yield from self._of_memory(self._memory())
        now = self._throttling()
        yield GaugeMetricFamily(
            "edge_rag_throttle_share",
            "Usable share of slots and step tokens, 1 without throttling.",
            now.share,
        )
        causes = GaugeMetricFamily(
            "edge_rag_throttled", "1 while the cause throttles the daemon, else 0.", labels=("cause",)
        )
        for cause in ThrottleCause:
            causes.add_metric((cause.value,), cause in now.causes)
        yield causes
        yield GaugeMetricFamily(
            "edge_rag_board_slowdowns", "Slowdowns that the board itself has in effect.", len(now.slowdowns)
        )
        if now.watts is not None:
            yield GaugeMetricFamily("edge_rag_power_watts", "Power of the board.", now.watts)
        if now.joules is not None:
            yield CounterMetricFamily("edge_rag_energy_joules", "Energy that the board consumed.", now.joules)
        if now.joules_per_token is not None:
            yield GaugeMetricFamily(
                "edge_rag_energy_per_token_joules",
                "Energy per generated token over the last seconds.",
                now.joules_per_token,
            )

    @staticmethod
    def _of_memory(memory: MemoryPressureState) -> Iterator[Metric]:
        if memory.headroom_bytes is not None:
            yield GaugeMetricFamily(
                "edge_rag_memory_headroom_bytes",
                "Memory available below every limit.",
                memory.headroom_bytes,
            )
        if memory.waiting is not None:
            yield GaugeMetricFamily(
                "edge_rag_memory_pressure_ratio",
                "Share of the last 10 seconds in which a task waited for memory, 0 to 1.",
                memory.waiting,
            )
        shed = GaugeMetricFamily(
            "edge_rag_memory_shed", "1 while the target is shed to free memory, else 0.", labels=("target",)
        )
        for target in ShedTarget:
            shed.add_metric((target.value,), target in memory.shed)
        yield shed


class AlertMetrics:
    """A Prometheus collector of the alerts of the box."""

    def __init__(self, alerts: Callable[[], Sequence[Alert]], free_bytes: Callable[[], int]) -> None:
        self._alerts = alerts
        self._free_bytes = free_bytes

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics."""
        found = GaugeMetricFamily(
            "edge_rag_alerts", "Alerts in `edge-rag status`, by kind and severity.", labels=("kind", "severity")
        )
        counts = Counter((alert.kind, alert.severity) for alert in self._alerts())
        # A watch is known only where it runs.
        for kind in (each for each in AlertKind if each is not AlertKind.WATCH):
            for severity in AlertSeverity:
                found.add_metric((kind.value, severity.value), counts[kind, severity])
        yield found
        yield GaugeMetricFamily(
            "edge_rag_disk_free_bytes", "Free space of the data directory's disk.", self._free_bytes()
        )


class LibraryMetrics:
    """A Prometheus collector of the damage of the library.

    Args:
        damage: The damage to the library; None if undamaged.
    """

    def __init__(self, damage: LibraryDamage | None) -> None:
        self._damage = damage

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics."""
        yield GaugeMetricFamily(
            "edge_rag_recovery_mode",
            "1 while only what is whole of a damaged library is served and changes are refused, else 0.",
            self._damage is not None,
        )
        yield GaugeMetricFamily(
            "edge_rag_documents_lost",
            "Documents of a damaged library of which nothing can be read, as far as they are known.",
            0 if self._damage is None else self._damage.lost,
        )


class TokenVectorMetrics:
    """A Prometheus collector of the token vectors that reranking compares.

    Args:
        sources: Returns where those of the passages came from.
    """

    def __init__(self, sources: Callable[[], PassageSources], use: Callable[[], TokenVectorUse]) -> None:
        self._sources = sources
        self._use = use

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics."""
        passages = CounterMetricFamily(
            "edge_rag_reranked_passages",
            "Reranked passages by where their token vectors came from: memory, disk, or encoded for the question.",
            labels=("vectors",),
        )
        sources, use = self._sources(), self._use()
        for name, count in (("memory", sources.cached), ("disk", sources.kept), ("encoded", sources.encoded)):
            passages.add_metric((name,), count)
        yield passages
        yield GaugeMetricFamily(
            "edge_rag_token_vector_passages", "Passages whose token vectors are on disk.", use.passages
        )
        yield GaugeMetricFamily("edge_rag_token_vector_bytes", "Disk space of token vectors in use.", use.used_bytes)
        yield GaugeMetricFamily("edge_rag_token_vector_budget_bytes", "Disk space of token vectors.", use.budget_bytes)


class OffloadMetrics:
    """A Prometheus collector of the remotes' state."""

    def __init__(self, remotes: Callable[[], tuple[RemoteInUse, ...]]) -> None:
        self._remotes = remotes

    def collect(self) -> Iterator[Metric]:
        """Returns the metrics."""
        available = GaugeMetricFamily(
            "edge_rag_remote_available",
            "1 if the remote's circuit breaker is not open, else 0.",
            labels=("remote",),
        )
        in_flight = GaugeMetricFamily(
            "edge_rag_remote_requests_running", "Requests in flight to the remote.", labels=("remote",)
        )
        answers = CounterMetricFamily(
            "edge_rag_remote_answers", "Answers that the remote finished.", labels=("remote",)
        )
        failures = CounterMetricFamily(
            "edge_rag_remote_failures",
            "Failures of the remote: errors, timeouts, invalid output.",
            labels=("remote",),
        )
        sent = CounterMetricFamily("edge_rag_remote_sent_bytes", "Bytes sent to the remote.", labels=("remote",))
        embedded = CounterMetricFamily(
            "edge_rag_remote_embedded_texts", "Texts that the remote embedded.", labels=("remote",)
        )
        for remote in self._remotes():
            available.add_metric((remote.name,), float(remote.breaker != "open"))
            in_flight.add_metric((remote.name,), remote.in_flight)
            answers.add_metric((remote.name,), remote.answers)
            failures.add_metric((remote.name,), remote.failures)
            sent.add_metric((remote.name,), remote.sent_bytes)
            embedded.add_metric((remote.name,), remote.embedded_texts)
        yield from (available, in_flight, answers, failures, sent, embedded)


class PlacementMetrics:
    """A Prometheus collector of the present values."""

    def __init__(self, models: Callable[[], Sequence[ModelInUse]]) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics."""
        is_fallback = GaugeMetricFamily(
            "edge_rag_stage_fallback",
            "1 if the stage does not run on the first execution provider of the device profile, else 0.",
            labels=("stage", "wanted", "used"),
        )
        for model in self._models():
            placement = model.placement
            labels = (placement.stage.value, placement.wanted.value, placement.used.value)
            is_fallback.add_metric(labels, placement.is_fallback)
        yield is_fallback


class StageMetrics:
    """A Prometheus collector of the present values."""

    def __init__(self, stages: Callable[[], Sequence[StageSnapshot]]) -> None:
        self._stages = stages

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics."""
        waiting = GaugeMetricFamily("edge_rag_stage_waiting", "Requests in the queue, by stage.", labels=("stage",))
        running = GaugeMetricFamily("edge_rag_stage_running", "Requests in work, by stage.", labels=("stage",))
        busy = GaugeMetricFamily(
            "edge_rag_stage_busy_ratio",
            "Share of the last 5 seconds in which the stage computed, 0 to 1.",
            labels=("stage",),
        )
        refused = CounterMetricFamily(
            "edge_rag_stage_refused", "Requests refused because the queue was full, by stage.", labels=("stage",)
        )
        for stage in self._stages():
            waiting.add_metric((stage.name,), stage.waiting)
            running.add_metric((stage.name,), stage.running)
            busy.add_metric((stage.name,), stage.busy)
            refused.add_metric((stage.name,), stage.refused)
        yield from (waiting, running, busy, refused)
