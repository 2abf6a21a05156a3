"""Makes a follow-up question stand alone: what it leaves to the turns before it is taken from them; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from edge_rag.analysis.terms import terms_of
from edge_rag.core.query import Turn

_EN = "it its they them their this these those he him his she her hers"
_DE = "er ihn ihm ihr ihre ihren ihrem dieser diese dieses"
_ES = "él ella ello ellos ellas este esta esto ese esa eso"
_FR = "elle ils elles cela ça cette ces lui leur leurs"

PRONOUNS: Final = frozenset(f"{_EN} {_DE} {_ES} {_FR}".split())
"""Words of English, German, Spanish and French that stand for what was named before."""

_ELLIPSIS_WORDS: Final = 4
"""Most words of a question without a term of the collection that is taken for the beginning of one ("how often?")."""

_MOST_CARRIED: Final = 6
"""Most words that are carried over."""


def standalone(question: str, turns: Sequence[Turn], weights: Callable[[str], Mapping[str, float]]) -> str | None:
    """Returns a question with what it leaves to earlier turns; None if it leaves nothing to them.

    A short question without a term of the collection, and one with a pronoun, gets the heaviest words of the question
    before it.

    Args:
        question: The question as it was asked.
        turns: Earlier turns, oldest first.
        weights: Returns the inverse document frequency of those terms of a text that the collection has.
    """
    if not turns:
        return None
    own = weights(question)
    words = [question[start:end].lower() for start, end, _ in terms_of(question)]
    if not PRONOUNS.intersection(words) and (own or len(words) > _ELLIPSIS_WORDS):
        return None
    before = turns[-1].question
    carried = weights(before)
    heaviest = sorted((term for term in carried if term not in own), key=carried.__getitem__, reverse=True)
    chosen = set(heaviest[:_MOST_CARRIED])
    spans = {term: before[start:end] for start, end, term in terms_of(before) if term in chosen}
    return f"{question} {' '.join(spans.values())}" if spans else None
