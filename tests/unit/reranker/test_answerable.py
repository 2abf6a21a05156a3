from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.analysis.languages import Script, script_of
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage
from edge_rag.reranker.candidate import EncodedPassage, RerankCandidate
from edge_rag.reranker.evidence import (
    ENOUGH_SENTENCES,
    MOST_CHANCE,
    Answerability,
    EncoderCalibration,
    unrelated_similarity,
)
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


@given(SHARES, st.floats(0, 0.5), st.floats(0, 0.5), COSINES)
def test_words_that_texts_hold_by_chance_are_no_evidence(
    words: float, chance: float, more: float, likeness: float
) -> None:
    low, high = sorted((chance, more))
    assert Answerability(0.7, high).evidence(words, likeness) <= Answerability(0.7, low).evidence(words, likeness)
    assert Answerability(0.7, high).evidence(1.0, likeness) == Answerability(0.7).evidence(1.0, likeness)


def test_chance_is_what_sentences_of_other_candidates_hold() -> None:
    calibration = EncoderCalibration(Scripted(0.67, 0.7))
    judges = [
        calibration.answerability("Who?", weights, others(ENOUGH_SENTENCES, 0.7))
        for weights in ({}, {"pump": 1.0}, {"yes": 1.0, "pump": 9.0}, {"yes": 1.0})
    ]
    assert [judge.chance for judge in judges] == pytest.approx([0.0, 0.0, 0.15, MOST_CHANCE])


def test_syllables_written_apart_hold_more_by_chance() -> None:
    calibration = EncoderCalibration(Scripted(0.67, 0.7))
    english, vietnamese = (
        calibration.answerability(asked, {"yes": 1.0, "pump": 9.0}, others(ENOUGH_SENTENCES, 0.7)).chance
        for asked in ("How often must the filter be changed?", "Bao lâu thì phải thay bộ lọc?")
    )
    assert english < vietnamese < MOST_CHANCE


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


class Scripted:
    """Finds unrelated texts of each script as similar as it is told."""

    def __init__(self, latin: float, other: float) -> None:
        self.similarity = {True: latin, False: other}
        self.encoded = 0

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        self.encoded += 1
        cosine = self.similarity[script_of(texts[0]) is Script.LATIN]
        question, sentence = np.array([[1, 0]], np.float32), np.array([[cosine, 0]], np.float32)
        offsets = np.array([[0, 1]], np.int32)
        return [TokenVectors(sentence if number % 2 else question, offsets) for number in range(len(texts))]


@pytest.mark.parametrize("latin", [0.12, 0.67])
def test_a_question_is_judged_by_unrelated_texts_of_its_script(latin: float) -> None:
    encoder = Scripted(latin, 0.7)
    calibration = EncoderCalibration(encoder)
    english, russian = (calibration.answerability(asked, {}) for asked in ("How often?", "Как часто?"))
    assert (english.unrelated, russian.unrelated) == pytest.approx((latin, 0.7))
    assert english.weights == russian.weights
    calibration.answerability("Who?", {}), calibration.answerability("Кто?", {})
    assert encoder.encoded == 2


def others(sentences: int, cosine: float) -> list[RerankCandidate]:
    vectors = TokenVectors(np.ones((1, 1), np.float32), np.array([[0, 1]], np.int32))
    passage = Passage(ChunkId(1), DocumentId("d"), "d.txt", None, 0, 5, "Yes. ")
    encoded = EncodedPassage.of(passage, vectors)
    return [RerankCandidate(passage, encoded, np.full((1, 1), cosine, np.float32)) for _ in range(sentences)]


@given(st.floats(0.1, 0.9), st.floats(0.1, 0.9), st.integers(0, 40), st.sampled_from(["Who?", "Кто?"]))
def test_the_other_candidates_tell_what_does_not_answer_as_far_as_they_have_sentences(
    stand_in: float, measured: float, sentences: int, question: str
) -> None:
    calibration = EncoderCalibration(Scripted(stand_in, 0.95))
    found, none, enough = (
        calibration.answerability(question, {}, others(count, measured)).unrelated
        for count in (sentences, 0, ENOUGH_SENTENCES)
    )
    assert min(none, enough) - 1e-6 <= found <= max(none, enough) + 1e-6
    if sentences >= ENOUGH_SENTENCES:
        assert found == pytest.approx(enough)
    assert min(measured, stand_in) - 1e-6 <= enough <= max(measured, stand_in + 0.15 * (1 - stand_in)) + 1e-6


@given(st.floats(0.0, 0.9), st.integers(0, 40))
def test_in_another_language_only_likeness_beyond_that_of_other_candidates_counts(
    measured: float, sentences: int
) -> None:
    encoder = Scripted(0.67, 0.95)
    judge = EncoderCalibration(encoder).answerability_across(others(sentences, measured))
    assert judge.evidence(0.0, 0.5) == judge.evidence(1.0, 0.5)
    assert judge.evidence(1.0, judge.unrelated) < 0.25 < judge.evidence(0.0, 1.0)
    assert min(measured, 0.18) - 1e-6 <= judge.unrelated <= max(measured, 0.18) + 1e-6
    assert encoder.encoded == 0


def test_enough_candidates_need_no_texts_of_the_questions_script() -> None:
    encoder = Scripted(0.67, 0.95)
    calibration = EncoderCalibration(encoder)
    russian, english = (
        calibration.answerability(asked, {}, others(ENOUGH_SENTENCES, 0.7)) for asked in ("Кто?", "Who?")
    )
    assert russian == english
    assert encoder.encoded == 1


def test_encoders_that_find_unrelated_texts_similar_have_weights_of_their_own() -> None:
    apart, close = (
        EncoderCalibration(Scripted(latin, 0.7)).answerability("Who?", {}).weights for latin in (0.12, 0.67)
    )
    assert apart != close


@pytest.mark.parametrize("script", list(Script))
def test_unrelated_texts_are_of_their_script_and_cover_each_other(script: Script) -> None:
    class Reader:
        def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
            assert len(texts) >= 8
            assert {script_of(text) for text in texts} <= {script, Script.HAN if script is Script.KANA else script}
            return [TokenVectors(np.eye(1, 2, dtype=np.float32), np.array([[0, 1]], np.int32)) for _ in texts]

    assert unrelated_similarity(Reader(), script) == pytest.approx(0.99)
