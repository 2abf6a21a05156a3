"""What one more token in a step costs, learnt from the steps."""

from __future__ import annotations

import math
from typing import Final

_KEPT: Final = 0.98
_ENOUGH_SPREAD: Final = 0.25
_OUTLIER: Final = 3.0
_FIRST_GUESS: Final = 1 / 8
_DOUBT: Final = 0.01
_WORTH_MORE_BY: Final = 1.25


class StepCost:
    """A line through the latest steps, time over tokens: least squares with older steps forgotten.

    While all steps have about as many tokens, the slope cannot be seen. It then goes slowly to what is assumed at
    first, that a token adds an eighth to what a step costs without any, so that a wrong slope is put to the test again.
    A step that took three times as long as expected counts as three times, so that a machine that was busy with
    something else does not decide.
    """

    def __init__(self) -> None:
        self._weight = self._tokens = self._squares = self._time = self._products = 0.0
        self._fixed_s = 0.0
        self._token_s = 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        """Takes in a step that computed no prompt.

        Args:
            tokens: How many it computed, each with its logits.
            seconds: How long it took.
        """
        if self._weight:
            seconds = min(seconds, _OUTLIER * self.step_s(tokens))
        self._weight = _KEPT * self._weight + 1
        self._tokens = _KEPT * self._tokens + tokens
        self._squares = _KEPT * self._squares + tokens * tokens
        self._time = _KEPT * self._time + seconds
        self._products = _KEPT * self._products + tokens * seconds
        mean, mean_s = self._tokens / self._weight, self._time / self._weight
        spread = self._squares / self._weight - mean * mean
        if spread > _ENOUGH_SPREAD:
            self._token_s = max(0.0, (self._products / self._weight - mean * mean_s) / spread)
        else:
            guess = mean_s * _FIRST_GUESS / (1 + _FIRST_GUESS * mean)
            self._token_s += (guess - self._token_s) * (_DOUBT if self._weight > 1 else 1)
        self._token_s = min(self._token_s, mean_s / mean)
        self._fixed_s = mean_s - self._token_s * mean

    def step_s(self, tokens: int) -> float:
        """Returns how long a step of so many tokens takes, seconds; 0 before anything was observed."""
        return self._fixed_s + self._token_s * tokens

    def worthwhile(self, acceptance: float, sequences: int, most: int) -> int:
        """Returns how many drafted tokens pay for themselves.

        The i-th is kept with probability ``acceptance ** i`` and then saves its sequence a step, of which each of the
        sequences in it bears its share. It costs what a token costs. It has to save a quarter more than that.

        Args:
            acceptance: Probability that a drafted token is what would have been said, 0 to 1.
            sequences: Sequences that say a token in each step, at least 1.
            most: Most tokens that can be drafted.
        """
        if acceptance <= 0 or not self._weight:
            return 0
        saves_s = self.step_s(sequences) / sequences
        costs_s = _WORTH_MORE_BY * self._token_s
        if acceptance >= 1 or not costs_s:
            return most if saves_s >= costs_s else 0
        if acceptance * saves_s < costs_s:
            return 0
        return min(most, int(math.log(costs_s / saves_s) / math.log(acceptance)))
