"""The rerankers that are compared."""

from __future__ import annotations

from edge_rag.pipeline.ports import Reranker
from edge_rag.reranker.cross_encoder import CrossEncoderReranker
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from scripts.bench.retrieval.remembered_scores import RememberedScores
from scripts.bench.retrieval.remembered_vectors import RememberedVectors


def open_rerankers(encoder: TextEncoder, cross_encoder: PairEncoder | None) -> dict[str, Reranker]:
    """Returns the default reranker, and one for a cross-encoder if there is one, by the names of their rows."""
    vectors = RememberedVectors(encoder)
    rerankers: dict[str, Reranker] = {"fused and reranked": MaxSimReranker(vectors)}
    if cross_encoder is not None:
        rerankers["fused and cross-encoder"] = CrossEncoderReranker(RememberedScores(cross_encoder), vectors)
    return rerankers
