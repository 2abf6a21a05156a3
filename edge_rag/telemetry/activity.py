"""Busy shares and rates over the last seconds, and percentiles of the latest latency samples."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from edge_rag.core.answer import StageTime
from edge_rag.core.monitoring.metrics import Latency, LatencyMetric
from edge_rag.core.monitoring.status import DeviceUse, StageSnapshot

WINDOW_S: Final = 5.0
"""Length of the window, seconds."""

_GRAIN_S: Final = 0.05
"""Least distance between points of a curve, except where work starts or ends a longer pause, seconds."""


class RisingCurve:
    """A value that only grows, over a window of time; linear between the stored points. Not thread-safe.

    Args:
        now: Time until which it is 0, seconds.
        window_s: Length of the window, seconds.
    """

    def __init__(self, now: float, window_s: float) -> None:
        self._window_s = window_s
        self._points = deque([(now, 0.0)])

    def record(self, now: float, value: float) -> None:
        """Records the value at a time not before the last one."""
        points = self._points
        if len(points) > 1 and now - points[-2][0] < _GRAIN_S:
            points.pop()
        points.append((now, value))
        while len(points) > 2 and points[1][0] <= now - self._window_s:
            points.popleft()

    def slope(self, now: float, value: float) -> float:
        """Returns the average growth per second over the window.

        Args:
            now: Current time, seconds.
        """
        return (value - self._at(now - self._window_s, now, value)) / self._window_s

    def _at(self, moment: float, now: float, value: float) -> float:
        for (start, low), (end, high) in pairwise([*self._points, (now, value)]):
            if start <= moment < end:
                return low + (high - low) * (moment - start) / (end - start)
        return self._points[0][1]


class Rate:
    """Events per second. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, window_s: float = WINDOW_S) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._total = 0.0
        self._curve = RisingCurve(clock(), window_s)

    def add(self, count: float) -> None:
        with self._lock:
            now = self._clock()
            self._curve.record(now, self._total)
            self._total += count
            self._curve.record(now, self._total)

    def per_second(self) -> float:
        """Returns the events per second over the window."""
        with self._lock:
            return self._curve.slope(self._clock(), self._total)


class BusyShare:
    """Share of time in which at least one block is active. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, window_s: float = WINDOW_S) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._working = 0
        self._since = 0.0
        self._busy_s = 0.0
        self._curve = RisingCurve(clock(), window_s)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Marks the time of the block as busy."""
        with self._lock:
            now = self._clock()
            if not self._working:
                self._since = now
                self._curve.record(now, self._busy_s)
            self._working += 1
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1
                if not self._working:
                    now = self._clock()
                    self._busy_s += now - self._since
                    self._curve.record(now, self._busy_s)

    def share(self) -> float:
        """Returns the busy share over the window, 0 to 1."""
        with self._lock:
            now = self._clock()
            busy_s = self._busy_s + (now - self._since if self._working else 0.0)
            return min(1.0, max(0.0, self._curve.slope(now, busy_s)))


class Activity:
    """What stages and their devices did in the last seconds. Any thread.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stages: dict[str, BusyShare] = {}
        self._devices: dict[str, BusyShare] = {}
        self._users: dict[str, list[str]] = {}
        self.generated = Rate(clock)
        self.computed = Rate(clock)

    @contextmanager
    def working(self, stage: str, device: str) -> Iterator[None]:
        of_stage, of_device = self._of(stage, device)
        with of_stage.working(), of_device.working():
            yield

    def stage_share(self, stage: str) -> float:
        """Returns the share of the last seconds in which a stage was busy, 0 to 1."""
        with self._lock:
            busy = self._stages.get(stage)
        return 0.0 if busy is None else busy.share()

    def devices(self) -> tuple[DeviceUse, ...]:
        with self._lock:
            devices = [(name, busy, tuple(self._users[name])) for name, busy in sorted(self._devices.items())]
        return tuple(DeviceUse(name, busy.share(), stages) for name, busy, stages in devices)

    def _of(self, stage: str, device: str) -> tuple[BusyShare, BusyShare]:
        with self._lock:
            if stage not in self._stages:
                self._stages[stage] = BusyShare(self._clock)
            if device not in self._devices:
                self._devices[device] = BusyShare(self._clock)
            stages = self._users.setdefault(device, [])
            if stage not in stages:
                stages.append(stage)
            return self._stages[stage], self._devices[device]


REQUEST_SAMPLES: Final = 1_024
"""Samples kept of each latency of requests."""

GAP_SAMPLES: Final = 8_192
"""Samples kept of gaps between tokens."""


def percentiles(samples: Sequence[float], percentages: Sequence[float]) -> list[float]:
    """Returns percentiles of samples, interpolated linearly.

    Source: definition 7 in Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician
    50(4), 1996.

    Args:
        samples: At least one, in any order.
        percentages: Percentages, 0 to 100.
    """
    values: list[float] = np.percentile(np.asarray(samples, np.float64), percentages, method="linear").tolist()
    return values


class Latencies:
    """Keeps the latest samples of each latency. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples = {
            measure: deque[float](maxlen=GAP_SAMPLES if measure is LatencyMetric.TOKEN_GAP else REQUEST_SAMPLES)
            for measure in LatencyMetric
        }
        self._stages = defaultdict[str, deque[float]](lambda: deque(maxlen=REQUEST_SAMPLES))

    def add(self, measure: LatencyMetric, samples: Iterable[float]) -> None:
        """Adds samples in order of time, seconds; the oldest ones are dropped."""
        with self._lock:
            self._samples[measure].extend(samples)

    def add_stages(self, stages: Iterable[StageTime]) -> None:
        with self._lock:
            for stage in stages:
                self._stages[stage.stage].append(stage.queue_s + stage.compute_s)

    def of_stage(self, stage: StageSnapshot) -> StageSnapshot:
        with self._lock:
            samples = tuple(self._stages.get(stage.name, ()))
        if not samples:
            return stage
        p50_s, p95_s, p99_s = percentiles(samples, (50, 95, 99))
        return replace(stage, p50_s=p50_s, p95_s=p95_s, p99_s=p99_s)

    def read(self) -> tuple[Latency, ...]:
        with self._lock:
            kept = {measure: tuple(samples) for measure, samples in self._samples.items() if samples}
        return tuple(
            Latency(measure, len(samples), *percentiles(samples, (50, 95, 99))) for measure, samples in kept.items()
        )
