"""The ops of text encoders against float64, and every kernel build against the scalar one, bit for bit."""

import math
import os
from functools import cache
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tests.support.examples import examples
from tests.unit.ops.op_graph import BUILD_VARIABLE, LIBRARY_VARIABLE, builds, open_node
from tests.unit.ops.quantized_case import Floats, Matrix, Shape, magnitude, product

SCALAR, *OTHERS = builds()
EXAMPLES = 8 if LIBRARY_VARIABLE in os.environ else examples(30)
EPSILON = 1e-12
KINDS = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "uint8": TensorProto.UINT8}
Lengths = list[int]

# A sequence may be empty, one token, a few vectors, or longer than any register tile.
LENGTHS = st.lists(st.one_of(st.integers(0, 5), st.integers(6, 70), st.integers(250, 300)), min_size=1, max_size=4)


@cache
def _open(
    op: str, inputs: tuple[tuple[str, str], ...], attributes: tuple[tuple[str, float], ...], build: str
) -> ort.InferenceSession:
    names = [name for name, _ in inputs]
    if op == "QuantizedMatMul":
        names.insert(3, "")  # no zero points
    node = helper.make_node(op, names, ["y"], domain="ai.edge_rag", **dict(attributes))
    return open_node(node, {name: KINDS[kind] for name, kind in inputs})


def run(op: str, feeds: dict[str, NDArray[Any]], build: str = "", /, **attributes: float) -> Floats:
    inputs = tuple((name, str(array.dtype)) for name, array in feeds.items())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(BUILD_VARIABLE, build)
        result: Floats = _open(op, inputs, tuple(attributes.items()), build).run(None, feeds)[0]
    return result


def cumulative(lengths: Lengths) -> NDArray[np.int32]:
    return np.cumsum([0, *lengths]).astype(np.int32)


def attend(qkv: Floats, lengths: Lengths, heads: int, scale: float, build: str = "", window: int = 0) -> Floats:
    feeds = {"qkv": qkv, "cumulative_sequence_lengths": cumulative(lengths)}
    return run("SequenceAttention", feeds, build, num_heads=heads, scale=scale, window=window)


def attended(qkv: Floats, lengths: Lengths, heads: int, scale: float, window: int = 0) -> NDArray[np.float64]:
    """The same in float64, sequence by sequence."""
    size = qkv.shape[1] // (3 * heads)
    parts = qkv.astype(np.float64).reshape(len(qkv), 3, heads, size)
    pieces = [np.empty((0, heads * size))]
    for begin, end in zip(cumulative(lengths)[:-1], cumulative(lengths)[1:], strict=True):
        queries, keys, values = (parts[begin:end, part].swapaxes(0, 1) for part in range(3))
        scores = queries @ keys.swapaxes(1, 2) * scale
        distance = np.abs(np.arange(end - begin)[:, None] - np.arange(end - begin))
        scores = np.where(distance <= (window or end - begin), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True, initial=-np.inf))
        mixed = weights / weights.sum(axis=2, keepdims=True) @ values
        pieces.append(mixed.swapaxes(0, 1).reshape(end - begin, heads * size))
    return np.concatenate(pieces)


def heads_of(tokens: int, columns: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=(tokens, columns)).astype(np.float32)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    lengths=LENGTHS,
    heads=st.sampled_from([1, 3, 12]),
    size=st.sampled_from([16, 32, 48, 64, 128]),
    window=st.sampled_from([0, 1, 16, 64]),
    seed=st.integers(0, 2**32 - 1),
)
def test_attention_agrees_with_float64_and_has_the_same_bits_in_every_build(
    lengths: Lengths, heads: int, size: int, window: int, seed: int
) -> None:
    qkv = heads_of(sum(lengths), 3 * heads * size, seed)
    scale = size**-0.5
    found = attend(qkv, lengths, heads, scale, SCALAR, window)
    np.testing.assert_allclose(found, attended(qkv, lengths, heads, scale, window), atol=5e-5)
    for build in OTHERS:
        np.testing.assert_array_equal(attend(qkv, lengths, heads, scale, build, window), found, err_msg=build)


