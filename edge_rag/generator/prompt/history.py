"""Earlier turns of a conversation in a prompt: which are kept, and how they are worded; pure.

They stand before the passages, whose choice changes with every question: so a prompt begins as the one before it did,
and the KV of what they share is reused exactly. For the same reason turns are left out many at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge_rag.core.query import Turn

HISTORY_PART: Final = 4
"""One part in so many of a prompt's tokens may be history."""

MOST_HISTORY_TOKENS: Final = 1024
"""Most tokens of history, however long a prompt may be: small models read the passages worse behind a long history."""


def history_budget(prompt_tokens: int) -> int:
    """Returns the most tokens of history in a prompt of at most so many tokens."""
    return min(prompt_tokens // HISTORY_PART, MOST_HISTORY_TOKENS)


def left_out(lengths: Sequence[int], budget: int) -> int:
    """Returns how many turns, from the oldest, are left out.

    The same turns are left out as if the turns had come one by one: whenever they exceed the budget, the oldest are
    left out until half of it is free. Between two such steps the history begins with the same turn.

    Args:
        lengths: Tokens of each turn, the oldest first.
        budget: Most tokens of all that are kept.
    """
    first = total = 0
    for number, length in enumerate(lengths):
        total += length
        if total <= budget:
            continue
        while first < number and total > budget // 2:
            total -= lengths[first]
            first += 1
        if total > budget:
            first, total = number + 1, 0
    return first


def messages(turns: Sequence[Turn]) -> list[tuple[str, str]]:
    """Returns the user's and the model's message of each turn that was answered.

    They are without passages, and without the words that the layout of a prompt puts before a question: where each
    message of the user begins with them, small models begin to write them, too.
    """
    return [(turn.question, turn.answer) for turn in turns if turn.answer.strip()]
