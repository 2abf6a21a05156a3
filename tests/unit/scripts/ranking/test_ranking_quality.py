from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Hit, Passage, RankedPassage
from scripts.bench.retrieval.comparison import summed_order
from scripts.bench.retrieval.ranking_quality import by_rank, document_rank, ranking_quality


def passage(number: int) -> Passage:
    return Passage(ChunkId(number), DocumentId(str(number)), f"{number}.txt", None, 0, 4, "text")


def test_a_document_is_ranked_by_its_best_chunk_and_counted_once() -> None:
    assert document_rank(["a", "a", "b", "a", "c"], "b") == 2
    assert document_rank(["a", "b"], "c") is None


def test_each_measure_is_the_mean_over_all_questions() -> None:
    quality = ranking_quality([1, 3, 11, None])
    assert quality.recall_at_1 == 1 / 4
    assert quality.recall_at_5 == quality.recall_at_10 == 2 / 4
    assert quality.ndcg_at_10 == pytest.approx((1 + 1 / log2(4)) / 4)
    assert quality.mrr == pytest.approx((1 + 1 / 3 + 1 / 11) / 4)


@given(st.lists(st.none() | st.integers(1, 200), min_size=1))
def test_measures_lie_between_recall_at_1_and_1(ranks: list[int | None]) -> None:
    quality = ranking_quality(ranks)
    assert 0 <= quality.recall_at_1 <= quality.recall_at_5 <= quality.recall_at_10 <= 1
    assert quality.recall_at_1 <= quality.ndcg_at_10 <= quality.recall_at_10 + 1e-9
    assert quality.recall_at_1 <= quality.mrr <= 1


def test_one_searchs_ranking_holds_only_what_it_found_in_its_own_order() -> None:
    hits = [
        Hit(passage(1), 0.3, dense_rank=2, lexical_rank=1),
        Hit(passage(2), 0.2, dense_rank=1),
        Hit(passage(3), 0.1),
    ]
    assert by_rank(hits, lambda hit: hit.dense_rank) == ["2.txt", "1.txt"]
    assert by_rank(hits, lambda hit: hit.lexical_rank) == ["1.txt"]


def test_rerankers_count_alike_in_their_sum_whatever_their_scales() -> None:
    def order(scores: dict[int, float]) -> list[RankedPassage]:
        return [RankedPassage(passage(number), score, ()) for number, score in scores.items()]

    wide = order({1: 900.0, 2: 500.0, 3: -1000.0})
    narrow = order({2: 0.02, 1: 0.018, 3: 0.0})
    assert summed_order([wide]) == ["1.txt", "2.txt", "3.txt"]
    assert summed_order([wide, narrow])[-1] == "3.txt"
    assert summed_order([wide, order({2: 0.1, 1: 0.0, 3: 0.0})])[0] == "2.txt"
