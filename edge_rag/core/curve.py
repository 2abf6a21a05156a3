"""Where on the curve between quick answers and many answers the generator works."""

from __future__ import annotations

from enum import Enum


class Curve(Enum):
    """A point on the curve.

    LATENCY: fewer at once, each one quicker. BALANCED: what the device profile says. THROUGHPUT: more at once, each one
    slower.
    """

    LATENCY = "latency"
    BALANCED = "balanced"
    THROUGHPUT = "throughput"
