"""Metrics of the stages: what waits for each, and how busy it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from edge_rag.core.monitoring.status import StageSnapshot


class StageMetrics:
    """A Prometheus collector; everything is read when it is asked for.

    Args:
        stages: Returns the stages as they are now.
    """

    def __init__(self, stages: Callable[[], Sequence[StageSnapshot]]) -> None:
        self._stages = stages

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics."""
        waiting = GaugeMetricFamily("edge_rag_stage_waiting", "Requests in the queue, by stage.", labels=("stage",))
        running = GaugeMetricFamily("edge_rag_stage_running", "Requests being worked on, by stage.", labels=("stage",))
        busy = GaugeMetricFamily(
            "edge_rag_stage_busy_perc", "Share of the last 5 seconds in which it computed, 0 to 1.", labels=("stage",)
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
