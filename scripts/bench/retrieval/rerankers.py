"""The rerankers that are compared; texts and pairs that several of them need are computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.pipeline.ports import Reranker
from edge_rag.reranker.cross_encoder import CrossEncoderReranker
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.encoder.token_vectors import TokenVectors

_MOST_TEXTS: Final = 5_000


class RememberedVectors:
    """Encodes a text once for as long as it is remembered; allowed, as its vectors do not depend on its neighbours."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._known: dict[str, TokenVectors] = {}
        self._passages: dict[str, TokenVectors] = {}

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Returns the token vectors of each text, in order."""
        if len(self._known) > _MOST_TEXTS:
            self._known.clear()
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self._encoder.token_vectors(new), strict=True))
        return [self._known[text] for text in texts]

    def passage_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Returns the token vectors of each passage, in order."""
        if len(self._passages) > _MOST_TEXTS:
            self._passages.clear()
        new = [text for text in dict.fromkeys(texts) if text not in self._passages]
        self._passages.update(zip(new, self._encoder.passage_tokens(new), strict=True))
        return [self._passages[text] for text in texts]


class RememberedScores:
    """Scores a pair once; allowed, as its score does not depend on its neighbours."""

    def __init__(self, encoder: PairEncoder) -> None:
        self._encoder = encoder
        self._known: dict[tuple[str, str], float] = {}

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Returns the score of each pair, in order."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        self._known.update(zip(new, self._encoder.score(new).tolist(), strict=True))
        return np.array([self._known[pair] for pair in pairs], dtype=np.float32)


def open_rerankers(encoder: TextEncoder, cross_encoder: PairEncoder | None) -> dict[str, Reranker]:
    """Returns the default reranker, and one for a cross-encoder if there is one, by the names of their rows."""
    vectors = RememberedVectors(encoder)
    rerankers: dict[str, Reranker] = {"fused and reranked": MaxSimReranker(vectors)}
    if cross_encoder is not None:
        rerankers["fused and cross-encoder"] = CrossEncoderReranker(RememberedScores(cross_encoder), vectors)
    return rerankers
