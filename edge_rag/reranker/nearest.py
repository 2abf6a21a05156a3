"""Why the nearest passages were not taken for an answer; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edge_rag.analysis.languages import in_different_languages
from edge_rag.analysis.terms import terms_of
from edge_rag.core.answer import NearestPassage, NearestReason
from edge_rag.core.passage import RankedPassage, Reranked, relevances
from edge_rag.reranker.candidate import model_text
from edge_rag.reranker.scoring import coverage, weights_by_term

MOST_NEAREST: Final = 4
"""Most passages that are named."""

MOST_LACKING: Final = 8
"""Most words that are named for each, the rarest ones."""


def nearest_passages(
    question: str, word_weights: Mapping[str, float], ranked: Reranked, judged: bool
) -> tuple[NearestPassage, ...]:
    """Returns the best passages of a question without an answer, each with the words of the question that it lacks.

    ``judged``: the evidence was too little; otherwise nothing that a model wrote has support.
    """
    shares = relevances(ranked.passages, ranked.evidence)
    best = zip(range(MOST_NEAREST), ranked.passages, shares, strict=False)
    return tuple(_nearest(place, question, word_weights, each, score, judged) for place, each, score in best)


def _nearest(
    place: int, question: str, word_weights: Mapping[str, float], ranked: RankedPassage, score: float, judged: bool
) -> NearestPassage:
    passage = ranked.passage
    held = {term for _, _, term in terms_of(model_text(passage))}
    lacking = [word for word in word_weights if weights_by_term({word: 1.0}).keys().isdisjoint(held)]
    lacking.sort(key=word_weights.__getitem__, reverse=True)
    closest = max(ranked.sentences, key=lambda sentence: sentence.evidence, default=None)
    start, end = (0, 0) if closest is None else (closest.start, closest.end)
    return NearestPassage(
        passage=place,
        document=passage.document,
        page=passage.page,
        start=passage.start + start,
        end=passage.start + end,
        text=passage.text[start:end],
        score=score,
        reason=_reason(question, passage.text, lacking, judged),
        lacks=tuple(lacking[:MOST_LACKING]),
        share=coverage(held, weights_by_term(word_weights)),
        similarity=None if closest is None else closest.similarity,
    )


def _reason(question: str, text: str, lacking: list[str], judged: bool) -> NearestReason:
    if not judged:
        return NearestReason.NOT_SUPPORTED
    if in_different_languages(question, text):
        return NearestReason.OTHER_LANGUAGE
    return NearestReason.LACKS_WORDS if lacking else NearestReason.NOT_SIMILAR
