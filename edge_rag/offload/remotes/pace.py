"""How fast a place encodes, measured: exponentially weighted means of what came back, and predictions from them. Pure.

What a request takes is a time for the way, a time in the queue there, and a time for each text. The place states the
last two; what is left of the time that passed here is the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WEIGHT: Final = 0.25
"""Weight of the latest sample."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Immutable: each measurement gives the pace after it.

    Attributes:
        round_trip_s: Time on the way, there and back, seconds.
        queue_s: Time in the queue, seconds.
        per_text_s: Time for a text, seconds; None where nothing was measured.
        deviation_s: How far requests were from what was expected, mean, seconds.
    """

    round_trip_s: float = 0.0
    queue_s: float = 0.0
    per_text_s: float | None = None
    deviation_s: float = 0.0

    @property
    def texts_per_s(self) -> float | None:
        """Texts a second, way and queue left aside; None where nothing was measured."""
        return None if self.per_text_s is None else 1.0 / max(self.per_text_s, 1e-9)

    def after(self, texts: int, took_s: float, queue_s: float = 0.0, compute_s: float | None = None) -> Pace:
        """Takes a measurement.

        Args:
            texts: How many texts it was, at least 1.
            took_s: From asking to the end, seconds.
            queue_s: How long they waited there, as stated; seconds.
            compute_s: How long they were worked on there, as stated; seconds. None for all of the time.
        """
        # A place may state what it likes, but not more time than passed.
        computed = took_s if compute_s is None else min(max(compute_s, 0.0), took_s)
        waited = min(max(queue_s, 0.0), took_s - computed)
        way, each = took_s - computed - waited, computed / texts
        expected = self.expected_s(texts)
        if self.per_text_s is None or expected is None:
            return Pace(way, waited, each)
        return Pace(
            _mean(self.round_trip_s, way),
            _mean(self.queue_s, waited),
            _mean(self.per_text_s, each),
            _mean(self.deviation_s, abs(took_s - expected)),
        )

    def expected_s(self, texts: int) -> float | None:
        """Returns how long so many texts are likely to take, seconds; None where nothing was measured."""
        return None if self.per_text_s is None else self.round_trip_s + self.queue_s + texts * self.per_text_s

    def unusual_s(self, texts: int) -> float | None:
        """Returns the time from which on it is unusual that they are not done, seconds; as ``Outlook.unusual_s``."""
        expected = self.expected_s(texts)
        return None if expected is None else max(2 * expected, expected + 4 * self.deviation_s)


def _mean(mean: float, latest: float) -> float:
    return mean + WEIGHT * (latest - mean)
