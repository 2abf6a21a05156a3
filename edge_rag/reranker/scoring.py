"""Terms, stems and scores for the comparison of passages with questions, pure; and the models that rerankers need."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
import snowballstemmer
from numpy.typing import NDArray

from edge_rag.analysis.terms import terms_of
from edge_rag.core.passage import Hit, RankedPassage, Reranked, RerankRequest
from edge_rag.runtime.encoder.text_encoder import TokenVectors

_WORD = re.compile(r"[^\W_]+")
_STEMS_KEPT = 65_536


class Stemmer:
    """The Snowball stemmer for English. For one thread at a time."""

    def __init__(self) -> None:
        # Snowball in pure Python dominates the cost of processing a word, and words repeat.
        self._stem = lru_cache(_STEMS_KEPT)(snowballstemmer.stemmer("english").stemWord)

    def stems(self, text: str) -> list[str]:
        """Returns the stem of every word of a text (a run of letters and digits), in order."""
        return [self._stem(word.lower()) for word in _WORD.findall(unicodedata.normalize("NFC", text))]


def weights_by_term(word_weights: Mapping[str, float]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for word, weight in word_weights.items():
        for _, _, term in terms_of(word):
            weights[term] = max(weight, weights.get(term, 0.0))
    return weights


_SATURATION = 1.2
_LENGTH_SHARE = 0.75


def standardize(values: Sequence[float]) -> NDArray[np.float64]:
    """Standardizes finite values to mean 0 and deviation 1, float64; equal values become 0."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        return array
    deviation = array.std()
    if deviation <= 1e-9 * max(1.0, float(np.abs(array).max())):
        return np.zeros_like(array)
    scaled: NDArray[np.float64] = (array - array.mean()) / deviation
    return scaled


def log_boosts(hits: Sequence[Hit]) -> NDArray[np.float64]:
    """Returns the summand of hits' boosts in a reranker's scores: their natural logarithms, 0 for a boost of 1.

    A cross-encoder's score is the logarithm of odds, so a boost multiplies the odds.
    """
    logarithms: NDArray[np.float64] = np.log([hit.boost for hit in hits], dtype=np.float64)
    return logarithms


def reciprocal_ranks(count: int, k: float) -> list[float]:
    """Returns 1 / (k + rank) of the ranks 1 to ``count``, the contribution of a ranking to a reciprocal rank fusion."""
    return [1.0 / (k + rank) for rank in range(1, count + 1)]


def max_sim(cosines: NDArray[np.float32]) -> float:
    """Late interaction: each question token's best match in the text, averaged over the question's tokens.

    The sum of Khattab and Zaharia (ColBERT, 2020) divided by the number of question tokens; 0 without tokens.
    ``cosines``: float32 [question tokens, text tokens].
    """
    if cosines.size == 0:
        return 0.0
    return float(cosines.max(axis=1).mean())


def pointwise(request: RerankRequest, scores: NDArray[np.float64]) -> Reranked:
    """Returns the passages of a pointwise request by their scores, 0 to 1; equal ones in the request's order."""
    hits = request.retrieved.hits
    order = np.argsort(-scores, kind="stable")[: request.limit]
    return Reranked(tuple(RankedPassage(hits[index].passage, float(scores[index]), ()) for index in order), 0.0)


def bm25(counts: Sequence[Mapping[str, int]], lengths: Sequence[int], weights: Mapping[str, float]) -> list[float]:
    """Scores documents by the words of a question (Robertson and Zaragoza, 2009; k1 1.2, b 0.75)."""
    mean_length = sum(lengths) / max(1, len(lengths)) or 1.0
    scores: list[float] = []
    for count, length in zip(counts, lengths, strict=True):
        damping = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * length / mean_length)
        scores.append(
            sum(
                weight * count[term] * (_SATURATION + 1) / (count[term] + damping)
                for term, weight in weights.items()
                if count.get(term)
            )
        )
    return scores


def coverage(terms: Collection[str], weights: Mapping[str, float]) -> float:
    """Returns the share of the question's term weight whose terms are among these, 0 to 1; 0 without any weight."""
    total = sum(weights.values())
    if total <= 0.0:
        return 0.0
    return min(1.0, sum(weight for term, weight in weights.items() if term in terms) / total)


class TokenVectorizer(Protocol):
    """Encodes texts to one vector per token."""

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Encodes each text, in order; a text's vectors do not depend on the others."""
        ...


class PassageVectorizer(TokenVectorizer, Protocol):
    """Encodes passages, too, as they are kept."""

    def passage_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Encodes each passage, in order, rounded as its stored vectors are."""
        ...


class PairScorer(Protocol):
    """Scores pairs of question and passage."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Returns float32 [pairs], larger is better, comparable between all pairs of one question."""
        ...
