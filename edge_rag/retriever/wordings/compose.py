"""Composes the wordings of a question; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from edge_rag.core.query import Turn, Wordings
from edge_rag.retriever.wordings.standalone import standalone


def compose(question: str, turns: Sequence[Turn], weigh: Callable[[str], Mapping[str, float]]) -> Wordings:
    """Returns the wordings of a question.

    Args:
        question: The question as it was asked.
        turns: Earlier turns of the conversation, oldest first.
        weigh: Returns the inverse document frequency of those terms of a text that the collection has, see
            ``Bm25Index.rough_weights``.
    """
    alone = standalone(question, turns, weigh) if turns else None
    return Wordings(question, standalone=None if alone == question else alone)
