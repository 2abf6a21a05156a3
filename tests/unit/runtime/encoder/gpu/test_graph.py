from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.placement import Precision
from edge_rag.runtime.encoder.bert_graph import BertShape, Pooling, WeightPrecision, build_cross_encoder, build_encoder
from edge_rag.runtime.encoder.bert_network import BertParts, read_network
from edge_rag.runtime.encoder.cross_encoder import PackedPairs, PairEncoder
from edge_rag.runtime.encoder.gpu.encoders import (
    PaddedPairGraph,
    PaddedRunner,
    PaddedTextGraph,
    plan_rectangles,
    rows_of,
)
from edge_rag.runtime.encoder.gpu.graph import graph_inputs, padded_graph
from edge_rag.runtime.encoder.text_encoder import PackedTextGraph, TextEncoder
from edge_rag.runtime.encoder.tokenizer import TokenizedText, graph_lengths
from edge_rag.runtime.session.sessions import open_session, ops_library
from tests.fixtures.makers.tiny_encoder import BERT, MAX_TOKENS, random_tensors, scorer, tensors_of
from tests.support.accelerators.gpu import padded_pair_encoder, padded_text_encoder
from tests.support.accelerators.npu import CROSS_ENCODER, EMBEDDER

TEXTS = (
    "How often must the bearings be greased?",
    "valve",
    "Every 2,000 hours, or every three months; use lithium grease. " * 9,
    "Résumé: naïve café 東京 😀",
)
STANDARD = {
    "Add", "Cast", "Div", "Erf", "Gather", "LayerNormalization", "MatMul", "Max", "Mul", "ReduceL2", "ReduceSum",
    "Reshape", "Softmax", "Sub", "Tanh", "Transpose", "Unsqueeze",
}  # fmt: skip
"""None of them is one that ONNX Runtime leaves to the cores, as it does with Shape and Size."""

PRECISIONS = [Precision.FP32, Precision.FP16]


CONFIG = scorer(BERT) | {"hidden_size": 32, "intermediate_size": 64}
WEIGHTS = random_tensors(tensors_of(CONFIG))
SHAPE = BertShape.of(CONFIG, MAX_TOKENS)


def runs(parts: BertParts, precision: Precision, lengths: Sequence[int] = (32, 48)) -> PaddedRunner:
    return PaddedRunner(open_session(padded_graph(parts, precision).SerializeToString()), lengths)


def texts_by_chance() -> list[list[int]]:
    chance = np.random.default_rng(5)
    return [chance.integers(0, 50, length).tolist() for length in (1, 7, 31, 32, 33, 48, 2)]


@pytest.mark.parametrize("path", [EMBEDDER, CROSS_ENCODER], ids=["embedder", "cross-encoder"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_graph_has_standard_operators_only_and_any_batch_and_length(path: Path, precision: Precision) -> None:
    parts = read_network(onnx.load(path / "model.onnx"))
    model = padded_graph(parts, precision)
    onnx.checker.check_model(model, full_check=True)
    assert {node.op_type for node in model.graph.node} <= STANDARD
    assert {node.domain for node in model.graph.node} == {""}
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 17)]
    for value in model.graph.input:
        assert [each.dim_param for each in value.type.tensor_type.shape.dim] == ["texts", "tokens"]
    assert tuple(value.name for value in model.graph.input) == graph_inputs(parts)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_small_embedder_gives_the_vectors_of_the_packed_path(precision: Precision) -> None:
    """The packed path multiplies with 8-bit activations, which is where nearly all of the difference comes from."""
    packed, padded = TextEncoder.open(EMBEDDER), padded_text_encoder(precision)
    assert (packed.embed(TEXTS) * padded.embed(TEXTS)).sum(axis=1).min() > 0.998
    for one, other in zip(packed.token_vectors(TEXTS), padded.token_vectors(TEXTS), strict=True):
        np.testing.assert_array_equal(one.offsets, other.offsets)
        assert (one.vectors * other.vectors).sum(axis=1).min() > 0.997


