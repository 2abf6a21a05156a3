"""Reciprocal rank fusion of two rankings; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_rag.core.documents.collection import FusionWeights
from edge_rag.core.ids import ChunkId


@dataclass(frozen=True, slots=True)
class FusedHit:
    """A chunk with its rank in each ranking.

    Attributes:
        chunk_id: The chunk.
        score: Sum over the rankings of weight / (k + rank).
        dense_rank: 1-based rank in the vector search; None if it is not in it.
        lexical_rank: 1-based rank in BM25; None if it is not in it.
    """

    chunk_id: ChunkId
    score: float
    dense_rank: int | None
    lexical_rank: int | None


def fuse(dense: Sequence[ChunkId], bm25: Sequence[ChunkId], limit: int, weights: FusionWeights) -> tuple[FusedHit, ...]:
    """Fuses two rankings (Cormack, Clarke and Büttcher, Reciprocal Rank Fusion, SIGIR 2009).

    Args:
        dense: Chunks by vector similarity, best first, distinct.
        bm25: Chunks by BM25, best first, distinct.
        limit: Most hits to return.
        weights: Weights of the rankings.

    Returns:
        Best first; ties by the better of the two ranks, then by id.
    """
    dense_ranks = {chunk: rank for rank, chunk in enumerate(dense, start=1)}
    bm25_ranks = {chunk: rank for rank, chunk in enumerate(bm25, start=1)}
    hits = [
        FusedHit(
            chunk,
            _contribution(weights.dense, weights.k, dense_ranks.get(chunk))
            + _contribution(weights.lexical, weights.k, bm25_ranks.get(chunk)),
            dense_ranks.get(chunk),
            bm25_ranks.get(chunk),
        )
        for chunk in {**dense_ranks, **bm25_ranks}
    ]
    hits.sort(key=_order)
    return tuple(hits[:limit])


def best_score(weights: FusionWeights) -> float:
    """Returns the score of a chunk that both rankings have first, the largest there is."""
    return (weights.dense + weights.lexical) / (weights.k + 1)


def _contribution(weight: float, k: float, rank: int | None) -> float:
    return 0.0 if rank is None else weight / (k + rank)


def _order(hit: FusedHit) -> tuple[float, int, ChunkId]:
    ranks = [rank for rank in (hit.dense_rank, hit.lexical_rank) if rank is not None]
    return -hit.score, min(ranks), hit.chunk_id
