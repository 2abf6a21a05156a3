"""QuantizedMatMul against float64, and every kernel build against the scalar one, bit for bit."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.unit.ops.op_graph import BUILD_VARIABLE, LIBRARY_VARIABLE, builds
from tests.unit.ops.quantized_case import Floats, Matrix, Shape, magnitude, open_anew, product, run_matrix_op

SCALAR, *OTHERS = builds()
TOLERANCE = 3e-6  # of a sum in float32 over the blocks; of an exponential with a gate, 1e-5
EXAMPLES = 10 if LIBRARY_VARIABLE in os.environ else examples(60)


def multiply(matrix: Matrix, activations: Floats, build: str = "") -> Floats:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(BUILD_VARIABLE, build)
        return run_matrix_op("QuantizedMatMul", matrix, activations)


def activations_of(rows: int, columns: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, columns)) * 10.0 ** rng.uniform(-3, 3, (rows, 1))
    return (values * np.where(rng.random(values.shape) < 0.01, 50, 1)).astype(np.float32)


def assert_close(found: Floats, matrix: Matrix, activations: Floats) -> None:
    tolerance = 1e-5 if matrix.shape.gated else TOLERANCE
    error = np.abs(found - product(matrix, activations))
    np.testing.assert_array_less(error, tolerance * magnitude(matrix, activations) + 1e-30)


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    gated = draw(st.integers(0, 1))
    shape = Shape(
        K=draw(st.integers(1, 600)),
        N=draw(st.integers(1, 100)) << gated,
        bits=draw(st.sampled_from([4, 8])),
        block_size=draw(st.sampled_from([8, 16, 24, 32, 40, 128, 256, 264, 1024])),
        gated=gated,
    )
    seed = draw(st.integers(0, 2**32 - 1))
    if draw(st.booleans()):
        return Matrix.random(shape, seed, zero_points=draw(st.booleans()))
    kind = draw(st.sampled_from(["float32", "float16", "uint8"]))
    groups = draw(st.sampled_from([n for n in range(1, shape.blocks + 1) if shape.blocks % n == 0]))
    return Matrix.stored(shape, seed, kind, minima=draw(st.booleans()), groups=groups)


@settings(max_examples=EXAMPLES, deadline=None)
@given(matrix=matrices(), rows=st.integers(1, 70), seed=st.integers(0, 2**32 - 1))
def test_any_product_agrees_with_float64_and_has_the_same_bits_in_every_build(
    matrix: Matrix, rows: int, seed: int
) -> None:
    activations = activations_of(rows, matrix.shape.K, seed)
    expected = multiply(matrix, activations, SCALAR)
    assert_close(expected, matrix, activations)
    for build in OTHERS:
        np.testing.assert_array_equal(multiply(matrix, activations, build).view(np.int32), expected.view(np.int32))


def widened(matrix: Matrix, wide_block: int) -> Matrix:
    """The matrix in 8 bits with a scale for every ``wide_block`` of a column, each step in float32."""
    shape = matrix.shape
    values = matrix.integers.astype(np.float32) - np.float32(8)
    steps = matrix.scales.astype(np.float32)[np.arange(shape.K) // shape.block_size]
    wide = np.arange(shape.K) // wide_block
    largest = np.stack([np.abs(steps[wide == block]).max(axis=0) for block in range(wide[-1] + 1)])
    scales = largest * np.float32(8) / np.float32(127)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 0)
    integers = (np.rint(values * steps * inverse[wide]) + 128).astype(np.uint8)
    return Matrix(Shape(shape.K, shape.N, 8, wide_block, shape.gated), integers, scales, None)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    shape=st.builds(Shape, K=st.integers(57, 600), N=st.integers(1, 100), block_size=st.sampled_from([8, 32, 64])),
    kind=st.sampled_from(["float32", "float16"]),
    rows=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_wide_product_is_that_of_the_weights_rounded_to_8_bits(shape: Shape, kind: str, rows: int, seed: int) -> None:
    matrix = Matrix.stored(shape, seed, kind, minima=False)
    activations = activations_of(rows, shape.K, seed)
    expected = run_matrix_op("QuantizedMatMul", widened(matrix, 128), activations)
    session = open_anew("QuantizedMatMul", matrix, wide_block=128)
    feeds = {"a": activations} | matrix.feeds()
    for _ in range(2):
        (found,) = session.run(None, feeds)
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("rows", [1, 8, 9, 64, 512, 1100])
@pytest.mark.parametrize(
    "shape",
    [
        Shape(K=896, N=1152, block_size=128),
        Shape(K=896, N=2048, block_size=128, gated=1),
        Shape(K=4864, N=48, block_size=128),
        Shape(K=896, N=512, bits=8, block_size=32),
        Shape(K=1536, N=384, bits=8, block_size=1536),
    ],
    ids=str,
)
def test_a_layers_product_agrees_with_float64_and_has_the_scalar_bits(shape: Shape, rows: int) -> None:
    matrix = Matrix.random(shape, seed=rows, zero_points=rows == 64)
    activations = activations_of(rows, shape.K, seed=1)
    found = multiply(matrix, activations)
    assert_close(found, matrix, activations)
    np.testing.assert_array_equal(found[-9:].view(np.int32), multiply(matrix, activations[-9:], SCALAR).view(np.int32))


@pytest.mark.parametrize("rows", [1, 8, 64, 1100])
@pytest.mark.parametrize("kind", ["float16", "uint8"])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_layers_product_with_minima_agrees_with_float64_and_has_the_scalar_bits(
    bits: int, kind: str, rows: int
) -> None:
    shape = Shape(K=576, N=1536, bits=bits, block_size=32, gated=1)
    matrix = Matrix.stored(shape, rows, kind, minima=True, groups=3)
    activations = activations_of(rows, shape.K, seed=1)
    found = multiply(matrix, activations)
    assert_close(found, matrix, activations)
    np.testing.assert_array_equal(found[-9:].view(np.int32), multiply(matrix, activations[-9:], SCALAR).view(np.int32))


def test_every_half_is_read_as_the_number_it_is() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(1, -1)
    shape = Shape(K=8, N=halves.size, bits=8)
    matrix = Matrix(shape, np.full((8, shape.N), 129, np.uint8), halves, None)
    with np.errstate(invalid="ignore"):
        expected = halves[0].astype(np.float32)
        products = expected * 127
    activations = np.zeros((1, 8), np.float32)
    activations[0, 0] = 127
    for build in builds():
        np.testing.assert_array_equal(multiply(matrix, activations, build)[0], products)
    rows = run_matrix_op("QuantizedRows", matrix, np.arange(shape.N))
    np.testing.assert_array_equal(rows[:, 0], expected)


@pytest.mark.parametrize("build", builds())
@pytest.mark.parametrize("bits", [4, 8])
def test_the_largest_integers_do_not_overflow(build: str, bits: int) -> None:
    rows, columns, most = 4096, 32, (1 << bits) - 1
    integers = np.full((rows, columns), most, np.uint8)
    scales, zeros = np.ones((1, columns), np.float32), np.zeros((1, columns), np.uint8)
    matrix = Matrix(Shape(rows, columns, bits, block_size=rows), integers, scales, zeros)
    signs = np.where(np.arange(30) % 2, -1, 1).astype(np.float32)[:, None]
    found = multiply(matrix, signs * np.ones((1, rows), np.float32), build)
    np.testing.assert_allclose(found, np.broadcast_to(signs * rows * most, found.shape), rtol=1e-6)


@pytest.mark.parametrize("gated", [0, 1])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_spoils_its_own_row_only(value: float, gated: int) -> None:
    matrix = Matrix.random(Shape(K=200, N=64, block_size=32, gated=gated), seed=0, zero_points=True)
    activations = activations_of(40, 200, seed=0)
    whole = multiply(matrix, activations)
    activations[17, 150] = value
    found = multiply(matrix, activations)
    assert np.isnan(found[17]).all()
    others = np.arange(40) != 17
    np.testing.assert_array_equal(found[others], whole[others])


@pytest.mark.parametrize("shape", [Shape(K=512, N=1024, block_size=128), Shape(K=512, N=1024, bits=8)], ids=str)
def test_a_rows_bits_do_not_depend_on_the_rows_beside_it(shape: Shape) -> None:
    matrix = Matrix.random(shape, seed=3, zero_points=False)
    activations = activations_of(300, 512, seed=3)
    together = multiply(matrix, activations)
    for rows in (1, 2, 3, 7, 31, 65):
        np.testing.assert_array_equal(multiply(matrix, activations[100 : 100 + rows]), together[100 : 100 + rows])


def test_rows_of_zeros_give_zeros() -> None:
    matrix = Matrix.random(Shape(K=64, N=33), seed=0, zero_points=True)
    assert not multiply(matrix, np.zeros((3, 64), np.float32)).any()


def test_leading_dimensions_are_kept_and_no_rows_give_no_rows() -> None:
    matrix = Matrix.random(Shape(K=40, N=24, gated=1), seed=0, zero_points=False)
    activations = activations_of(6, 40, seed=0)
    flat = multiply(matrix, activations)
    np.testing.assert_array_equal(multiply(matrix, activations.reshape(2, 3, 40)), flat.reshape(2, 3, 12))
    np.testing.assert_array_equal(multiply(matrix, activations[0]), flat[0])
    assert multiply(matrix, activations[:0]).shape == (0, 12)


def test_runs_that_overlap_do_not_disturb_each_other() -> None:
    matrix = Matrix.random(Shape(K=384, N=384, bits=8, block_size=384), seed=0, zero_points=False)
    inputs = [activations_of(rows, 384, seed=rows) for rows in (1, 5, 64, 200)]
    expected = [multiply(matrix, activations) for activations in inputs]
    with ThreadPoolExecutor(4) as threads:
        for found, wanted in zip(threads.map(lambda a: multiply(matrix, a), inputs * 10), expected * 10, strict=True):
            np.testing.assert_array_equal(found, wanted)