@pytest.mark.parametrize("pooling", list(Pooling))
@pytest.mark.parametrize(("precision", "least"), [(Precision.FP32, 1 - 1e-5), (Precision.FP16, 1 - 1e-4)])
def test_an_embedder_with_exact_weights_gives_equal_vectors_for_each_pooling(
    pooling: Pooling, precision: Precision, least: float
) -> None:
    model = build_encoder(WEIGHTS, SHAPE, None, pooling)
    packed = PackedTextGraph(open_session(model.SerializeToString(), ops_library()), 32)
    padded = PaddedTextGraph(runs(read_network(model), precision), 32)
    texts = texts_by_chance()
    assert (packed.sentence_vectors(texts) * padded.sentence_vectors(texts)).sum(axis=1).min() > least
    for one, other in zip(packed.token_vectors(texts), padded.token_vectors(texts), strict=True):
        assert one.shape == other.shape
        assert (one * other).sum(axis=1).min() > least


def test_rows_of_4_bits_are_looked_up_as_the_operator_does() -> None:
    fine = WeightPrecision(4, 16, to_lowest=True)
    model = build_encoder(WEIGHTS, SHAPE, WeightPrecision(8, 32), Pooling.MEAN, fine)
    packed = PackedTextGraph(open_session(model.SerializeToString(), ops_library()), 32)
    padded = PaddedTextGraph(runs(read_network(model), Precision.FP32), 32)
    texts = texts_by_chance()
    assert (packed.sentence_vectors(texts) * padded.sentence_vectors(texts)).sum(axis=1).min() > 0.999


@pytest.mark.parametrize(("precision", "off"), [(Precision.FP32, 1e-5), (Precision.FP16, 5e-3)])
@pytest.mark.parametrize("weights", [None, WeightPrecision(8, 32)], ids=["fp32", "int8"])
def test_a_cross_encoder_tells_question_and_passage_apart(
    weights: WeightPrecision | None, precision: Precision, off: float
) -> None:
    model = build_cross_encoder(WEIGHTS, SHAPE, weights)
    packed = PackedPairs(open_session(model.SerializeToString(), ops_library()), types=True)
    padded = PaddedPairGraph(runs(read_network(model), precision))
    pairs = [pair(ids, len(ids) // 3) for ids in texts_by_chance()]
    rounding = 0.0 if weights is None else 0.05  # of the packed path's activations
    np.testing.assert_allclose(padded.score(pairs), packed.score(pairs), atol=off + rounding)
    swapped = padded.score([pair(list(each.ids), len(each.ids)) for each in pairs])
    assert np.abs(swapped - padded.score(pairs)).max() > 0.05


def pair(ids: list[int], question: int) -> TokenizedText:
    types = [0] * question + [1] * (len(ids) - question)
    return TokenizedText(tuple(ids), tuple(types), ((0, 0),) * len(ids), (False,) * len(ids))


def test_the_cross_encoder_at_hand_scores_as_the_packed_one() -> None:
    pairs = [("how often", "every month"), ("what", "every month of the year, never later"), ("pump", "valve")]
    expected = PairEncoder.open(CROSS_ENCODER).score(pairs)
    for precision in PRECISIONS:
        np.testing.assert_allclose(padded_pair_encoder(precision).score(pairs), expected, atol=0.03)


def test_a_text_gets_the_same_bits_whatever_shares_its_rectangle() -> None:
    model = build_encoder(WEIGHTS, SHAPE, None)
    graph = PaddedTextGraph(runs(read_network(model), Precision.FP32), 32)
    texts = texts_by_chance() * 9
    together = graph.sentence_vectors(texts)
    for number in (0, 3, 20, len(texts) - 1):
        np.testing.assert_array_equal(graph.sentence_vectors([texts[number]])[0], together[number])


@given(st.lists(st.integers(1, 300), max_size=80), st.integers(300, 1000))
def test_every_text_is_in_one_rectangle_that_holds_it(texts: list[int], longest: int) -> None:
    lengths = graph_lengths(longest)
    rectangles = plan_rectangles(texts, lengths)
    assert sorted(number for each in rectangles for number in each.texts) == list(range(len(texts)))
    for each in rectangles:
        assert 1 <= len(each.texts) <= rows_of(each.length)
        assert all(texts[number] <= each.length for number in each.texts)
        shorter = [length for length in lengths if length < each.length]
        assert all(texts[number] > max(shorter, default=0) for number in each.texts)
