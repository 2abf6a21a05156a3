"""Metrics of the board the daemon runs on: how busy its devices are, and how warm."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from edge_rag.core.status import Temperature
from edge_rag.telemetry.activity import Activity


class BoardMetrics:
    """A Prometheus collector; everything is read when it is asked for.

    Args:
        activity: What was done in the last seconds.
        temperatures: Reads the thermal zones.
    """

    def __init__(self, activity: Activity, temperatures: Callable[[], tuple[Temperature, ...]]) -> None:
        self._activity = activity
        self._temperatures = temperatures

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics."""
        busy = GaugeMetricFamily(
            "edge_rag_device_busy_perc",
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
