"""What a request drafts: tokens it may well say next, for the model to check several of them in one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge_rag.engine.speculative.prompt_lookup import LONGEST_MATCH, SHORTEST_MATCH, PromptLookup, Proposal
from edge_rag.engine.speculative.step_cost import StepCost

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
