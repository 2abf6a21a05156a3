import numpy as np
import onnx
import pytest

from edge_rag.errors import ModelNotLowerable
from edge_rag.runtime.encoder.bert_network import BertParts, read_network
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.npu.calibration import CALIBRATION_TOKENS, calibrate, padded_inputs
from edge_rag.runtime.encoder.npu.graph import Scale, fixed_graph
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.encoder.tokenizer import LONGEST, TextTokenizer, graph_lengths
from edge_rag.runtime.session.sessions import open_session
from tests.support.accelerators.npu import CROSS_ENCODER, EMBEDDER

TEXTS = ("How often must the bearings be greased?", "Every 2,000 hours, or every three months; use lithium grease.")


@pytest.fixture(scope="module")
def parts() -> BertParts:
    return read_network(onnx.load(EMBEDDER / "model.onnx"))


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer.open(EMBEDDER / "tokenizer.json", 256)


def looked_up(parts: BertParts, tokenizer: TextTokenizer, text: str) -> np.ndarray:
    (ids,) = tokenizer.truncated_ids([text])
    return parts.tables.look_up(np.array(ids), np.zeros(len(ids), np.int64))


def unit(rows: np.ndarray) -> np.ndarray:
    lengths: np.ndarray = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / lengths)


def test_an_embedder_of_fixed_length_computes_what_the_graph_it_was_taken_from_does(
    parts: BertParts, tokenizer: TextTokenizer
) -> None:
    session = open_session(fixed_graph(parts, 32, None).model.SerializeToString())
    for text, expected in zip(TEXTS, TextEncoder.open(EMBEDDER).token_vectors(TEXTS), strict=True):
        vectors = looked_up(parts, tokenizer, text)
        hidden = session.run(None, padded_inputs(vectors, 32, -1e4))[0][1 : len(vectors) - 1]
        assert (unit(hidden) * expected.vectors).sum(axis=1).min() > 0.997


def test_a_cross_encoder_of_fixed_length_scores_as_the_graph_it_was_taken_from_does() -> None:
    parts = read_network(onnx.load(CROSS_ENCODER / "model.onnx"))
    tokenizer = TextTokenizer.open(CROSS_ENCODER / "tokenizer.json", 48)
    session = open_session(fixed_graph(parts, 48, None).model.SerializeToString())
    pairs = [("how often", "every month"), ("what", "every month of the year, never later"), ("pump", "valve")]
    expected = PairEncoder.open(CROSS_ENCODER).score(pairs)
    for pair, score in zip(pairs, expected, strict=True):
        text = tokenizer.pair(*pair)
        vectors = parts.tables.look_up(np.array(text.ids), np.array(text.type_ids))
        assert session.run(None, padded_inputs(vectors, 48, -1e4))[0][0, 0] == pytest.approx(score, abs=0.03)


def test_padding_does_not_change_the_result(parts: BertParts, tokenizer: TextTokenizer) -> None:
    vectors = looked_up(parts, tokenizer, TEXTS[0])
    short, long = (
        open_session(fixed_graph(parts, tokens, None).model.SerializeToString()).run(
            None, padded_inputs(vectors, tokens, -1e4)
        )[0][: len(vectors)]
        for tokens in (len(vectors), 64)
    )
    np.testing.assert_allclose(short, long, atol=1e-4)


def test_quantizing_hardly_changes_a_vector(parts: BertParts, tokenizer: TextTokenizer) -> None:
    calibration = calibrate(parts, [window for text in TEXTS for window in tokenizer.windows(text)])
    plain = open_session(fixed_graph(parts, 32, None).model.SerializeToString())
    rounded = open_session(fixed_graph(parts, 32, calibration.ranges).model.SerializeToString())
    inputs = padded_inputs(looked_up(parts, tokenizer, "Which grease is used for bearings?"), 32, calibration.mask)
    cosines = (unit(plain.run(None, inputs)[0]) * unit(rounded.run(None, inputs)[0])).sum(axis=1)
    assert cosines.min() > 0.998


def test_the_same_model_gets_the_same_graph_to_the_byte(parts: BertParts, tokenizer: TextTokenizer) -> None:
    made = {
        fixed_graph(parts, 32, calibrate(parts, tokenizer.windows(TEXTS[1])).ranges).model.SerializeToString(
            deterministic=True
        )
        for _ in range(2)
    }
    assert len(made) == 1


def test_a_graph_from_elsewhere_is_refused_with_what_to_do() -> None:
    foreign = onnx.load(CROSS_ENCODER.with_name("tiny-cross-encoder") / "model.onnx")
    with pytest.raises(ModelNotLowerable, match="edge-rag models add"):
        read_network(foreign)


@pytest.mark.parametrize(
    ("longest", "lengths"),
    [
        (48, (32, 48)),
        (32, (32,)),
        (256, (32, 64, 128, 256)),
        (300, (32, 64, 128, 256, 300)),
        (8192, (32, 64, 128, 256, 512)),
    ],
)
def test_the_longest_graph_holds_the_longest_text_that_is_read(longest: int, lengths: tuple[int, ...]) -> None:
    assert graph_lengths(longest) == lengths
    assert max(lengths) == min(longest, LONGEST)


@pytest.mark.parametrize("extent", [(-1.0, 3.0), (0.0, 0.0), (2.0, 5.0), (-7.0, -1.0), (-1e-12, 0.0), (-3e4, 1e-3)])
def test_a_scale_covers_its_range_and_represents_0_exactly(extent: tuple[float, float]) -> None:
    scale = Scale.over(extent)
    low, high = scale.extent
    step = float(scale.step)
    assert low <= min(extent[0], 0) + step
    assert high >= max(extent[1], 0) - step
    assert 0 <= int(scale.zero) <= 65_535


def test_a_calibration_text_may_be_longer_than_what_is_run(parts: BertParts, tokenizer: TextTokenizer) -> None:
    (window,) = tokenizer.windows("pump " * (CALIBRATION_TOKENS + 20))
    assert calibrate(parts, [window]).mask < -24
