"""The default reranker: late interaction over the embedder's token vectors.

A passage's score is the sum of three standardized components over the candidates of one question: max-sim of token
vectors (weight 1), BM25 among the candidates (0.5) and the cosine of mean vectors (0.5). Max-sim alone is best
where questions are asked of prose, and falls behind the retriever's own order elsewhere; together they beat the
retriever wherever it was measured. nDCG@10 with 20 candidates (30 for the third row):

    ================================================  =====  =====  =====
                                                      XQuAD  dpkg   Python
    ================================================  =====  =====  =====
    fused ranking of the retriever                    .9624  .7995  .5868
    max-sim alone                                     .9843  .8293  .5635
    reciprocal rank fusion of the two, k = 10         .9814  .8244  .5789
    max-sim + 0.5 BM25 + 0.5 mean cosine              .9820  .8339  .5899
    ================================================  =====  =====  =====

XQuAD: 612 questions, 120 paragraphs. dpkg: 660 package synopses, each to find its description. Python: 321 paragraphs
of the language reference, each to be found by its own first sentence, which was left out. Weighting question tokens by
IDF in max-sim did not help (on XQuAD .9828, .9815 and .9783 as function words keep a half, a quarter and nothing of
their weight). These figures are of whole paragraphs and a BM25 of the measurement's own; through the product's chunks
and index, fused with k = 60, XQuAD gives .9662 fused, .9820 with max-sim alone and .9823 with all three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.passage import RankedPassage, Reranked, RerankRequest
from edge_rag.reranker.answerable import Answerability, unrelated_similarity
from edge_rag.reranker.candidate import Candidate, ReadPassage, compare, mean_vector, model_text
from edge_rag.reranker.evidence import EvidenceWeights, weigh_sentences
from edge_rag.reranker.passage_cache import PassageCache
from edge_rag.reranker.scoring import TokenVectorizer, bm25, cosine, log_boosts, max_sim, standardize
from edge_rag.reranker.words import Stemmer
from edge_rag.runtime.encoder.text_encoder import TokenVectors

METHOD: Final = "max-sim.1"
"""Names how scores and evidence are put together; changes whenever the same vectors could come to others."""

CACHE_BYTES: Final = 64 << 20
"""Memory for what was read of passages, where there is enough of it."""


@dataclass(frozen=True, slots=True)
class PassageWeights:
    """How much each component of a passage's score counts.

    Attributes:
        max_sim: Of the late interaction.
        bm25: Of the words.
        mean_cosine: Of the mean vectors.
    """

    max_sim: float = 1.0
    bm25: float = 0.5
    mean_cosine: float = 0.5


class MaxSimReranker:
    """Implements the pipeline's ``Reranker``. For one thread at a time.

    Args:
        vectorizer: Turns texts into token vectors.
        passage_weights: How a passage's score is put together.
        evidence_weights: How a sentence's evidence is put together.
        cache_bytes: Most memory for what was read of passages that were compared lately.
    """

    def __init__(
        self,
        vectorizer: TokenVectorizer,
        passage_weights: PassageWeights | None = None,
        evidence_weights: EvidenceWeights | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._vectorizer = vectorizer
        self._passage_weights = passage_weights or PassageWeights()
        self._evidence_weights = evidence_weights or EvidenceWeights()
        self._stemmer = Stemmer()
        self._answerability: Answerability | None = None
        self._cache = PassageCache(cache_bytes)

    def rerank(self, requests: Sequence[RerankRequest]) -> list[Reranked]:
        """Answers each request, in order; the texts of all requests are encoded in one call, each once.

        Raises:
            InferenceFailed: The encoder failed.
        """
        hits = [hit for request in requests for hit in request.retrieved.hits]
        passages = {model_text(hit.passage): hit.passage for hit in hits}
        read = {text: kept for text, passage in passages.items() if (kept := self._cache.get(passage)) is not None}
        questions = [request.question for request in requests]
        unread = [text for text in passages if text not in read]
        encoded = list(dict.fromkeys((*questions, *unread)))
        vectors = dict(zip(encoded, self._vectorizer.token_vectors(encoded), strict=True))
        read |= {text: ReadPassage.of(passages[text], vectors[text]) for text in unread}
        for text, passage in passages.items():
            self._cache.put(passage, read[text])
        if self._answerability is None:
            self._answerability = Answerability(unrelated_similarity(self._vectorizer))
        return [self._rank(request, vectors[request.question], read, self._answerability) for request in requests]

    def _rank(
        self,
        request: RerankRequest,
        question: TokenVectors,
        read: Mapping[str, ReadPassage],
        answerability: Answerability,
    ) -> Reranked:
        term_weights = self._stemmer.weights(request.retrieved.term_weights)
        passages = [hit.passage for hit in request.retrieved.hits]
        candidates = compare(question, passages, [read[model_text(passage)] for passage in passages])
        scores = self._scores(question, term_weights, candidates) + log_boosts(request.retrieved.hits)
        best = np.argsort(-scores, kind="stable")[: request.limit]
        chosen = [candidates[index] for index in best]
        weighed = weigh_sentences(term_weights, chosen, self._stemmer, self._evidence_weights, answerability)
        ranked = (
            RankedPassage(candidate.passage, float(scores[index]), sentences)
            for index, candidate, sentences in zip(best, chosen, weighed.sentences, strict=True)
        )
        return Reranked(tuple(ranked), weighed.evidence)

    def _scores(
        self, question: TokenVectors, term_weights: Mapping[str, float], candidates: Sequence[Candidate]
    ) -> NDArray[np.float64]:
        weights = self._passage_weights
        interactions = [max_sim(each.cosines) for each in candidates]
        mean = mean_vector(question)
        cosines = [cosine(mean, each.read.mean) for each in candidates]
        counts = [self._stemmer.counts_among(each.read.counts, term_weights) for each in candidates]
        words = bm25(counts, [each.read.length for each in candidates], term_weights)
        scores: NDArray[np.float64] = (
            weights.max_sim * standardize(interactions)
            + weights.bm25 * standardize(words)
            + weights.mean_cosine * standardize(cosines)
        )
        return scores
