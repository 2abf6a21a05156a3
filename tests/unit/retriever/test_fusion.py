"""Reciprocal rank fusion, by its formula and its ties."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.analysis.known_words import knows_words
from edge_rag.core.documents.collection import FusionWeights
from edge_rag.core.ids import ChunkId
from edge_rag.retriever.fusion import FusedHit, fuse

_RANKING = st.lists(st.integers(1, 50).map(ChunkId), unique=True, max_size=30)


def ids(*numbers: int) -> list[ChunkId]:
    return [ChunkId(number) for number in numbers]


def test_a_chunk_in_both_rankings_beats_the_first_of_either() -> None:
    hits = fuse(ids(1, 2), ids(3, 2), 10, FusionWeights(k=60.0))

    assert [hit.chunk_id for hit in hits] == [2, 1, 3]
    assert hits[0] == FusedHit(ChunkId(2), 1 / 62 + 1 / 62, 2, 2)
    assert hits[1] == FusedHit(ChunkId(1), 1 / 61, 1, None)


def test_a_weight_of_zero_silences_a_ranking() -> None:
    hits = fuse(ids(1, 2), ids(3, 2), 2, FusionWeights(dense=0.0))

    assert [hit.chunk_id for hit in hits] == [3, 2]


@pytest.mark.parametrize(("held", "known"), [([2.9], False), ([1.0, 3.0], True), ([], False), ([2.0, 2.0], False)])
def test_bm25_counts_where_one_passage_holds_three_tenths_of_the_term_weight(held: list[float], known: bool) -> None:
    assert knows_words(10.0, held) is known


@settings(deadline=None)
@given(_RANKING, _RANKING, st.integers(1, 60))
def test_fusion_is_an_ordered_selection_of_what_it_was_given(
    dense: list[ChunkId], lexical: list[ChunkId], limit: int
) -> None:
    hits = fuse(dense, lexical, limit, FusionWeights())

    assert len(hits) == min(limit, len({*dense, *lexical}))
    assert len({hit.chunk_id for hit in hits}) == len(hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        assert hit.dense_rank == (dense.index(hit.chunk_id) + 1 if hit.chunk_id in dense else None)
        assert hit.lexical_rank == (lexical.index(hit.chunk_id) + 1 if hit.chunk_id in lexical else None)


@settings(deadline=None)
@given(_RANKING, _RANKING)
def test_equal_scores_are_ordered_by_best_rank_and_then_by_id(dense: list[ChunkId], lexical: list[ChunkId]) -> None:
    keys = [
        (-hit.score, min(rank for rank in (hit.dense_rank, hit.lexical_rank) if rank), hit.chunk_id)
        for hit in fuse(dense, lexical, 100, FusionWeights())
    ]

    assert keys == sorted(keys)
