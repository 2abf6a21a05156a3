"""Drafts by prompt lookup: the tokens that followed the end of the text where it occurred before.

Saxena, Prompt lookup decoding, 2023; Yang et al., Inference with reference, 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.engine.speculative.step_cost import StepCost

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
        """Indexes the new tokens of a sequence, except its end, which has no followers yet.

        Args:
            tokens: The sequence, which is only ever appended to.
        """
        for follower in range(max(self._indexed, 1), len(tokens)):
            for length in range(SHORTEST_MATCH, min(LONGEST_MATCH, follower) + 1):
                self._followers[tuple(tokens[follower - length : follower])] = follower
        self._indexed = len(tokens)

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal:
        """Proposes the tokens after a sequence.

        Args:
            tokens: The sequence.
            limit: Most tokens, at least 1.
        """
        self.index(tokens)
        for length in range(min(LONGEST_MATCH, len(tokens)), SHORTEST_MATCH - 1, -1):
            follower = self._followers.get(tuple(tokens[len(tokens) - length :]))
            if follower is not None:
                return Proposal(tuple(tokens[follower : follower + limit]), length)
        return Proposal()


_FIRST_GUESS: Final = 0.5
_LEARNING_RATE: Final = 0.15


class Drafter:
    """Drafts by prompt lookup and learns the acceptance rate for each length of the match.

    It learns from every generated token, also when the proposal was not drafted, so that it notices when a request
    begins to copy.

    Args:
        prompt: The prompt's tokens.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self._lookup = PromptLookup()
        self._lookup.index(prompt)
        self._proposal = Proposal()
        self._acceptance = dict.fromkeys(range(SHORTEST_MATCH, LONGEST_MATCH + 1), _FIRST_GUESS)

    def draft(self, tokens: Sequence[int], limit: int, sequences: int, cost: StepCost) -> tuple[int, ...]:
        """Returns the tokens to verify together with the last token.

        Args:
            tokens: The request's tokens.
            limit: Most tokens to draft.
            sequences: Sequences that decode in the next step, this one included.
            cost: Cost of tokens in a step.
        """
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
