"""Reciprocal rank fusion of two rankings; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_rag.core.documents.collection import FusionWeights
from edge_rag.core.ids import ChunkId


@dataclass(frozen=True, slots=True)
class FusedHit:
    """A chunk with its place in each ranking.

    Attributes:
        chunk_id: The chunk.
        score: Sum over the rankings of weight / (k + rank).
        dense_rank: 1-based, None if the vector ranking does not have it.
        lexical_rank: 1-based, None if the BM25 ranking does not have it.
    """

    chunk_id: ChunkId
    score: float
    dense_rank: int | None
    lexical_rank: int | None


def fuse(
    dense: Sequence[ChunkId], lexical: Sequence[ChunkId], limit: int, weights: FusionWeights
) -> tuple[FusedHit, ...]:
    """Fuses two rankings (Cormack, Clarke and Büttcher, Reciprocal Rank Fusion, SIGIR 2009).

    Args:
        dense: Chunks by vector similarity, best first, none twice.
        lexical: Chunks by BM25, best first, none twice.
        limit: Most hits to return.
        weights: How the rankings are weighed.

    Returns:
        Best first; of equal scores the one with the better best rank goes first, then the smaller id.
    """
    dense_ranks = {chunk: rank for rank, chunk in enumerate(dense, start=1)}
    lexical_ranks = {chunk: rank for rank, chunk in enumerate(lexical, start=1)}
    hits = [
        FusedHit(
            chunk,
            _share(weights.dense, weights.k, dense_ranks.get(chunk))
            + _share(weights.lexical, weights.k, lexical_ranks.get(chunk)),
            dense_ranks.get(chunk),
            lexical_ranks.get(chunk),
        )
        for chunk in {**dense_ranks, **lexical_ranks}
    ]
    hits.sort(key=_order)
    return tuple(hits[:limit])


def _share(weight: float, k: float, rank: int | None) -> float:
    return 0.0 if rank is None else weight / (k + rank)


def _order(hit: FusedHit) -> tuple[float, int, ChunkId]:
    ranks = [rank for rank in (hit.dense_rank, hit.lexical_rank) if rank is not None]
    return -hit.score, min(ranks), hit.chunk_id
