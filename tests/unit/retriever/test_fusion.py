"""Reciprocal rank fusion, by its formula and its ties."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.analysis.languages import knows_words
from edge_rag.core.documents.collection import FusionWeights
from edge_rag.core.ids import ChunkId
from edge_rag.retriever.fusion import ASKED, FusedHit, Rankings, best_score, fuse

_RANKING = st.lists(st.integers(1, 50).map(ChunkId), unique=True, max_size=30)
_WORDINGS = st.lists(st.builds(Rankings, _RANKING, _RANKING), min_size=1, max_size=4)


def ids(*numbers: int) -> list[ChunkId]:
    return [ChunkId(number) for number in numbers]


def test_a_chunk_in_both_rankings_beats_the_first_of_either() -> None:
    hits = fuse([Rankings(ids(1, 2), ids(3, 2))], 10, FusionWeights(k=60.0))

    assert [hit.chunk_id for hit in hits] == [2, 1, 3]
    assert hits[0] == FusedHit(ChunkId(2), 1 / 62 + 1 / 62, 2, 2)
    assert hits[1] == FusedHit(ChunkId(1), 1 / 61, 1, None)


def test_a_weight_of_zero_silences_a_ranking() -> None:
    hits = fuse([Rankings(ids(1, 2), ids(3, 2))], 2, FusionWeights(dense=0.0))

    assert [hit.chunk_id for hit in hits] == [3, 2]


@pytest.mark.parametrize(("held", "known"), [([2.9], False), ([1.0, 3.0], True), ([], False), ([2.0, 2.0], False)])
def test_bm25_counts_where_one_passage_holds_three_tenths_of_the_term_weight(held: list[float], known: bool) -> None:
    assert knows_words(10.0, held) is known


@settings(deadline=None)
@given(_RANKING, _RANKING, st.integers(1, 60))
def test_fusion_is_an_ordered_selection_of_what_it_was_given(
    dense: list[ChunkId], lexical: list[ChunkId], limit: int
) -> None:
    hits = fuse([Rankings(dense, lexical)], limit, FusionWeights())

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
        for hit in fuse([Rankings(dense, lexical)], 100, FusionWeights())
    ]

    assert keys == sorted(keys)


def test_a_chunk_that_all_wordings_find_beats_the_first_of_one() -> None:
    hits = fuse([Rankings(ids(1, 2), ids(1, 2)), Rankings(ids(3, 2), ids(4, 2))], 10, FusionWeights(k=60.0))

    assert [hit.chunk_id for hit in hits] == [2, 1, 3, 4]
    assert hits[0] == FusedHit(ChunkId(2), (2 * ASKED + 2) / 62, 2, 2)
    assert hits[1] == FusedHit(ChunkId(1), 2 * ASKED / 61, 1, 1)


def test_the_first_hit_of_the_question_as_asked_is_among_the_first_two_of_two_wordings() -> None:
    others = ids(*range(2, 20))
    hits = fuse([Rankings(ids(1), ()), Rankings(others, others)], 10, FusionWeights())

    assert [hit.chunk_id for hit in hits[:3]] == [2, 1, 3]
    assert hits[1].score == hits[2].score


@settings(deadline=None)
@given(_WORDINGS)
def test_no_other_wording_takes_more_than_its_share_of_places_from_the_question_as_asked(
    wordings: list[Rankings],
) -> None:
    places = {hit.chunk_id: place for place, hit in enumerate(fuse(wordings, 1000, FusionWeights()), start=1)}

    for rank, hit in enumerate(fuse(wordings[:1], 1000, FusionWeights()), start=1):
        assert places[hit.chunk_id] <= rank * len(wordings)


@settings(deadline=None)
@given(_WORDINGS, st.integers(1, 60))
def test_fusion_of_wordings_is_an_ordered_selection_of_what_they_found(wordings: list[Rankings], limit: int) -> None:
    hits = fuse(wordings, limit, FusionWeights())

    given_chunks = {chunk for each in wordings for chunk in (*each.dense, *each.bm25)}
    assert len(hits) == min(limit, len(given_chunks))
    assert len({hit.chunk_id for hit in hits}) == len(hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.score <= best_score(FusionWeights(), len(wordings)) * (1 + 1e-9) for hit in hits)
