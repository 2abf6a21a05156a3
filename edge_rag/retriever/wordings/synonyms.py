"""The wordings of a question: alone, spelled as its collection does, and with the synonyms of the collection; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from edge_rag.analysis.terms import terms_of, words_of
from edge_rag.core.documents.synonyms import parse_synonyms
from edge_rag.core.query import Turn, Wordings
from edge_rag.retriever.wordings.spelling import Lexicon, corrected
from edge_rag.retriever.wordings.standalone import standalone

MAX_EXPANDED: Final = 2
"""Most wordings with synonyms of a question; each is embedded and searched for."""

_MAX_REPLACED: Final = 8
"""Most phrases of a question that are replaced, the first ones."""

_KEPT_TEXTS: Final = 64


class _Phrase(NamedTuple):
    """A phrase by its terms, and the group of synonyms that it is in."""

    terms: tuple[str, ...]
    text: str
    group: int


@dataclass(frozen=True, slots=True)
class Synonyms:
    """The synonyms of a collection.

    Attributes:
        phrases: All phrases by their first term, the longest first.
    """

    groups: tuple[tuple[_Phrase, ...], ...]
    phrases: Mapping[str, tuple[_Phrase, ...]]
    words: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Found:
    """A phrase of a question: its place, and the synonyms that the collection has."""

    start: int
    end: int
    is_held: bool
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expansion:
    """Wordings of a question with synonyms.

    Attributes:
        substituted: The question with phrases that the collection does not have replaced by ones that it has; None
            without any.
    """

    substituted: str | None = None
    expanded: tuple[str, ...] = ()


@lru_cache(_KEPT_TEXTS)
def read_synonyms(text: str) -> Synonyms:
    """Returns the synonyms of a value of the setting ``synonyms``."""
    groups = []
    by_first: dict[str, list[_Phrase]] = {}
    for number, phrases in enumerate(parse_synonyms("settings.synonyms", text)):
        group = tuple(_Phrase(tuple(term for *_, term in terms_of(phrase)), phrase, number) for phrase in phrases)
        groups.append(group)
        for phrase in group:
            if phrase.terms:
                by_first.setdefault(phrase.terms[0], []).append(phrase)
    ordered = {first: tuple(sorted(each, key=lambda phrase: -len(phrase.terms))) for first, each in by_first.items()}
    words = {word.term for group in groups for phrase in group for word in words_of(phrase.text)}
    return Synonyms(tuple(groups), ordered, frozenset(words))


def expand(question: str, synonyms: Synonyms, lexicon: Lexicon) -> Expansion:
    """Returns the wordings of a question in which its phrases are replaced by synonyms that the collection has."""
    found = _found(question, synonyms, lexicon) if synonyms.groups else []
    if not found:
        return Expansion()
    lacking = [each for each in found if not each.is_held]
    substituted = _replaced(question, lacking, 0) if lacking else None
    count = min(MAX_EXPANDED, max(len(each.others) for each in found))
    texts = dict.fromkeys(_replaced(question, found, number) for number in range(count))
    return Expansion(substituted, tuple(text for text in texts if text not in (question, substituted)))


def _found(question: str, synonyms: Synonyms, lexicon: Lexicon) -> list[_Found]:
    terms = list(terms_of(question))
    found: list[_Found] = []
    at = end = 0
    while at < len(terms) and len(found) < _MAX_REPLACED:
        phrase = _phrase_at([term for *_, term in terms[at:]], synonyms) if terms[at].start >= end else None
        if phrase is None:
            at += 1
            continue
        start, end = terms[at].start, terms[at + len(phrase.terms) - 1].end
        group = synonyms.groups[phrase.group]
        others = tuple(each.text for each in group if each.terms != phrase.terms and _is_held(each, lexicon))
        if others:
            found.append(_Found(start, end, _is_held(phrase, lexicon), others))
        at += len(phrase.terms)
    return found


def _phrase_at(terms: Sequence[str], synonyms: Synonyms) -> _Phrase | None:
    phrases = synonyms.phrases.get(terms[0], ())
    return next((phrase for phrase in phrases if phrase.terms == tuple(terms[: len(phrase.terms)])), None)


def _is_held(phrase: _Phrase, lexicon: Lexicon) -> bool:
    words = {phrase.text[start:end].lower() for start, end, _ in terms_of(phrase.text)}
    return all(lexicon.term_counts(words).values())


def _replaced(question: str, found: Sequence[_Found], number: int) -> str:
    parts, at = [], 0
    for each in found:
        parts += [question[at : each.start], each.others[min(number, len(each.others) - 1)]]
        at = each.end
    return "".join((*parts, question[at:]))


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
