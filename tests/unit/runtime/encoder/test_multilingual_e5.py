"""The multilingual embedder as it comes along: its tokens against SentencePiece's, its vectors against fp32's."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from edge_rag.runtime.encoder.bert_network import read_network
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.encoder.tokenizer import TextTokenizer

REPOSITORY = Path(__file__).parents[4]
FOLDER = REPOSITORY / "models" / "multilingual-e5-small"
REFERENCE = REPOSITORY / "tests" / "fixtures" / "multilingual-e5" / "reference.npz"
TOKENIZER = TextTokenizer.open(FOLDER / "tokenizer.json", 512)
PIECES = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
SPECIAL = {name: PIECES.token_to_id(name) for name in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")}


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    return TextEncoder.open(FOLDER)


def reference_texts() -> list[str]:
    with np.load(REFERENCE) as kept:
        return [str(text) for text in kept["texts"]]


def pieces_of(text: str) -> list[str | None]:
    (read,) = TOKENIZER.windows(text)
    return [PIECES.id_to_token(token) for token, special in zip(read.ids, read.special, strict=True) if not special]


def test_tokens_of_texts_in_many_scripts_are_sentencepieces() -> None:
    with np.load(REFERENCE) as kept:
        ends = [0, *map(int, kept["ends"])]
        expected = [[str(piece) for piece in kept["tokens"][start:end]] for start, end in pairwise(ends)]
    texts = reference_texts()
    assert len(texts) == len(expected) > 25
    for text, pieces in zip(texts, expected, strict=True):
        assert pieces_of(text) == pieces


def test_vectors_agree_with_the_same_weights_in_fp32(encoder: TextEncoder) -> None:
    with np.load(REFERENCE) as kept:
        expected = kept["sentence_vectors"].astype(np.float32)
    cosines = (encoder.embed(reference_texts()) * expected).sum(axis=1)
    assert cosines.mean() > 0.9995
    assert cosines.min() > 0.999


def test_questions_and_passages_get_their_prompts(encoder: TextEncoder) -> None:
    (asked,), (told,) = encoder.embed_questions(["close the valve"]), encoder.embed(["close the valve"])
    assert (asked * told).sum() < 0.9999
    assert encoder.count_tokens("close the valve") == len(TOKENIZER.truncated_ids(["passage: close the valve"])[0])


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("Wie oft wird die Pumpe geschmiert?", "Grease the pump every three months.", "The gate is locked at night."),
        ("How often is the pump greased?", "Смазывайте насос раз в три месяца.", "Ворота запирают на ночь."),
        ("水泵多久润滑一次？", "Grease the pump every three months.", "The gate is locked at night."),
        ("How often is the pump greased?", "قم بتشحيم المضخة كل ثلاثة أشهر.", "تغلق البوابة ليلاً."),
    ],
)
def test_a_question_finds_its_answer_in_another_language(
    encoder: TextEncoder, question: str, answer: str, other: str
) -> None:
    (asked,) = encoder.embed_questions([question])
    right, wrong = encoder.embed([answer, other]) @ asked
    assert right > wrong + 0.03


def test_every_character_of_the_vocabulary_is_a_piece_of_its_own() -> None:
    """So leaving pieces out makes no text unknown."""
    pieces = PIECES.get_vocab()
    assert len(pieces) == 142_000
    assert {character for piece in pieces for character in piece} <= pieces.keys()


@given(
    st.lists(
        st.sampled_from(("valve", "насос", "水泵", "ポンプ", "पंप", "مضخة", "ปั๊ม", "é", ".", "1.234,5")), max_size=20
    ),
    st.sampled_from((" ", "  ", "\n", "\t ", "\u3000")),
)
def test_tokens_lie_in_order_in_words_and_leave_none_out(words: list[str], between: str) -> None:
    text = between.join(words)
    (read,) = TOKENIZER.windows(text)
    spans = [span for span, special in zip(read.offsets, read.special, strict=True) if not special]
    assert spans == sorted(spans)
    assert not any(text[start:end] != text[start:end].strip() for start, end in spans)
    covered = {place for start, end in spans for place in range(start, end)}
    assert covered == {place for place, character in enumerate(text) if not character.isspace()}


def test_the_network_is_read_back_with_its_rows_of_4_bits() -> None:
    parts = read_network(onnx.load(FOLDER / "model.onnx"))
    assert len(parts.layers) == 12
    words = parts.tables.word_rows(np.array([5, 77_777]))
    assert parts.tables.words.shape == (142_000, 384)
    assert parts.tables.word_scales is not None
    steps = words.reshape(2, 12, 32) / parts.tables.word_scales[[5, 77_777]][..., None]
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-4)
    assert steps.min() == -8
    assert steps.max() <= 7
