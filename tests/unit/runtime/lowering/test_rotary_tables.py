"""Layers without positions and models with two pairs of rotary tables, on graphs changed by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge_rag.errors import ModelNotLowerable
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.folder import lower_folder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.lowering.verification import OriginalDecoder, teacher_forced_logits
from tests.synthetic.tiny_model import FIXTURES, Logits, TokenIds

COS, SIN = 7, 8
SHORT = 64


def changed(tmp_path: Path, change: Callable[[onnx.ModelProto], object]) -> Path:
    source = FIXTURES / "tiny-llama"
    for name in ("genai_config.json", "model.onnx.data"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    model = onnx.load(source / "model.onnx", load_external_data=False)
    change(model)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    return tmp_path


def attentions(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]


def forget_positions(model: onnx.ModelProto) -> None:
    """The last layer rotates nothing."""
    node = attentions(model)[-1]
    node.input[COS] = node.input[SIN] = ""
    for attribute in node.attribute:
        if attribute.name == "do_rotary":
            attribute.i = 0


def two_pairs(model: onnx.ModelProto) -> None:
    """Texts of up to so many tokens get one pair of tables, longer ones another."""
    loaded = onnx.load(FIXTURES / "tiny-llama" / "model.onnx")
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in loaded.graph.initializer}
    names = [attentions(model)[0].input[index] for index in (COS, SIN)]
    branches = {}
    for branch, rows, factor in (("else", SHORT, 1.0), ("then", 512, 0.5)):
        nodes, outputs = [], []
        for name in names:
            table = (stored[name][:rows] * factor).astype(np.float32)
            nodes.append(helper.make_node("Constant", [], [f"{name}.{branch}"], value=numpy_helper.from_array(table)))
            outputs.append(helper.make_tensor_value_info(f"{name}.{branch}", TensorProto.FLOAT, table.shape))
        branches[f"{branch}_branch"] = helper.make_graph(nodes, branch, [], outputs)
    nodes = [
        helper.make_node("Shape", ["attention_mask"], ["mask.shape"], start=1, end=2),
        helper.make_node("Constant", [], ["short"], value=numpy_helper.from_array(np.array([SHORT], np.int64))),
        helper.make_node("Greater", ["mask.shape", "short"], ["long"]),
        helper.make_node("If", ["long"], ["chosen.cos", "chosen.sin"], **branches),
    ]
    for at, node in enumerate(nodes):
        model.graph.node.insert(at, node)
    for node in attentions(model):
        node.input[COS], node.input[SIN] = "chosen.cos", "chosen.sin"


def both(folder: Path, token_ids: TokenIds) -> tuple[Logits, Logits]:
    geometry = lower_folder(folder)
    original = OriginalDecoder.open(folder / "model.onnx", geometry.head_size).feed(token_ids)
    return teacher_forced_logits(PagedDecoder.open(folder, 4), token_ids, token_ids.size - 8), original


def close(found: Logits, expected: Logits) -> bool:
    scale = np.linalg.norm(expected - expected.mean(axis=1, keepdims=True), axis=1)
    return bool((np.linalg.norm(found - expected, axis=1) / scale).max() < 0.05)


@pytest.fixture
def token_ids() -> TokenIds:
    return np.random.default_rng(5).integers(0, 512, 60)


def test_a_layer_without_positions_is_lowered_to_what_the_original_computes(
    tmp_path: Path, token_ids: TokenIds
) -> None:
    found, expected = both(changed(tmp_path, forget_positions), token_ids)
    assert close(found, expected)
    assert not close(expected, OriginalDecoder.open(FIXTURES / "tiny-llama" / "model.onnx", 32).feed(token_ids))


def test_of_two_pairs_of_tables_the_one_for_short_texts_is_kept_and_limits_the_context(
    tmp_path: Path, token_ids: TokenIds
) -> None:
    folder = changed(tmp_path, two_pairs)
    found, expected = both(folder, token_ids)
    assert close(found, expected)
    assert read_geometry(folder).max_context == SHORT


def computed_branch(model: onnx.ModelProto) -> None:
    two_pairs(model)
    choice = next(node for node in model.graph.node if node.op_type == "If")
    for attribute in choice.attribute:
        attribute.g.node[0].op_type = "ConstantOfShape"


def uneven_branch(model: onnx.ModelProto) -> None:
    two_pairs(model)
    choice = next(node for node in model.graph.node if node.op_type == "If")
    for attribute in choice.attribute:
        value = numpy_helper.from_array(np.zeros((8, 2), np.float32))
        attribute.g.node[0].attribute[0].t.CopyFrom(value)


@pytest.mark.parametrize(
    ("change", "message"), [(computed_branch, "not one of two stored tables"), (uneven_branch, "tables of one shape")]
)
def test_tables_that_are_computed_are_refused(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None], message: str
) -> None:
    with pytest.raises(ModelNotLowerable, match=message):
        lower_folder(changed(tmp_path, change))
