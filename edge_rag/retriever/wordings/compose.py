"""Composes the wordings of a question; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from edge_rag.core.query import Turn, Wordings
from edge_rag.retriever.wordings.spelling import Lexicon, corrected
from edge_rag.retriever.wordings.standalone import standalone
from edge_rag.retriever.wordings.synonyms import Synonyms, expand


def compose(
    question: str,
    turns: Sequence[Turn],
    weigh: Callable[[str], Mapping[str, float]],
    lexicon: Lexicon,
    synonyms: Synonyms,
) -> Wordings:
    """Returns the wordings of a question.

    Args:
        turns: Earlier turns of the conversation, oldest first.
        weigh: Returns the inverse document frequency of those terms of a text that the collection has, see
            ``Bm25Index.rough_weights``.
    """
    alone = standalone(question, turns, weigh) if turns else None
    alone = None if alone == question else alone
    spelled = corrected(alone or question, lexicon, synonyms.words)
    expansion = expand(spelled or alone or question, synonyms, lexicon)
    return Wordings(question, alone, spelled, expansion.substituted, expansion.expanded)
