"""Activations with outliers: a scale for every row and block confines them, one scale for the whole tensor does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edge_rag.runtime.session.sessions import open_session
from tests.unit.ops.op_graph import builds
from tests.unit.ops.quantized_case import Floats, Matrix, Shape
from tests.unit.ops.test_quantized_matmul import multiply

ROWS, K, N = 64, 1024, 256
BLOCK = 32  # as the models are converted
TIMES = 100.0

Exact = NDArray[np.float64]


@pytest.fixture(scope="module")
def weights() -> Exact:
    return np.random.default_rng(0).normal(size=(K, N))


def in_blocks(weights: Exact) -> Matrix:
    largest = np.abs(weights).reshape(-1, BLOCK, N).max(axis=1)
    integers = np.rint(weights * np.repeat(127 / largest, BLOCK, axis=0)) + 128
    return Matrix(Shape(K, N, 8, BLOCK), integers.astype(np.uint8), (largest / 127).astype(np.float32), None)


def per_tensor(activations: Floats, weights: Exact, folder: Path) -> Floats:
    """ONNX Runtime's DynamicQuantizeMatMul: a scale for every column of the weights, one for all activations."""
    scales = np.abs(weights).max(axis=0) / 127
    feeds = {
        "A": activations,
        "B": np.rint(weights / scales).astype(np.int8),
        "b_scale": scales.astype(np.float32),
    }
    kinds = {"A": TensorProto.FLOAT, "B": TensorProto.INT8, "b_scale": TensorProto.FLOAT}
    node = helper.make_node("DynamicQuantizeMatMul", list(kinds), ["Y"], domain="com.microsoft")
    inputs = [helper.make_tensor_value_info(name, kind, feeds[name].shape) for name, kind in kinds.items()]
    output = helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)
    domains = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "product", inputs, [output])
    path = folder / "product.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=domains, ir_version=10).SerializeToString())
    found: Floats = open_session(path).run(None, feeds)[0]
    return found


def row_errors(found: Floats, activations: Floats, weights: Exact) -> Exact:
    """Of each row, relative to what float64 makes of the weights as they were before they were quantized."""
    exact = activations.astype(np.float64) @ weights
    errors: Exact = np.linalg.norm(found - exact, axis=1) / np.linalg.norm(exact, axis=1)
    return errors


def summand_error(found: Floats, activations: Floats, weights: Exact) -> float:
    exact = activations.astype(np.float64) @ weights
    return float(np.linalg.norm(found - exact) / np.linalg.norm(np.abs(activations) @ np.abs(weights)))


@pytest.mark.parametrize("build", builds())
def test_a_few_large_rows_leave_every_row_within_one_percent(build: str, weights: Exact, tmp_path: Path) -> None:
    activations = np.random.default_rng(1).normal(size=(ROWS, K)).astype(np.float32)
    activations[:4] *= TIMES
    assert row_errors(multiply(in_blocks(weights), activations, build), activations, weights).max() < 0.01
    assert row_errors(per_tensor(activations, weights, tmp_path), activations, weights)[4:].min() > 0.3


@pytest.mark.parametrize("build", builds())
def test_a_few_large_channels_are_confined_to_their_blocks(build: str, weights: Exact, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    activations = rng.normal(size=(ROWS, K)).astype(np.float32)
    activations[:, rng.choice(K, 4, replace=False)] *= TIMES
    ours = multiply(in_blocks(weights), activations, build)
    theirs = per_tensor(activations, weights, tmp_path)
    assert summand_error(ours, activations, weights) < 0.005
    assert summand_error(theirs, activations, weights) > 0.015
    # These channels are nearly all of the sums' norm; the 31 channels that share a block with one lose to it.
    assert row_errors(ours, activations, weights).mean() < 0.02
    assert row_errors(theirs, activations, weights).mean() > 0.1
