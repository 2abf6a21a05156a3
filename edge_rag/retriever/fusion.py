"""Reciprocal rank fusion of the rankings of all wordings of a question; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from edge_rag.core.documents.collection import FusionWeights
from edge_rag.core.ids import ChunkId
from edge_rag.reranker.places import falling, with_places

ASKED: Final = 0.5
"""Weight of the original question's rankings beside other wordings, which complete or correct it; theirs is 1."""


@dataclass(frozen=True, slots=True)
class Rankings:
    """Distinct chunks found for one wording by vectors and by BM25, best first."""

    dense: Sequence[ChunkId]
    bm25: Sequence[ChunkId]


@dataclass(frozen=True, slots=True)
class FusedHit:
    """A chunk with its rank in each search.

    Attributes:
        score: Weighted sum over the rankings of 1 / (k + rank), at least that of the next hit.
        dense_rank: 1-based rank in the vector search, the best one of all wordings; None if it is not in it.
        lexical_rank: 1-based rank in BM25, likewise; None if it is not in it.
    """

    chunk_id: ChunkId
    score: float
    dense_rank: int | None
    lexical_rank: int | None


def fuse(wordings: Sequence[Rankings], limit: int, weights: FusionWeights) -> tuple[FusedHit, ...]:
    """Fuses the rankings of all wordings (Cormack, Clarke and Büttcher, Reciprocal Rank Fusion, SIGIR 2009).

    The first wording is the original question: with n wordings, its r-th hit ranks n * r or better (``with_places``). A
    promoted hit gets the score of its new rank. Ties are ordered by the better of the two ranks, then by id.
    """
    hits = _by_score(wordings, weights)
    if len(wordings) > 1:
        known = {hit.chunk_id: hit for hit in hits}
        first = [hit.chunk_id for hit in _by_score(wordings[:1], weights)]
        placed = [known[chunk] for chunk in with_places([hit.chunk_id for hit in hits], first, len(wordings))]
        scores = falling([hit.score for hit in placed])
        hits = [replace(hit, score=score) for hit, score in zip(placed, scores, strict=True)]
    return tuple(hits[:limit])


def best_score(weights: FusionWeights, wordings: int = 1) -> float:
    total = wordings if wordings == 1 else wordings - 1 + ASKED
    return total * (weights.dense + weights.lexical) / (weights.k + 1)


def _by_score(wordings: Sequence[Rankings], weights: FusionWeights) -> list[FusedHit]:
    scores: dict[ChunkId, float] = {}
    dense_ranks: dict[ChunkId, int] = {}
    bm25_ranks: dict[ChunkId, int] = {}
    for place, each in enumerate(wordings):
        share = ASKED if place == 0 and len(wordings) > 1 else 1.0
        for ranking, weight, ranks in (
            (each.dense, share * weights.dense, dense_ranks),
            (each.bm25, share * weights.lexical, bm25_ranks),
        ):
            for rank, chunk in enumerate(ranking, start=1):
                scores[chunk] = scores.get(chunk, 0.0) + weight / (weights.k + rank)
                ranks[chunk] = min(rank, ranks.get(chunk, rank))
    hits = [FusedHit(chunk, score, dense_ranks.get(chunk), bm25_ranks.get(chunk)) for chunk, score in scores.items()]
    hits.sort(key=_order)
    return hits


def _order(hit: FusedHit) -> tuple[float, int, ChunkId]:
    ranks = [rank for rank in (hit.dense_rank, hit.lexical_rank) if rank is not None]
    return -hit.score, min(ranks), hit.chunk_id
