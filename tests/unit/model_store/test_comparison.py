import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.model_store.convert.comparison import compare_scores, compare_vectors

RANDOM = np.random.default_rng(4)


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    found: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return found


VECTORS = unit(RANDOM.standard_normal((20, 64)))
SCORES = RANDOM.standard_normal(20).astype(np.float32)


def test_vectors_agree_with_themselves_and_with_little_noise() -> None:
    assert compare_vectors(VECTORS, VECTORS).least_cosine == pytest.approx(1.0)
    assert compare_vectors(VECTORS, unit(VECTORS + 0.01 * RANDOM.standard_normal(VECTORS.shape))).good


def test_one_text_that_strays_is_enough_to_disagree() -> None:
    made = VECTORS.copy()
    made[7] = VECTORS[8]
    found = compare_vectors(VECTORS, made)
    assert found.mean_cosine > 0.9
    assert not found.good


def test_scores_agree_up_to_a_tenth_of_their_spread() -> None:
    assert compare_scores(SCORES, SCORES).error == 0
    assert compare_scores(SCORES, SCORES + np.float32(0.09) * SCORES.std()).good
    assert not compare_scores(SCORES, SCORES + np.float32(0.11) * SCORES.std()).good
    assert not compare_scores(SCORES, -SCORES).good


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_a_number_agrees_with_nothing(value: float) -> None:
    vectors, scores = VECTORS.copy(), SCORES.copy()
    vectors[0, 0] = scores[0] = value
    assert not compare_vectors(VECTORS, vectors).good
    assert not compare_scores(SCORES, scores).good


def test_vectors_of_other_shapes_and_constant_scores_never_match() -> None:
    assert not compare_vectors(VECTORS, VECTORS[:, :32]).good
    assert not compare_scores(np.ones(5, np.float32), np.ones(5, np.float32)).good
