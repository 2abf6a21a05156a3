"""The cost of one more token in a step, learned from the steps."""

from __future__ import annotations

import math
from typing import Final

_DECAY: Final = 0.98
_MIN_SPREAD: Final = 0.25
_OUTLIER: Final = 3.0
_FIRST_GUESS: Final = 1 / 8
_GUESS_RATE: Final = 0.01
_MIN_GAIN: Final = 1.25


class StepCost:
    """A line fitted to the latest steps, time over tokens: least squares with exponential decay.

    While all steps have about the same number of tokens, the slope is undetermined. It then decays to the first guess,
    that a token adds an eighth to the cost of an empty step, so that a wrong slope is tested again. The time of a step
    counts as at most three times the expected one, which limits the influence of other load on the machine.
    """

    def __init__(self) -> None:
        self._weight = self._tokens = self._squares = self._time = self._products = 0.0
        self._fixed_s = 0.0
        self._token_s = 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        """Adds a step without prefill.

        Args:
            tokens: Tokens computed, each with its logits.
            seconds: Time of the step.
        """
        if self._weight:
            seconds = min(seconds, _OUTLIER * self.step_s(tokens))
        self._weight = _DECAY * self._weight + 1
        self._tokens = _DECAY * self._tokens + tokens
        self._squares = _DECAY * self._squares + tokens * tokens
        self._time = _DECAY * self._time + seconds
        self._products = _DECAY * self._products + tokens * seconds
        mean, mean_s = self._tokens / self._weight, self._time / self._weight
        spread = self._squares / self._weight - mean * mean
        if spread > _MIN_SPREAD:
            self._token_s = max(0.0, (self._products / self._weight - mean * mean_s) / spread)
        else:
            guess = mean_s * _FIRST_GUESS / (1 + _FIRST_GUESS * mean)
            self._token_s += (guess - self._token_s) * (_GUESS_RATE if self._weight > 1 else 1)
        self._token_s = min(self._token_s, mean_s / mean)
        self._fixed_s = mean_s - self._token_s * mean

    def step_s(self, tokens: int) -> float:
        """Returns the expected time of a step with so many tokens, seconds; 0 before the first observation."""
        return self._fixed_s + self._token_s * tokens

    def worthwhile(self, acceptance: float, sequences: int, limit: int) -> int:
        """Returns how many drafted tokens save more than they cost.

        The i-th is accepted with probability ``acceptance ** i`` and then saves its sequence a step, divided by the
        sequences in the step. It has to save a quarter more than a token costs.

        Args:
            acceptance: Probability that a drafted token is accepted, 0 to 1.
            sequences: Sequences that decode in each step, at least 1.
            limit: Most tokens that can be drafted.
        """
        if acceptance <= 0 or not self._weight:
            return 0
        saves_s = self.step_s(sequences) / sequences
        costs_s = _MIN_GAIN * self._token_s
        if acceptance >= 1 or not costs_s:
            return limit if saves_s >= costs_s else 0
        if acceptance * saves_s < costs_s:
            return 0
        return min(limit, int(math.log(costs_s / saves_s) / math.log(acceptance)))
