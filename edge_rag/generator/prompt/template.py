"""Prompt layout: system text, passages in order, the question. What requests share comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """Texts around a question.

    Attributes:
        system: What the model is told to do.
        not_found: The answer where the passages hold none.
    """

    system: str = "Answer with a sentence from the passages and cite it."
    not_found: str = "I could not find that in the documents."


def user_text(passages: Sequence[str], question: str) -> str:
    """Lays out the user's turn: ``[1] passage``, a blank line, ``[2] passage``, ..., ``Question: question``."""
    return "".join(passage_text(number, text) for number, text in enumerate(passages, 1)) + f"Question: {question}"


def passage_text(number: int, text: str) -> str:
    """Lays out one passage; ``number`` counts from 1."""
    return f"[{number}] {text}\n\n"


def passages_that_fit(lengths: Sequence[int], room: int) -> int:
    """Returns how many passages fit, taken from the front.

    Args:
        lengths: Tokens of each passage as laid out.
        room: Tokens there are for all of them.
    """
    for count, length in enumerate(lengths):
        room -= length
        if room < 0:
            return count
    return len(lengths)