def test_a_sequence_comes_to_the_same_bits_alone_and_among_others() -> None:
    lengths = [37, 1, 120, 16, 5]
    qkv = heads_of(sum(lengths), 3 * 64, seed=1)
    together = attend(qkv, lengths, 2, 0.2)
    for begin, end in zip(cumulative(lengths)[:-1], cumulative(lengths)[1:], strict=True):
        np.testing.assert_array_equal(attend(qkv[begin:end], [end - begin], 2, 0.2), together[begin:end])


def test_attention_survives_scores_that_differ_by_thousands() -> None:
    qkv = heads_of(50, 3 * 32, seed=2) * 60
    for window in (0, 3):
        found = attend(qkv, [50], 1, 1.0, "", window)
        np.testing.assert_allclose(found, attended(qkv, [50], 1, 1.0, window), atol=2e-3)


def test_a_window_is_of_whole_tokens_and_not_negative() -> None:
    with pytest.raises(Exception, match="SequenceAttention: window is -1, must be 0 to"):
        attend(heads_of(4, 48, seed=5), [4], 1, 1.0, "", -1)


def test_what_is_not_a_number_stays_in_its_own_sequence() -> None:
    qkv = heads_of(60, 3 * 32, seed=3)
    whole = attend(qkv, [20, 20, 20], 1, 0.2)
    qkv[25, 40] = np.nan
    for build in builds():
        found = attend(qkv, [20, 20, 20], 1, 0.2, build)
        assert np.isnan(found[20:40]).all()
        np.testing.assert_array_equal(np.delete(found, slice(20, 40), 0), np.delete(whole, slice(20, 40), 0))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([0, 4], "must go from 0 to 6"),
        ([1, 6], "must go from 0 to 6"),
        ([0, 4, 2, 6], "falls from 4 to 2"),
        ([0, 900, 6], "falls from 0 to 900"),
        ([0, -3, 6], "falls from 0 to -3"),
    ],
)
@pytest.mark.parametrize("op", ["SequenceAttention", "SequenceSum"])
def test_lengths_that_do_not_divide_the_tokens_are_refused(op: str, lengths: Lengths, message: str) -> None:
    data = "qkv" if op == "SequenceAttention" else "x"
    attributes = {"num_heads": 1, "scale": 1.0} if op == "SequenceAttention" else {}
    feeds = {data: heads_of(6, 48, 0), "cumulative_sequence_lengths": np.array(lengths, np.int32)}
    with pytest.raises(Exception, match=f"{op}: cumulative_sequence_lengths {message}"):
        run(op, feeds, **attributes)


@pytest.mark.parametrize(("columns", "heads"), [(47, 1), (48, 2), (24, 1), (0, 1)])
def test_heads_that_do_not_fill_vectors_are_refused(columns: int, heads: int) -> None:
    with pytest.raises(Exception, match="SequenceAttention: qkv has shape"):
        attend(np.zeros((4, columns), np.float32), [4], heads, 1.0)


