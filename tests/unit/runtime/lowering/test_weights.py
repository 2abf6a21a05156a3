"""One packed matrix for a product and a look-up of the same weights, also where the last block is not full."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_rag.runtime.lowering.weight_packing import StoredTensors, WeightsFile, dequantize, quantize
from edge_rag.runtime.lowering.weights import lower_weights
from edge_rag.runtime.session.sessions import open_session, ops_library

FEATURES, WORDS, BLOCK = 24, 48, 16
WHOLE = -(-FEATURES // BLOCK) * BLOCK


def tied(cut: int) -> onnx.ModelProto:
    """Looks tokens up and multiplies what is found by the same weights, as a model with tied embeddings does."""
    generator = np.random.default_rng(0)
    weights = generator.integers(0, 256, (WORDS, WHOLE // BLOCK, BLOCK // 2), np.uint8)
    scales = generator.uniform(0.01, 0.1, (WORDS, WHOLE // BLOCK)).astype(np.float32)
    sizes = {"bits": 4, "block_size": BLOCK}
    microsoft = {"domain": "com.microsoft"}

    def constant(name: str, *values: int) -> onnx.NodeProto:
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(values, np.int64)))

    nodes = [
        constant("shape", WORDS, WHOLE // 2),
        constant("first", 0),
        constant("last", cut),
        constant("axis", -1),
        helper.make_node("Reshape", ["w", "shape"], ["table"]),
        helper.make_node(
            "GatherBlockQuantized",
            ["table", "ids", "s"],
            ["rows"],
            "rows",
            quantize_axis=1,
            gather_axis=0,
            **sizes,
            **microsoft,
        ),
        helper.make_node("Slice", ["rows", "first", "last", "axis"], ["embedded"]),
        helper.make_node("Slice", ["embedded", "first", "features", "axis"], ["features_only"]),
        helper.make_node(
            "MatMulNBits", ["features_only", "w", "s"], ["logits"], "head", K=FEATURES, N=WORDS, **sizes, **microsoft
        ),
    ]
    nodes.insert(0, constant("features", FEATURES))
    graph = helper.make_graph(
        nodes,
        "tied",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, None])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, None, WORDS])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(scales, "s")],
    )
    opsets = [
        helper.make_opsetid(name, version) for name, version in (("", 21), ("com.microsoft", 1), ("ai.edge_rag", 1))
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(session: onnxruntime.InferenceSession) -> NDArray[np.float32]:
    logits: NDArray[np.float32] = session.run(None, {"ids": np.arange(WORDS, dtype=np.int64)[None]})[0]
    return logits


@pytest.mark.parametrize(("cut", "look_up"), [(FEATURES, "QuantizedRows"), (WHOLE, "GatherBlockQuantized")])
def test_a_look_up_shares_the_products_matrix_where_only_its_features_are_read(
    tmp_path: Path, cut: int, look_up: str
) -> None:
    model = tied(cut)
    onnx.save(model, tmp_path / "original.onnx")
    with WeightsFile(tmp_path / "lowered.onnx.data") as file:
        lower_weights(model, StoredTensors(model.graph, tmp_path), file)
    onnx.save(model, tmp_path / "lowered.onnx")
    kinds = [node.op_type for node in model.graph.node]
    assert look_up in kinds
    assert "QuantizedMatMul" in kinds
    assert sum(tensor.name.endswith(".packed") for tensor in model.graph.initializer) == 1
    found = run(open_session(tmp_path / "lowered.onnx", ops_library()))
    expected = run(open_session(tmp_path / "original.onnx"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.02 * np.abs(expected).max())


def with_float_table(off_by_steps: float) -> onnx.ModelProto:
    """A model whose embeddings are in float32 and whose head is their 8-bit form, with one weight some steps off."""
    table = np.random.default_rng(5).normal(size=(WORDS, FEATURES)).astype(np.float32)
    matrix = quantize(np.ascontiguousarray(table.T), 8, BLOCK)
    table[3, 5] = dequantize(matrix)[5, 3] + off_by_steps * matrix.scales[5 // BLOCK, 3]
    padded = np.full((matrix.form.blocks * BLOCK, WORDS), 128, np.uint8)
    padded[:FEATURES] = matrix.values
    form = {"K": FEATURES, "N": WORDS, "bits": 8, "block_size": BLOCK}
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"], axis=0),
        helper.make_node("MatMulNBits", ["x", "w", "s"], ["logits"], domain="com.microsoft", **form),
    ]
    graph = helper.make_graph(
        nodes,
        "tied",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, None])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, None, WORDS])],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(np.ascontiguousarray(padded.T).reshape(WORDS, -1, BLOCK), "w"),
            numpy_helper.from_array(np.ascontiguousarray(matrix.scales.T).reshape(-1), "s"),
        ],
    )
    opsets = [helper.make_opsetid(name, version) for name, version in (("", 21), ("com.microsoft", 1))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(("off_by_steps", "look_up"), [(1.000007, "QuantizedRows"), (1.5, "Gather")])
def test_embeddings_in_float32_share_the_matrix_that_was_rounded_from_them(
    tmp_path: Path, off_by_steps: float, look_up: str
) -> None:
    model = with_float_table(off_by_steps)
    onnx.save(model, tmp_path / "original.onnx")
    with WeightsFile(tmp_path / "lowered.onnx.data") as file:
        lower_weights(model, StoredTensors(model.graph, tmp_path), file)
    assert look_up in [node.op_type for node in model.graph.node]
