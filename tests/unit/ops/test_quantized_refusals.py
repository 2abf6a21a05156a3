"""Whatever is wrong with a matrix or its attributes, the ops say so before they read any of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.errors import ModelError
from tests.unit.ops.quantized_case import Matrix, Shape, open_matrix_op, run_matrix_op

SHAPE = Shape(K=40, N=24, bits=4, block_size=16)  # 2 panels of 5 lines, 3 blocks


def _zeros(*shape: int, of: type = np.float32) -> NDArray[Any]:
    return np.zeros(shape, of)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("a", _zeros(3, 39), r"a has shape \[3, 39\], expected 40 columns"),
        ("a", _zeros(), r"a has shape \[\], expected 40 columns"),
        ("weights", _zeros(2, 319, of=np.uint8), r"weights has shape \[2, 319\], expected \[2, 320\]"),
        ("weights", _zeros(1, 320, of=np.uint8), r"weights has shape \[1, 320\]"),
        ("weights", _zeros(640, of=np.uint8), r"weights has shape \[640\]"),
        ("scales", _zeros(2, 2, 16), r"scales has shape \[2, 2, 16\], expected \[2, 3, 16\]"),
        ("scales", _zeros(3, 24), r"scales has shape \[3, 24\]"),
        ("zero_points", _zeros(2, 3, 15, of=np.uint8), r"zero_points has shape \[2, 3, 15\]"),
    ],
)
def test_an_input_of_another_shape_is_refused(name: str, array: NDArray[Any], message: str) -> None:
    matrix = Matrix.random(SHAPE, seed=0, zero_points=True)
    first: dict[str, dict[str, NDArray[Any]]] = {
        "QuantizedMatMul": {"a": _zeros(3, 40)},
        "QuantizedRows": {"indices": _zeros(3, of=np.int64)},
    }
    for op in ["QuantizedMatMul"] if name == "a" else first:
        session = open_matrix_op(op, matrix)
        with pytest.raises(Exception, match=f"{op}: {message}"):
            session.run(None, first[op] | matrix.feeds() | {name: array})


def _compact(**changes: Any) -> Matrix:
    """A matrix of bytes with minima, in one group, with changes."""
    return replace(Matrix.stored(SHAPE, seed=0, kind="uint8", minima=True), **changes)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (_compact(scales=_zeros(3, 24, of=np.int8)), "scales have type 3, must be float, float16 or uint8"),
        (_compact(scales=_zeros(3, 24, of=np.float64)), "scales have type 11"),
        (_compact(minima=_zeros(3, 24)), "minima have type 1, scales 2"),
        (_compact(minima=_zeros(2, 24, of=np.uint8)), r"minima has shape \[2, 2, 16\], expected \[2, 3, 16\]"),
        (_compact(scale_factors=None), "scale_factors are for scales of uint8, and needed there"),
        (_compact(scale_factors=_zeros(2, 24)), r"scale_factors has shape \[2, 2, 16\], the second must divide 3"),
        (_compact(scale_factors=_zeros(0, 24)), r"scale_factors has shape \[2, 0, 16\]"),
        (_compact(scale_factors=_zeros(9, 24)), r"scale_factors has shape \[2, 9, 16\]"),
        (_compact(minimum_factors=None), "minimum_factors are for minima of uint8, and needed there"),
        (_compact(minimum_factors=_zeros(3, 24)), r"minimum_factors has shape \[2, 3, 16\], expected \[2, 1, 16\]"),
        (_compact(minima=None), "minimum_factors are for minima of uint8"),
        (_compact(zero_points=_zeros(3, 24, of=np.uint8)), "there are zero_points and minima"),
        (
            _compact(zero_points=_zeros(3, 24, of=np.uint8), minima=None, minimum_factors=None),
            "with zero_points, scales must be float",
        ),
    ],
)
@pytest.mark.parametrize("op", ["QuantizedMatMul", "QuantizedRows"])
def test_scales_and_minima_that_do_not_fit_each_other_are_refused(op: str, matrix: Matrix, message: str) -> None:
    first: NDArray[Any] = _zeros(3, 40) if op == "QuantizedMatMul" else _zeros(3, of=np.int64)
    with pytest.raises(Exception, match=f"{op}: {message}"):
        run_matrix_op(op, matrix, first)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"K": 0}, "K is 0"),
        ({"K": -8}, "K is -8"),
        ({"K": 2**40}, "K is 1099511627776"),
        ({"N": 0}, "N is 0"),
        ({"N": 2**40}, "N is 1099511627776"),
        ({"bits": 2}, "bits is 2, must be 4 or 8"),
        ({"block_size": 0}, "block_size is 0, must be a multiple of 8"),
        ({"block_size": 12}, "block_size is 12"),
        ({"block_size": -8}, "block_size is -8"),
        ({"K": 70_000, "block_size": 70_000}, "a block has 70000 rows, at most 65536 can be summed"),
    ],
)
@pytest.mark.parametrize("op", ["QuantizedMatMul", "QuantizedRows"])
def test_attributes_that_make_no_sense_are_refused_when_the_model_is_opened(
    op: str, attributes: dict[str, int], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        open_matrix_op(op, Matrix.random(SHAPE, seed=0, zero_points=False), **attributes)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"gated": 2}, "gated is 2, must be 0 or 1"),
        ({"gated": 1, "N": 25}, "N is 25, with a gate it must be even"),
        ({"wide_block": 24}, "wide_block is 24, must be a multiple of 16 and at most 65536"),
        ({"wide_block": -16}, "wide_block is -16"),
        ({"wide_block": 1 << 20}, "wide_block is 1048576"),
        ({"wide_block": 32, "bits": 8}, "wide_block is for weights of 4 bits"),
    ],
)
def test_a_gate_or_a_wide_block_that_makes_no_sense_is_refused(attributes: dict[str, int], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        open_matrix_op("QuantizedMatMul", Matrix.random(SHAPE, seed=0, zero_points=False), **attributes)


def test_weights_with_zero_points_or_minima_have_no_wide_block() -> None:
    for matrix in (
        Matrix.random(SHAPE, seed=0, zero_points=True),
        _compact(),
        Matrix.stored(SHAPE, 0, "float16", True),
    ):
        session = open_matrix_op("QuantizedMatMul", matrix, wide_block=32)
        with pytest.raises(Exception, match="with wide_block there are no zero_points, minima and factors"):
            session.run(None, {"a": _zeros(3, 40)} | matrix.feeds())