def test_sequences_are_summed_each_on_its_own() -> None:
    x = heads_of(9, 20, seed=4)
    feeds = {"x": x, "cumulative_sequence_lengths": cumulative([4, 0, 5])}
    found = run("SequenceSum", feeds)
    np.testing.assert_allclose(found, [x[:4].sum(axis=0), np.zeros(20), x[4:].sum(axis=0)], atol=1e-5)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    rows=st.integers(0, 90),
    vectors=st.sampled_from([1, 2, 3, 24, 64]),
    skips=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_normalization_agrees_with_float64_and_has_the_same_bits_in_every_build(
    rows: int, vectors: int, skips: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    columns = 16 * vectors
    feeds = {"x": heads_of(rows, columns, seed) + 3, "scale": rng.normal(size=columns).astype(np.float32)}
    feeds["bias"] = rng.normal(size=columns).astype(np.float32)
    total = feeds["x"].astype(np.float64)
    if skips:
        feeds["skip"] = heads_of(rows, columns, seed + 1)
        total = total + feeds["skip"]
    found = run("SkipLayerNormalization", feeds, SCALAR, epsilon=EPSILON)
    spread = np.sqrt(total.var(axis=1, keepdims=True) + EPSILON)
    expected = (total - total.mean(axis=1, keepdims=True)) / spread * feeds["scale"] + feeds["bias"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    for build in OTHERS:
        np.testing.assert_array_equal(
            run("SkipLayerNormalization", feeds, build, epsilon=EPSILON), found, err_msg=build
        )


def test_a_normalization_of_shapes_that_do_not_fit_is_refused() -> None:
    fits = {"x": np.zeros((2, 32), np.float32), "scale": np.zeros(32, np.float32), "bias": np.zeros(32, np.float32)}
    for name, shape in (("x", (2, 24)), ("scale", (16,)), ("bias", (33,)), ("skip", (3, 32))):
        with pytest.raises(Exception, match=f"SkipLayerNormalization: {name} has shape"):
            run("SkipLayerNormalization", fits | {name: np.zeros(shape, np.float32)}, epsilon=EPSILON)


def biased(matrix: Matrix, activations: Floats, bias: Floats, build: str, gelu: int) -> Floats:
    shape = matrix.shape
    attributes = {"K": shape.K, "N": shape.N, "bits": shape.bits, "block_size": shape.block_size, "gelu": gelu}
    return run("QuantizedMatMul", {"a": activations} | matrix.feeds() | {"bias": bias}, build, **attributes)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    shape=st.builds(
        Shape, K=st.integers(1, 200), N=st.integers(1, 90), bits=st.sampled_from([4, 8]), block_size=st.just(64)
    ),
    rows=st.integers(1, 30),
    gelu=st.integers(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_bias_and_gelu_are_applied_to_the_product_in_every_build(shape: Shape, rows: int, gelu: int, seed: int) -> None:
    matrix = Matrix.random(shape, seed, zero_points=False)
    activations = heads_of(rows, shape.K, seed)
    bias = heads_of(1, shape.N, seed + 1)[0] * 2
    found = biased(matrix, activations, bias, SCALAR, gelu)
    total = product(matrix, activations) + bias
    if gelu:
        total = total * (1 + np.vectorize(math.erf)(total / math.sqrt(2))) / 2
    error = 3e-6 * (magnitude(matrix, activations) + np.abs(bias)) + 1e-6
    np.testing.assert_array_less(np.abs(found - total), 2 * error)
    for build in OTHERS:
        np.testing.assert_array_equal(biased(matrix, activations, bias, build, gelu), found, err_msg=build)


def test_a_bias_of_another_length_and_a_gated_bias_are_refused() -> None:
    matrix = Matrix.random(Shape(K=16, N=32), seed=0, zero_points=False)
    with pytest.raises(Exception, match=r"QuantizedMatMul: bias has shape \[31\], expected \[32\]"):
        biased(matrix, np.zeros((1, 16), np.float32), np.zeros(31, np.float32), "", 0)
    gated = Matrix.random(Shape(K=16, N=32, gated=1), seed=0, zero_points=False)
    feeds = {"a": np.zeros((1, 16), np.float32)} | gated.feeds() | {"bias": np.zeros(32, np.float32)}
    with pytest.raises(Exception, match="there is no bias with a gate"):
        run("QuantizedMatMul", feeds, K=16, N=32, bits=4, block_size=32, gated=1)
    with pytest.raises(Exception, match="there is no gelu with a gate"):
        run("QuantizedMatMul", feeds, K=16, N=32, bits=4, block_size=32, gated=1, gelu=1)
