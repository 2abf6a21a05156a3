"""The rerankers that are compared."""

from __future__ import annotations

from edge_rag.pipeline.ports import Reranker
from edge_rag.reranker.cross_encoder import CrossEncoderReranker
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.reranker.ports import TokenVectorizer
from edge_rag.runtime.pair_encoder import PairEncoder


def open_rerankers(vectorizer: TokenVectorizer, cross_encoder: PairEncoder | None) -> dict[str, Reranker]:
    """Returns the default reranker, and one for a cross-encoder if there is one, by the names of their rows."""
    rerankers: dict[str, Reranker] = {"fused and reranked": MaxSimReranker(vectorizer)}
    if cross_encoder is not None:
        rerankers["fused and cross-encoder"] = CrossEncoderReranker(cross_encoder, vectorizer)
    return rerankers
