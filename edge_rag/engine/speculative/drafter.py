"""What a request drafts: tokens it may well say next, for the model to check several of them in one step.

Drafts copied from where the end of the text has stood before (prompt lookup decoding: Saxena, 2023; Yang et al.,
Inference with Reference, 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.engine.speculative.step_cost import StepCost

LONGEST_MATCH: Final = 4
"""Tokens that are compared at most."""

SHORTEST_MATCH: Final = 2
"""Tokens that must be equal before what followed them is proposed."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What may come next.

    Attributes:
        tokens: The tokens in order; none where the text's end is new.
        matched: How many tokens before them are the same at both places; 0 where the text's end is new.
    """

    tokens: tuple[int, ...] = ()
    matched: int = 0


class PromptLookup:
    """Finds where the last tokens of a sequence stood before, the latest place of the longest match.

    Its cost is a few dictionary entries a token, whatever the length of the sequence.
    """

    def __init__(self) -> None:
        self._followers: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def index(self, tokens: Sequence[int]) -> None:
        """Takes in what is new of a sequence; the end of it is left out, since nothing follows it yet.

        Args:
            tokens: The sequence, which only ever grows.
        """
        for follower in range(max(self._indexed, 1), len(tokens)):
            for length in range(SHORTEST_MATCH, min(LONGEST_MATCH, follower) + 1):
                self._followers[tuple(tokens[follower - length : follower])] = follower
        self._indexed = len(tokens)

    def propose(self, tokens: Sequence[int], most: int) -> Proposal:
        """Proposes what comes after a sequence.

        Args:
            tokens: The sequence.
            most: Most tokens wanted, at least 1.
        """
        self.index(tokens)
        for length in range(min(LONGEST_MATCH, len(tokens)), SHORTEST_MATCH - 1, -1):
            follower = self._followers.get(tuple(tokens[len(tokens) - length :]))
            if follower is not None:
                return Proposal(tuple(tokens[follower : follower + most]), length)
        return Proposal()


_FIRST_GUESS: Final = 0.5
_LEARNT_FROM_EACH: Final = 0.15


class Drafter:
    """Drafts by prompt lookup and learns how often it is right, apart for each length of the match.

    It learns from every token that was said, drafted or only proposed, so that a request that begins to copy is noticed
    while nothing is drafted.

    Args:
        prompt: The prompt's tokens.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self._lookup = PromptLookup()
        self._lookup.index(prompt)
        self._proposal = Proposal()
        self._acceptance = dict.fromkeys(range(SHORTEST_MATCH, LONGEST_MATCH + 1), _FIRST_GUESS)

    def draft(self, tokens: Sequence[int], most: int, sequences: int, cost: StepCost) -> tuple[int, ...]:
        """Returns what to check together with the last token.

        Args:
            tokens: The request's tokens.
            most: Most tokens to draft.
            sequences: Sequences that say a token in the next step, this one included.
            cost: What tokens cost.
        """
        self._proposal = proposal = self._lookup.propose(tokens, most + 1)
        if not proposal.tokens:
            return ()
        return proposal.tokens[: cost.worthwhile(self._acceptance[proposal.matched], sequences, most)]

    def learn(self, said: Sequence[int]) -> None:
        """Compares what was proposed last with what the model said."""
        proposal, self._proposal = self._proposal, Proposal()
        for proposed, token in zip(proposal.tokens, said, strict=False):
            right = proposed == token
            before = self._acceptance[proposal.matched]
            self._acceptance[proposal.matched] = before + _LEARNT_FROM_EACH * (right - before)
            if not right:
                break
