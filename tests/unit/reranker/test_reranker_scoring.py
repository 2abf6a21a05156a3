from __future__ import annotations

from math import isclose

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_rag.reranker.candidate import mean_vector
from edge_rag.reranker.scoring import Stemmer, bm25, cosine, coverage, max_sim, standardize, weights_by_term
from edge_rag.runtime.encoder.text_encoder import TokenVectors

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


def test_mean_vectors_are_compared_by_direction() -> None:
    def mean(rows: list[list[int]]) -> NDArray[np.float32]:
        vectors = np.array(rows, dtype=np.float32).reshape(-1, 2)
        return mean_vector(TokenVectors(vectors, np.zeros((len(vectors), 2), dtype=np.int32)))

    assert cosine(mean([[1, 0], [0, 1]]), mean([[1, 0], [0, 1]])) == pytest.approx(1.0)
    assert cosine(mean([[1, 0], [0, 1]]), mean([[1, 0]])) == pytest.approx(0.5**0.5)
    assert cosine(mean([[1, 0], [0, 1]]), mean([])) == 0.0


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
