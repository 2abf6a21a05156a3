"""The default reranker: late interaction over the embedder's token vectors.

A passage's score is the sum of three components, each standardized over the candidates of one question: max-sim of
token vectors (weight 1), BM25 among the candidates (0.5) and the reciprocal rank of the retriever (0.25). BM25 counts
if one candidate holds at least 30% of the question's term weight. If none does, mostly across languages, max-sim is
that of centred token vectors (``centring.py``). A passage that defines a key named by the question adds its share of
the term weight.

If a question has several wordings, the score is the weighted mean of their scores: the main wording has weight 1, the
others together 0.5. The r-th passage by the original question ranks 3 r or better.

The score of a pointwise request is max-sim alone, at least 0. docs/internals/retrieval.md has the measurements.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.analysis.languages import in_different_languages, knows_words
from edge_rag.core.monitoring.resources import PassageSources
from edge_rag.core.passage import Passage, RankedPassage, Reranked, RerankRequest, Retrieved
from edge_rag.reranker.candidate import (
    EncodedPassage,
    KeptVectors,
    PassageCache,
    RerankCandidate,
    compare,
    in_steps,
    model_text,
)
from edge_rag.reranker.centring import TokenCentres
from edge_rag.reranker.evidence import EncoderCalibration, EvidenceWeights, weigh_sentences
from edge_rag.reranker.places import falling, with_places
from edge_rag.reranker.scoring import (
    PassageVectorizer,
    bm25,
    log_boosts,
    max_sim,
    pointwise,
    reciprocal_ranks,
    standardize,
    weights_by_term,
)
from edge_rag.runtime.encoder.text_encoder import TokenVectors

METHOD: Final = "max-sim.7"
"""Identifies the computation of scores and evidence; changes when equal vectors may give other results."""

RANK_CONSTANT: Final = 20.0
"""The k of the retriever's order, as in the retriever's own fusion."""

CACHE_BYTES: Final = 48 << 20
"""Capacity of the passage cache if memory allows, bytes."""


@dataclass(frozen=True, slots=True)
class PassageWeights:
    """Weights of a passage's score.

    Attributes:
        max_sim: Weight of the late interaction.
        bm25: Weight of BM25, if the passages have the words of the question.
        fused: Weight of the retriever's order.
        others: Weight of all other wordings of a question together; the main wording's is 1.
        key: Weight of the share of the question's term weight in a key of the passage (``evidence.py``).
        places: Ranks for each of the first passages by the original question, at least 1.
    """

    max_sim: float = 1.0
    bm25: float = 0.5
    fused: float = 0.25
    others: float = 0.5
    key: float = 4.0
    places: int = 3


def passage_scores(
    interactions: Sequence[float], words: Sequence[float], weights: PassageWeights
) -> NDArray[np.float64]:
    """Returns the scores of passages; see this file's head.

    Args:
        interactions: Max-sim of each passage, in the retriever's order, best first.
        words: BM25 of each passage; equal values where BM25 does not count.

    Returns:
        float64 [passages], larger is better. Standardized, so comparable among these passages only.
    """
    scores: NDArray[np.float64] = (
        weights.max_sim * standardize(interactions)
        + weights.bm25 * standardize(words)
        + weights.fused * standardize(reciprocal_ranks(len(interactions), RANK_CONSTANT))
    )
    return scores


class MaxSimReranker:
    """Implements the pipeline's ``Reranker``. For one thread at a time.

    Args:
        vectorizer: Encodes texts to token vectors.
    """

    def __init__(
        self,
        vectorizer: PassageVectorizer,
        passage_weights: PassageWeights | None = None,
        evidence_weights: EvidenceWeights | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._vectorizer = vectorizer
        self._passage_weights = passage_weights or PassageWeights()
        self._evidence_weights = evidence_weights or EvidenceWeights()
        self._calibration = EncoderCalibration(vectorizer)
        self._centres = TokenCentres(vectorizer)
        self._cache = PassageCache(cache_bytes)
        self._kept: KeptVectors | None = None
        self._sources = PassageSources()

    def sources(self) -> PassageSources:
        """How many passages were compared since the start, by where their vectors came from."""
        return self._sources

    def attach(self, kept: KeptVectors) -> None:
        self._kept = kept

    def rerank(self, requests: Sequence[RerankRequest]) -> list[Reranked]:
        """Answers each request, in order; the texts of all requests are encoded in one call, each once."""
        passages, read = self._passages(requests)
        read |= self._encode({text: passage for text, passage in passages.items() if text not in read})
        self._keep(passages, read)
        questions = list(dict.fromkeys(text for request in requests for text in _wordings(request)))
        vectors = dict(zip(questions, self._vectorizer.token_vectors(questions), strict=True))
        return [self._rank(request, [vectors[text] for text in _wordings(request)], read) for request in requests]

    def unread_characters(self, request: RerankRequest) -> int:
        """Returns the characters of the passages that have to be encoded; any thread."""
        passages = (hit.passage for hit in request.retrieved.hits)
        kept = self._kept
        return sum(
            len(passage.text)
            for passage in passages
            if passage not in self._cache and (kept is None or passage not in kept)
        )

    def rerank_in_steps(self, request: RerankRequest, step_characters: int) -> Generator[None, None, Reranked]:
        """Returns what ``rerank`` returns for one request; yields whenever about so many characters were encoded."""
        passages, read = self._passages((request,))
        unread = [text for text in passages if text not in read]
        for step in in_steps(unread, step_characters):
            read |= self._encode({text: passages[text] for text in step})
            yield
        self._keep(passages, read)
        return self._rank(request, self._vectorizer.token_vectors(_wordings(request)), read)

    def _passages(self, requests: Sequence[RerankRequest]) -> tuple[dict[str, Passage], dict[str, EncodedPassage]]:
        """Returns the passages of requests by their texts, and those of them that need not be encoded."""
        hits = [hit for request in requests for hit in request.retrieved.hits]
        passages = {model_text(hit.passage): hit.passage for hit in hits}
        read = {text: kept for text, passage in passages.items() if (kept := self._cache.get(passage)) is not None}
        cached = len(read)
        others = [text for text in passages if text not in read]
        if self._kept is not None and others:
            found = self._kept.read([passages[text] for text in others])
            for text, vectors in zip(others, found, strict=True):
                if vectors is not None:
                    read[text] = EncodedPassage.of(passages[text], vectors)
        self._sources = self._sources.plus(PassageSources(cached, len(read) - cached, len(passages) - len(read)))
        return passages, read

    def _encode(self, passages: Mapping[str, Passage]) -> dict[str, EncodedPassage]:
        vectors = self._vectorizer.passage_tokens(list(passages))
        if self._kept is not None and passages:
            self._kept.write(list(passages.values()), vectors)
        encoded = zip(passages.items(), vectors, strict=True)
        return {text: EncodedPassage.of(passage, each) for (text, passage), each in encoded}

    def _keep(self, passages: Mapping[str, Passage], read: Mapping[str, EncodedPassage]) -> None:
        for text, passage in passages.items():
            self._cache.put(passage, read[text])

    def _rank(
        self, request: RerankRequest, wordings: Sequence[TokenVectors], read: Mapping[str, EncodedPassage]
    ) -> Reranked:
        question = wordings[0]
        term_weights = weights_by_term(request.retrieved.term_weights)
        passages = [hit.passage for hit in request.retrieved.hits]
        encoded = [read[model_text(passage)] for passage in passages]
        if request.pointwise:  # one product each: in a common one, the last bits depend on its size
            alone = [max_sim(question.vectors @ each.vectors.vectors.T) for each in encoded]
            return pointwise(request, np.clip(alone, 0.0, 1.0))
        candidates = compare(question, passages, encoded)
        scores, compared = self._scored(request.question, question, term_weights, candidates)
        by_others = [
            self._scored(other.text, vectors, weights_by_term(other.term_weights), compare(vectors, passages, encoded))[
                0
            ]
            for other, vectors in zip(request.retrieved.others, wordings[1:], strict=True)
        ]
        order, scores = _ordered(request.retrieved, scores, by_others, self._passage_weights)
        best = order[: request.limit]
        first = passages[best[0]].text if passages else ""
        across = (
            compared is not candidates
            and self._calibration.multilingual
            and in_different_languages(request.question, first)
        )
        judged = compared if across else candidates
        chosen = [judged[index] for index in best]
        others = [judged[index] for index in order[max(request.limit, len(order) // 2) :]]
        if across:
            answerability, term_weights = self._calibration.answerability_across(others), {}
        else:
            answerability = self._calibration.answerability(request.question, term_weights, others)
        weighted = weigh_sentences(term_weights, chosen, self._evidence_weights, answerability)
        ranked = (
            RankedPassage(candidate.passage, float(scores[index]), sentences)
            for index, candidate, sentences in zip(best, chosen, weighted.sentences, strict=True)
        )
        return Reranked(tuple(ranked), weighted.evidence)

    def _scored(
        self,
        text: str,
        question: TokenVectors,
        term_weights: Mapping[str, float],
        candidates: Sequence[RerankCandidate],
    ) -> tuple[NDArray[np.float64], Sequence[RerankCandidate]]:
        """Returns the scores of candidates by one wording, and the candidates as they were compared for them."""
        counts = [each.encoded.counts for each in candidates]
        held = (sum(weight for term, weight in term_weights.items() if term in each) for each in counts)
        if knows_words(sum(term_weights.values()), held):
            compared = candidates
            words = bm25(counts, [each.encoded.length for each in candidates], term_weights)
        else:
            compared = self._centres.compare(text, question, candidates)
            words = [0.0] * len(candidates)
        scores = passage_scores([max_sim(each.cosines) for each in compared], words, self._passage_weights)
        named = [
            max(look_up.named(term_weights) for look_up in (each.encoded.section, *each.encoded.look_ups))
            for each in candidates
        ]
        return scores + self._passage_weights.key * np.array(named), compared


def _ordered(
    retrieved: Retrieved,
    scores: NDArray[np.float64],
    by_others: Sequence[NDArray[np.float64]],
    weights: PassageWeights,
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Returns the order of passages, best first, and their scores with boosts.

    Args:
        scores: Scores by the main wording, float64 [passages].
    """
    boosts = log_boosts(retrieved.hits)
    if not by_others:
        scores = scores + boosts
        return np.argsort(-scores, kind="stable"), scores
    asked = next((each for each, other in zip(by_others, retrieved.others, strict=True) if other.as_asked), scores)
    scores = (scores + weights.others * np.mean(by_others, axis=0)) / (1.0 + weights.others) + boosts
    kept = np.argsort(-(asked + boosts), kind="stable").tolist()
    order = np.array(with_places(np.argsort(-scores, kind="stable").tolist(), kept, weights.places), dtype=np.intp)
    raised = np.empty_like(scores)
    raised[order] = falling(scores[order].tolist())
    return order, raised


def _wordings(request: RerankRequest) -> list[str]:
    return [request.question, *(other.text for other in request.retrieved.others)]
