"""Metrics of where stages run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from edge_rag.core.monitoring.status import ModelInUse


class PlacementMetrics:
    """A Prometheus collector; everything is read when it is asked for.

    Args:
        models: Returns what fills each role now.
    """

    def __init__(self, models: Callable[[], Sequence[ModelInUse]]) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics."""
        stepped_down = GaugeMetricFamily(
            "edge_rag_stage_stepped_down",
            "1 where a stage runs on another execution provider than the device profile puts first, else 0.",
            labels=("stage", "wanted", "used"),
        )
        for model in self._models():
            placement = model.placement
            labels = (placement.stage.value, placement.wanted.value, placement.used.value)
            stepped_down.add_metric(labels, placement.stepped_down)
        yield stepped_down
