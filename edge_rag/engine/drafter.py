"""Drafts by prompt lookup, as far as they are expected to save time.

A draft is the tokens that followed the end of the text where it occurred before (Saxena, Prompt lookup decoding, 2023;
Yang et al., Inference with reference, 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DRAFT_TOKENS: Final = 8
"""Longest draft of a request for a step."""

LONGEST_MATCH: Final = 4
"""Most tokens that are compared."""

SHORTEST_MATCH: Final = 2
"""Fewest equal tokens for a proposal."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens that may come next.

    Attributes:
        tokens: The tokens in order; none if the end of the text did not occur before.
        matched: Number of equal tokens before them at both places; 0 without tokens.
    """

    tokens: tuple[int, ...] = ()
    matched: int = 0


class PromptLookup:
    """Finds the last earlier place of the longest match of a sequence's end.

    It costs a few dictionary entries a token, independent of the length of the sequence.
    """

    def __init__(self) -> None:
        self._followers: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def index(self, tokens: Sequence[int]) -> None:
        """Indexes the new tokens of a sequence, except its end, which has no followers yet."""
        for follower in range(max(self._indexed, 1), len(tokens)):
            for length in range(SHORTEST_MATCH, min(LONGEST_MATCH, follower) + 1):
                self._followers[tuple(tokens[follower - length : follower])] = follower
        self._indexed = len(tokens)

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal:
        """Proposes the tokens after a sequence."""
        self.index(tokens)
        for length in range(min(LONGEST_MATCH, len(tokens)), SHORTEST_MATCH - 1, -1):
            follower = self._followers.get(tuple(tokens[len(tokens) - length :]))
            if follower is not None:
                return Proposal(tuple(tokens[follower : follower + limit]), length)
        return Proposal()


_DECAY: Final = 0.98
_MIN_SPREAD: Final = 0.25
_OUTLIER: Final = 3.0
_FIRST_TOKEN_COST: Final = 1 / 8
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
        """Adds a step without prefill."""
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
            guess = mean_s * _FIRST_TOKEN_COST / (1 + _FIRST_TOKEN_COST * mean)
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


_FIRST_GUESS: Final = 0.5
_LEARNING_RATE: Final = 0.15


class Drafter:
    """Drafts by prompt lookup and learns the acceptance rate for each length of the match.

    It learns from every generated token, also when the proposal was not drafted, so that it notices when a request
    begins to copy.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self._lookup = PromptLookup()
        self._lookup.index(prompt)
        self._proposal = Proposal()
        self._acceptance = dict.fromkeys(range(SHORTEST_MATCH, LONGEST_MATCH + 1), _FIRST_GUESS)

    def draft(self, tokens: Sequence[int], limit: int, sequences: int, cost: StepCost) -> tuple[int, ...]:
        """Returns the tokens to verify together with the last token."""
        self._proposal = proposal = self._lookup.propose(tokens, limit + 1)
        if not proposal.tokens:
            return ()
        return proposal.tokens[: cost.worthwhile(self._acceptance[proposal.matched], sequences, limit)]

    def learn(self, generated: Sequence[int]) -> None:
        """Compares the last proposal with the generated tokens."""
        proposal, self._proposal = self._proposal, Proposal()
        for proposed, token in zip(proposal.tokens, generated, strict=False):
            right = proposed == token
            before = self._acceptance[proposal.matched]
            self._acceptance[proposal.matched] = before + _LEARNING_RATE * (right - before)
            if not right:
                break
