"""How fast a place answers, measured: exponentially weighted means of what came back, and predictions from them.

How fast a place encodes, measured: exponentially weighted means of what came back, and predictions from them. Pure.

What a request takes is a time for the way, a time in the queue there, and a time for each text. The place states the
last two; what is left of the time that passed here is the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WEIGHT: Final = 0.25
"""Weight of the latest sample."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is expected of a place for one request; None where nothing was measured.

    Attributes:
        first_text_s: Until the first text, seconds.
        finish_s: Until the end, with the mean deviation on top, seconds.
        per_token_s: Between two tokens, seconds.
        unusual_s: Time from which on it is unusual that there is no first text yet, seconds: four mean deviations above
            the mean, as the retransmission timer of TCP has it (Jacobson, Congestion Avoidance and Control, 1988).
    """

    first_text_s: float | None = None
    finish_s: float | None = None
    per_token_s: float | None = None
    unusual_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer that came to its end.

    Attributes:
        queue_s: How long it waited there, seconds.
        first_text_s: From asking to the first text, waiting included, seconds.
        finish_s: From asking to the end, seconds.
        prompt_tokens: Length of the prompt, at least 1.
        tokens: Length of the answer, at least 1.
    """

    queue_s: float
    first_text_s: float
    finish_s: float
    prompt_tokens: int
    tokens: int


@dataclass(slots=True)
class _Means:
    start_s: float
    prompt_tokens: float
    per_token_s: float
    tokens: float
    service_s: float
    start_deviation_s: float = 0.0
    service_deviation_s: float = 0.0


class LatencyModel:
    """Keeps the means of one place and one kind of answer. One thread writes, any may read."""

    def __init__(self) -> None:
        self._means: _Means | None = None

    @property
    def service_s(self) -> float | None:
        """Mean time of an answer without waiting, seconds; None where nothing was measured."""
        return None if self._means is None else self._means.service_s

    @property
    def tokens(self) -> float | None:
        """Mean length of an answer, tokens; None where nothing was measured."""
        return None if self._means is None else self._means.tokens

    def observe(self, sample: Sample) -> None:
        """Takes a measurement."""
        start = max(0.0, sample.first_text_s - sample.queue_s)
        per_token = max(0.0, sample.finish_s - sample.first_text_s) / max(1, sample.tokens - 1)
        service = max(0.0, sample.finish_s - sample.queue_s)
        means = self._means
        if means is None:
            self._means = _Means(start, sample.prompt_tokens, per_token, sample.tokens, service)
            return
        means.start_deviation_s += WEIGHT * (abs(start - means.start_s) - means.start_deviation_s)
        means.service_deviation_s += WEIGHT * (abs(service - means.service_s) - means.service_deviation_s)
        means.start_s += WEIGHT * (start - means.start_s)
        means.prompt_tokens += WEIGHT * (sample.prompt_tokens - means.prompt_tokens)
        means.per_token_s += WEIGHT * (per_token - means.per_token_s)
        means.tokens += WEIGHT * (sample.tokens - means.tokens)
        means.service_s += WEIGHT * (service - means.service_s)

    def outlook(self, prompt_tokens: int, max_tokens: int, ahead: int, slots: int) -> Estimate:
        """Predicts one more request.

        Args:
            prompt_tokens: Length of its prompt.
            max_tokens: Longest answer it may get.
            ahead: Requests that run or wait there.
            slots: How many of them run at once, at least 1.

        Returns:
            Waiting for a slot: those ahead beyond the free ones, each slot serving one at a time. Start: as long as the
            mean, in proportion to the prompt. Then a mean answer, at most ``max_tokens``, at the mean pace.
        """
        means = self._means
        if means is None:
            return Estimate()
        waiting_s = max(0, ahead + 1 - slots) / slots * means.service_s
        start_s = means.start_s * prompt_tokens / max(1.0, means.prompt_tokens)
        first = waiting_s + start_s
        finish = first + min(max_tokens, means.tokens) * means.per_token_s + means.service_deviation_s
        unusual = waiting_s + max(2 * start_s, start_s + 4 * means.start_deviation_s)
        return Estimate(first, finish, means.per_token_s, unusual)


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
        """Returns the time from which on it is unusual that they are not done, seconds; as ``Estimate.unusual_s``."""
        expected = self.expected_s(texts)
        return None if expected is None else max(2 * expected, expected + 4 * self.deviation_s)


def _mean(mean: float, latest: float) -> float:
    return mean + WEIGHT * (latest - mean)
