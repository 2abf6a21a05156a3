"""Percentiles over the latest samples: exact for those, bounded in memory, and moving with the traffic."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from edge_rag.core.monitoring.metrics import Latency, LatencyMetric

REQUESTS: Final = 1_024
"""Requests that the percentiles of requests are of."""

GAPS: Final = 8_192
"""Gaps between tokens that their percentiles are of."""


def percentiles(samples: Sequence[float], wanted: Sequence[float]) -> list[float]:
    """Returns percentiles of samples, interpolated between neighbours.

    Source: definition 7 in Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician
    50(4), 1996.

    Args:
        samples: At least one, in any order.
        wanted: Percentages, 0 to 100.
    """
    values: list[float] = np.percentile(np.asarray(samples, np.float64), wanted, method="linear").tolist()
    return values


class Latencies:
    """Keeps the latest samples of each measure. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples = {
            measure: deque[float](maxlen=GAPS if measure is LatencyMetric.TOKEN_GAP else REQUESTS)
            for measure in LatencyMetric
        }

    def add(self, measure: LatencyMetric, samples: Iterable[float]) -> None:
        """Adds samples, seconds, in order of time; the oldest make room."""
        with self._lock:
            self._samples[measure].extend(samples)

    def read(self) -> tuple[Latency, ...]:
        """Returns the percentiles of every measure that has samples."""
        with self._lock:
            kept = {measure: tuple(samples) for measure, samples in self._samples.items() if samples}
        return tuple(
            Latency(measure, len(samples), *percentiles(samples, (50, 95, 99))) for measure, samples in kept.items()
        )
