"""Drafts copied from where the end of the text has stood before (prompt lookup decoding: Saxena, 2023; Yang et al.,
Inference with Reference, 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
