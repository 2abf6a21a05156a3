"""Latency models: exponentially weighted means of measured requests, and predictions from them. Pure.

``LatencyModel`` predicts generation. ``EncoderLatency`` predicts encoding: the time of a call is network time, queueing
time and a time per text. The remote reports the last two; the rest of the elapsed time is network time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WEIGHT: Final = 0.25
"""Weight of the latest sample."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Prediction for one request; attributes are None if nothing was measured.

    Attributes:
        first_token_s: Time to first token, seconds.
        finish_s: Time to the end plus the mean deviation, seconds.
        per_token_s: Inter-token time, seconds.
        unusual_s: Unusually long time to first token, seconds: four mean deviations above the mean, as in TCP's
            retransmission timer (Jacobson, Congestion Avoidance and Control, 1988).
    """

    first_token_s: float | None = None
    finish_s: float | None = None
    per_token_s: float | None = None
    unusual_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Measurement of one completed answer.

    Attributes:
        queue_s: Queueing time, seconds.
        first_token_s: Time to first token, queueing included, seconds.
        finish_s: Time to the end, seconds.
        prompt_tokens: Length of the prompt, at least 1.
        tokens: Length of the answer, at least 1.
    """

    queue_s: float
    first_token_s: float
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
    """Means of one generator and one kind of answer. One thread writes, any may read."""

    def __init__(self) -> None:
        self._means: _Means | None = None

    @property
    def service_s(self) -> float | None:
        """Mean time of an answer without queueing, seconds; None if nothing was measured."""
        return None if self._means is None else self._means.service_s

    @property
    def tokens(self) -> float | None:
        """Mean length of an answer, tokens; None if nothing was measured."""
        return None if self._means is None else self._means.tokens

    def observe(self, sample: Sample) -> None:
        """Adds a measurement."""
        start = max(0.0, sample.first_token_s - sample.queue_s)
        per_token = max(0.0, sample.finish_s - sample.first_token_s) / max(1, sample.tokens - 1)
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

    def estimate(self, prompt_tokens: int, max_tokens: int, ahead: int, slots: int) -> Estimate:
        """Predicts one more request.

        Args:
            max_tokens: Most tokens of its answer.
            slots: How many run at once, at least 1.

        Returns:
            Queueing: the requests ahead that exceed the free slots, each slot serving one at a time. Start: the mean,
            in proportion to the prompt. Then a mean answer, at most ``max_tokens``, at the mean inter-token time.
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
class EncoderLatency:
    """Immutable: ``after`` returns the latency with one more measurement.

    Attributes:
        round_trip_s: Network time, seconds.
        queue_s: Queueing time, seconds.
        per_text_s: Time per text, seconds; None if nothing was measured.
        deviation_s: Mean deviation of requests from their prediction, seconds.
    """

    round_trip_s: float = 0.0
    queue_s: float = 0.0
    per_text_s: float | None = None
    deviation_s: float = 0.0

    @property
    def texts_per_s(self) -> float | None:
        """Texts a second without network and queueing time; None if nothing was measured."""
        return None if self.per_text_s is None else 1.0 / max(self.per_text_s, 1e-9)

    def after(
        self, texts: int, elapsed_s: float, queue_s: float = 0.0, compute_s: float | None = None
    ) -> EncoderLatency:
        """Adds a measurement.

        Args:
            texts: Number of texts, at least 1.
            elapsed_s: Time of the whole call, seconds.
            queue_s: Queueing time as reported, seconds.
            compute_s: Compute time as reported, seconds. None for all of the elapsed time.
        """
        # Reported times are not trusted beyond the elapsed time.
        computed = elapsed_s if compute_s is None else min(max(compute_s, 0.0), elapsed_s)
        waited = min(max(queue_s, 0.0), elapsed_s - computed)
        network, each = elapsed_s - computed - waited, computed / texts
        expected = self.expected_s(texts)
        if self.per_text_s is None or expected is None:
            return EncoderLatency(network, waited, each)
        return EncoderLatency(
            _mean(self.round_trip_s, network),
            _mean(self.queue_s, waited),
            _mean(self.per_text_s, each),
            _mean(self.deviation_s, abs(elapsed_s - expected)),
        )

    def expected_s(self, texts: int) -> float | None:
        """Predicts the time of a call, seconds; None if nothing was measured."""
        return None if self.per_text_s is None else self.round_trip_s + self.queue_s + texts * self.per_text_s

    def unusual_s(self, texts: int) -> float | None:
        """Returns an unusually long time of a call, seconds; see ``Estimate.unusual_s``."""
        expected = self.expected_s(texts)
        return None if expected is None else max(2 * expected, expected + 4 * self.deviation_s)


def _mean(mean: float, latest: float) -> float:
    return mean + WEIGHT * (latest - mean)
