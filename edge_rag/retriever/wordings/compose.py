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
    rewritten: str | None = None,
) -> Wordings:
    """Returns the wordings of a question.

    Args:
        turns: Earlier turns of the conversation, oldest first.
        weigh: Returns the inverse document frequency of those terms of a text that the collection has, see
            ``Bm25Index.rough_weights``.
        rewritten: The question as a language model wrote it to stand alone; None if none did.
    """
    by_rules = standalone(question, turns, weigh) if turns else None
    by_rules = None if by_rules == question else by_rules
    alone = rewritten or by_rules
    spelled = corrected(alone or question, lexicon, synonyms.words)
    expansion = expand(spelled or alone or question, synonyms, lexicon)
    by_rules = by_rules if rewritten else None
    return Wordings(question, alone, spelled, expansion.substituted, expansion.expanded, by_rules)
