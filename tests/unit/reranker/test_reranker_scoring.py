from __future__ import annotations

import json
from collections import Counter
from math import isclose
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_rag.reranker.candidate import mean_vector
from edge_rag.reranker.scoring import Stemmer, bm25, cosine, coverage, max_sim, standardize, words_of
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


def test_words_of_one_stem_match_and_count_once() -> None:
    stemmer = Stemmer()
    assert stemmer.stems("Greasing the bearings, greased!") == stemmer.stems("grease THE bearing grease")
    assert stemmer.weights({"grease": 1.0, "greased": 2.5, "bearing": 0.5}) == {
        stemmer.stems("grease")[0]: 2.5,
        stemmer.stems("bearings")[0]: 0.5,
    }


def test_composed_and_decomposed_letters_are_the_same_word() -> None:
    stemmer = Stemmer()
    assert stemmer.stems("cafe\u0301 P-101") == stemmer.stems("caf\u00e9 p 101")


VOCABULARY = json.loads((Path(__file__).parents[3] / "models" / "minilm-l6" / "tokenizer.json").read_text("utf-8"))


def test_a_stem_begins_as_its_word_does() -> None:
    stemmer = Stemmer()
    words = [word for word in VOCABULARY["model"]["vocab"] if word.isalnum()][::5]
    assert len(words) > 4000
    assert [word for word in words if stemmer.stems(word)[0][0] != word[0]] == []


@given(st.lists(st.sampled_from(["greased", "greases", "Grease", "lying", "lie", "pumps", "Pump", "valve", "P-101"])))
def test_exactly_the_requested_stems_of_a_text_are_found(words: list[str]) -> None:
    stemmer = Stemmer()
    for wanted in ({"greas"}, {"lie", "pump"}, {"p", "101"}, set[str]()):
        every = [stem for stem in stemmer.stems(" ".join(words)) if stem in wanted]
        read = words_of(" ".join(words))
        assert stemmer.stems_among(read, wanted) == set(every)
        assert stemmer.counts_among(Counter(read), wanted) == Counter(every)
