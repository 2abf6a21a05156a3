"""Statistics of measurements."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Returns a percentile, nearest rank; NaN if there are no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def share(values: Sequence[bool]) -> float:
    """Returns how many are true, 0 to 1; 0 if there are none."""
    return sum(values) / max(1, len(values))
