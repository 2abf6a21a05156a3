from math import isclose

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.reranker.max_sim import PassageWeights, passage_scores
from edge_rag.reranker.scoring import Stemmer, bm25, coverage, max_sim, reciprocal_ranks, standardize, weights_by_term

FINITE = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(FINITE, min_size=1, max_size=30))
def test_standardized_values_have_mean_zero_and_deviation_one_or_are_all_zero(values: list[float]) -> None:
    result = standardize(values)
    assert abs(result.mean()) < 1e-6
    assert isclose(result.std(), 1.0, rel_tol=1e-6) or not result.any()
    assert all(result[i] <= result[j] for i in range(len(values)) for j in range(len(values)) if values[i] < values[j])


def test_equal_values_are_standardized_to_zero() -> None:
    assert standardize([0.3, 0.3, 0.3]).tolist() == [0.0, 0.0, 0.0]
    assert standardize([5.0]).tolist() == [0.0]
    assert standardize([]).shape == (0,)


def test_max_sim_averages_each_question_tokens_best_match() -> None:
    cosines = np.array([[0.1, 0.9, -0.5], [0.4, 0.2, 0.3]], dtype=np.float32)
    assert max_sim(cosines) == pytest.approx((0.9 + 0.4) / 2)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_max_sim_without_tokens_is_zero(shape: tuple[int, int]) -> None:
    assert max_sim(np.zeros(shape, dtype=np.float32)) == 0.0


def test_bm25_follows_its_formula() -> None:
    damping = 1.2 * (1 - 0.75 + 0.75 * 3 / 2)
    expected = 2.0 * 2 * 2.2 / (2 + damping) + 0.5 * 1 * 2.2 / (1 + damping)
    scores = bm25([{"pump": 2, "bear": 1}, {}], [3, 1], {"pump": 2.0, "bear": 0.5, "motor": 9.0})
    assert scores == [pytest.approx(expected), 0.0]


def test_bm25_of_no_documents_is_empty() -> None:
    assert bm25([], [], {"pump": 1.0}) == []
    assert bm25([{}, {}], [0, 0], {"pump": 1.0}) == [0.0, 0.0]


def test_coverage_is_the_share_of_term_weight_that_is_present() -> None:
    weights = {"pump": 3.0, "bear": 1.0}
    assert coverage(["the", "pump", "pump"], weights) == pytest.approx(0.75)
    assert coverage(["pump", "bear"], weights) == 1.0
    assert coverage(["valv"], weights) == 0.0
    assert coverage(["pump"], {}) == 0.0


def test_words_of_one_term_count_once_and_characters_of_a_script_without_spaces_by_pairs() -> None:
    assert weights_by_term({"grease": 1.0, "greased": 2.5, "bearing": 0.5, "2,5": 3.0, "油圧": 1.5}) == {
        "greas": 2.5,
        "bear": 0.5,
        "2.5": 3.0,
        "油圧": 1.5,
    }


def test_words_of_one_stem_match() -> None:
    stemmer = Stemmer()
    assert stemmer.stems("Greasing the bearings, greased!") == stemmer.stems("grease THE bearing grease")


def test_composed_and_decomposed_letters_are_the_same_word() -> None:
    stemmer = Stemmer()
    assert stemmer.stems("cafe\u0301 P-101") == stemmer.stems("caf\u00e9 p 101")


def test_reciprocal_ranks_are_a_rankings_contributions_to_a_fusion() -> None:
    assert reciprocal_ranks(3, 20.0) == pytest.approx([1 / 21, 1 / 22, 1 / 23])
    assert reciprocal_ranks(0, 20.0) == []


@given(st.integers(1, 30), st.sampled_from([0.0, 0.3, 1.0]))
def test_passages_that_compare_equally_keep_the_retrievers_order(count: int, level: float) -> None:
    scores = passage_scores([level] * count, [level] * count, PassageWeights())
    assert (-scores).argsort(kind="stable").tolist() == list(range(count))
    assert count == 1 or all(scores[:-1] > scores[1:])


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=30))
def test_the_order_does_not_depend_on_the_encoders_level_and_scale(rows: list[tuple[int, int]]) -> None:
    interactions, words = ([float(value) for value in column] for column in zip(*rows, strict=True))
    scores = passage_scores(interactions, words, PassageWeights())
    moved = passage_scores([0.6 + 0.003 * value for value in interactions], words, PassageWeights())
    assert moved == pytest.approx(scores, abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=2, max_size=30))
def test_a_passage_that_is_better_by_every_component_has_the_higher_score(rows: list[tuple[int, int]]) -> None:
    interactions, words = ([float(value) for value in column] for column in zip(*rows, strict=True))
    scores = passage_scores(interactions, words, PassageWeights())
    for first in range(len(rows)):
        for second in range(first + 1, len(rows)):
            if interactions[first] >= interactions[second] and words[first] >= words[second]:
                assert scores[first] > scores[second]
