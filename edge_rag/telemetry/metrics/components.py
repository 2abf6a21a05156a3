"""Metrics of the board the daemon runs on: how busy its devices are, and how warm."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from edge_rag.core.monitoring.memory_pressure import Ballast, MemoryPressure
from edge_rag.core.monitoring.throttling import Temperature, ThrottleCause, Throttling
from edge_rag.telemetry.activity import Activity


class BoardMetrics:
    """A Prometheus collector; everything is read when it is asked for.

    Args:
        activity: What was done in the last seconds.
        temperatures: Reads the thermal zones.
        throttling: Returns what the board suffers from.
        memory: Returns how short memory is.
    """

    def __init__(
        self,
        activity: Activity,
        temperatures: Callable[[], tuple[Temperature, ...]],
        throttling: Callable[[], Throttling],
        memory: Callable[[], MemoryPressure],
    ) -> None:
        self._activity = activity
        self._temperatures = temperatures
        self._throttling = throttling
        self._memory = memory

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
        yield from self._of_memory(self._memory())
        now = self._throttling()
        yield GaugeMetricFamily(
            "edge_rag_throttle_share",
            "Share of slots and of a step's tokens that may be used, 1 unthrottled.",
            now.share,
        )
        causes = GaugeMetricFamily(
            "edge_rag_throttled", "Whether this holds the daemon back, 0 or 1.", labels=("cause",)
        )
        for cause in ThrottleCause:
            causes.add_metric((cause.value,), cause in now.causes)
        yield causes
        yield GaugeMetricFamily(
            "edge_rag_board_slowdowns", "Things that slow the board down on their own at present.", len(now.slowdowns)
        )
        if now.watts is not None:
            yield GaugeMetricFamily("edge_rag_power_watts", "What the board takes.", now.watts)
        if now.joules is not None:
            yield CounterMetricFamily("edge_rag_energy_joules", "Energy the board took.", now.joules)
        if now.joules_per_token is not None:
            yield GaugeMetricFamily(
                "edge_rag_energy_per_token_joules", "Energy for a generated token, lately.", now.joules_per_token
            )

    @staticmethod
    def _of_memory(memory: MemoryPressure) -> Iterator[Metric]:
        if memory.headroom_bytes is not None:
            yield GaugeMetricFamily(
                "edge_rag_memory_headroom_bytes",
                "Memory that can still be taken.",
                memory.headroom_bytes,
            )
        if memory.waiting is not None:
            yield GaugeMetricFamily(
                "edge_rag_memory_pressure_perc",
                "Share of the last 10 seconds in which something waited for memory, 0 to 1.",
                memory.waiting,
            )
        shed = GaugeMetricFamily("edge_rag_memory_shed", "Whether it is given up for want of memory.", labels=("what",))
        for ballast in Ballast:
            shed.add_metric((ballast.value,), ballast in memory.given_up)
        yield shed
