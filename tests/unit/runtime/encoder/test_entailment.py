from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_rag.errors import InferenceFailed, ModelFolderInvalid
from edge_rag.runtime.encoder.entailment import EntailmentModel
from tests.fixtures.makers.entailment_models import tiny_entailment

PAIRS = [("the pump runs", "it runs"), ("a", "b"), ("never open the valve", "open it"), ("x y z", "")]


def test_probabilities_of_a_pair_are_the_same_alone_and_among_others(tmp_path: Path) -> None:
    model = EntailmentModel.open(tiny_entailment(tmp_path / "model"))
    found = model.probabilities(PAIRS)
    assert found.shape == (4, 3)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
    for pair, row in zip(PAIRS, found, strict=True):
        np.testing.assert_allclose(model.probabilities([pair])[0], row, atol=1e-6)
    assert len(np.unique(found.round(4), axis=0)) == 4


def test_no_pairs_have_no_probabilities(tmp_path: Path) -> None:
    assert EntailmentModel.open(tiny_entailment(tmp_path / "model")).probabilities([]).shape == (0, 3)


def test_columns_follow_the_labels_of_the_configuration(tmp_path: Path) -> None:
    one = EntailmentModel.open(tiny_entailment(tmp_path / "one"))
    other = EntailmentModel.open(tiny_entailment(tmp_path / "other", ("Contradiction", "ENTAILMENT", "neutral")))
    np.testing.assert_allclose(one.probabilities(PAIRS)[:, [1, 2, 0]], other.probabilities(PAIRS), atol=1e-6)


def test_a_pair_that_does_not_fit_is_neutral_and_does_not_change_the_others(tmp_path: Path) -> None:
    model = EntailmentModel.open(tiny_entailment(tmp_path / "model"))
    long = ("the pump runs", "word " * 40)
    found = model.probabilities([PAIRS[0], long, PAIRS[1]])
    np.testing.assert_array_equal(found[1], [0, 1, 0])
    np.testing.assert_allclose(found[[0, 2]], model.probabilities(PAIRS[:2]), atol=1e-6)
    np.testing.assert_array_equal(model.probabilities([long]), [[0, 1, 0]])


@pytest.mark.parametrize("labels", [("yes", "no", "maybe"), ("entailment", "neutral"), ("entailment",) * 3])
def test_other_labels_are_refused(tmp_path: Path, labels: tuple[str, ...]) -> None:
    with pytest.raises(ModelFolderInvalid, match="labels"):
        EntailmentModel.open(tiny_entailment(tmp_path / "model", labels))


def test_logits_of_another_number_are_an_error(tmp_path: Path) -> None:
    model = EntailmentModel.open(tiny_entailment(tmp_path / "model", outputs=2))
    with pytest.raises(InferenceFailed, match="logits"):
        model.probabilities(PAIRS)


def test_a_folder_of_another_role_is_refused() -> None:
    with pytest.raises(ModelFolderInvalid):
        EntailmentModel.open(Path(__file__).parents[4] / "tests" / "fixtures" / "tiny-cross-encoder")
