"""Percentiles of the latest latency samples, with bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from edge_rag.core.monitoring.metrics import Latency, LatencyMetric

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

    def add(self, measure: LatencyMetric, samples: Iterable[float]) -> None:
        """Adds samples in order of time, seconds; the oldest ones are dropped."""
        with self._lock:
            self._samples[measure].extend(samples)

    def read(self) -> tuple[Latency, ...]:
        """Returns the percentiles of every latency that has samples."""
        with self._lock:
            kept = {measure: tuple(samples) for measure, samples in self._samples.items() if samples}
        return tuple(
            Latency(measure, len(samples), *percentiles(samples, (50, 95, 99))) for measure, samples in kept.items()
        )
