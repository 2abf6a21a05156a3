"""A reranker with a cross-encoder, a model whose input is the question and the passage together."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.passage import RankedPassage, Reranked, RerankRequest
from edge_rag.reranker.candidate import EncodedPassage, compare, in_steps, model_text
from edge_rag.reranker.evidence import EncoderCalibration, EvidenceWeights, weigh_sentences
from edge_rag.reranker.scoring import PairScorer, TokenVectorizer, log_boosts, pointwise, weights_by_term

METHOD: Final = "cross-encoder.1"
"""Identifies the computation of scores and evidence; changes when the same models may give other results."""


class CrossEncoderReranker:
    """Implements the pipeline's ``Reranker``. For one thread at a time.

    The cross-encoder orders the passages by the main wording of the question: each further one would cost as much
    again. The evidence of sentences comes from token vectors, one encoder run over the few returned passages.
    """

    def __init__(
        self, scorer: PairScorer, vectorizer: TokenVectorizer, evidence_weights: EvidenceWeights | None = None
    ) -> None:
        self._scorer = scorer
        self._vectorizer = vectorizer
        self._evidence_weights = evidence_weights or EvidenceWeights()
        self._calibration = EncoderCalibration(vectorizer)

    def rerank(self, requests: Sequence[RerankRequest]) -> list[Reranked]:
        """Answers each request, in order; the pairs of all requests are scored in one call, each once."""
        pairs = list(dict.fromkeys(pair for request in requests for pair in _pairs(request)))
        return self._ranked(requests, dict(zip(pairs, self._scorer.score(pairs), strict=True)))

    def unread_characters(self, request: RerankRequest) -> int:
        """Returns the characters of the passages, each read together with the question; any thread."""
        return sum(len(question) + len(text) for question, text in _pairs(request))

    def rerank_in_steps(self, request: RerankRequest, step_characters: int) -> Generator[None, None, Reranked]:
        """Returns what ``rerank`` returns for one request; yields whenever about so many characters were read."""
        known: dict[tuple[str, str], np.float32] = {}
        texts = list(dict.fromkeys(text for _, text in _pairs(request)))
        for step in in_steps(texts, step_characters, len(request.question)):
            pairs = [(request.question, text) for text in step]
            known |= dict(zip(pairs, self._scorer.score(pairs), strict=True))
            yield
        (answer,) = self._ranked((request,), known)
        return answer

    def _ranked(self, requests: Sequence[RerankRequest], known: Mapping[tuple[str, str], np.float32]) -> list[Reranked]:
        others = [request for request in requests if not request.pointwise]
        weighed = iter(self._weighed(others, known) if others else ())
        return [
            pointwise(request, _probabilities([known[pair] for pair in _pairs(request)]))
            if request.pointwise
            else next(weighed)
            for request in requests
        ]

    def _weighed(
        self, requests: Sequence[RerankRequest], known: Mapping[tuple[str, str], np.float32]
    ) -> list[Reranked]:
        scores = [
            np.array([known[pair] for pair in _pairs(request)], dtype=np.float32)
            + log_boosts(request.retrieved.hits).astype(np.float32)
            for request in requests
        ]
        orders = [
            np.argsort(-values, kind="stable")[: request.limit]
            for request, values in zip(requests, scores, strict=True)
        ]
        texts = list(
            dict.fromkeys(
                text
                for request, order in zip(requests, orders, strict=True)
                for text in (request.question, *(model_text(request.retrieved.hits[i].passage) for i in order))
            )
        )
        vectors = dict(zip(texts, self._vectorizer.token_vectors(texts), strict=True))
        answers: list[Reranked] = []
        for request, order, values in zip(requests, orders, scores, strict=True):
            passages = [request.retrieved.hits[index].passage for index in order]
            read = [EncodedPassage.of(passage, vectors[model_text(passage)]) for passage in passages]
            term_weights = weights_by_term(request.retrieved.term_weights)
            weighted = weigh_sentences(
                term_weights,
                compare(vectors[request.question], passages, read),
                self._evidence_weights,
                self._calibration.answerability(request.question, term_weights),
            )
            chosen: NDArray[np.float32] = values[order]
            ranked = (
                RankedPassage(passage, float(score), sentences)
                for passage, score, sentences in zip(passages, chosen, weighted.sentences, strict=True)
            )
            answers.append(Reranked(tuple(ranked), weighted.evidence))
        return answers


def _probabilities(scores: Sequence[np.float32]) -> NDArray[np.float64]:
    """Returns the probabilities of scores that are logarithms of odds: float64 [scores], 0 to 1."""
    probabilities: NDArray[np.float64] = (1.0 + np.tanh(np.asarray(scores, dtype=np.float64) / 2.0)) / 2.0
    return probabilities


def _pairs(request: RerankRequest) -> list[tuple[str, str]]:
    return [(request.question, model_text(hit.passage)) for hit in request.retrieved.hits]
