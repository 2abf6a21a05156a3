from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.reranker.evidence import Answerability, unrelated_similarity
from edge_rag.runtime.encoder.text_encoder import TextEncoder, TokenVectors

REPOSITORY = Path(__file__).parents[3]
SHARES = st.floats(0, 1)
COSINES = st.floats(-1, 1)


@given(SHARES, COSINES, SHARES, COSINES, st.floats(0, 0.99))
def test_evidence_is_between_0_and_1_and_grows_with_coverage_and_similarity(
    words: float, likeness: float, more_words: float, more_likeness: float, unrelated: float
) -> None:
    judge = Answerability(unrelated)
    low = judge.evidence(min(words, more_words), min(likeness, more_likeness))
    high = judge.evidence(max(words, more_words), max(likeness, more_likeness))
    assert 0.0 <= low <= high <= 1.0


def test_neither_coverage_nor_similarity_alone_gives_high_evidence() -> None:
    judge = Answerability(0.12)
    assert judge.evidence(0.0, 0.12) < 0.01
    assert judge.evidence(1.0, 0.12) < 0.01
    assert judge.evidence(0.0, 1.0) > 0.99


@given(SHARES, SHARES, st.floats(0, 0.9))
def test_evidence_is_invariant_to_the_encoders_baseline_similarity(words: float, above: float, shift: float) -> None:
    plain, shifted = Answerability(0.0), Answerability(shift)
    expected = plain.evidence(words, above)
    assert shifted.evidence(words, shift + above * (1.0 - shift)) == pytest.approx(expected, abs=1e-6)


def test_unrelated_texts_are_far_less_similar_than_a_question_and_its_answer() -> None:
    encoder = TextEncoder.open(REPOSITORY / "models" / "minilm-l6")
    assert 0.05 < unrelated_similarity(encoder) < 0.2


class Constant:
    """Finds all texts the same."""

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        return [TokenVectors(np.ones((1, 1), np.float32), np.array([[0, 1]], np.int32)) for _ in texts]


def test_a_degenerate_encoder_still_gives_a_valid_evidence() -> None:
    assert 0.0 <= Answerability(unrelated_similarity(Constant())).evidence(1.0, 1.0) <= 1.0
