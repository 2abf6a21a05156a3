"""Quantized models, lowered onto the project's own products, against the graphs of the builder they were made from."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.folder import lower_folder
from edge_rag.runtime.lowering.onnx_graph import attributes
from tests.synthetic.tiny_model import FIXTURES, QUANTIZED, Logits, Sequence, original_logits, reference, run

LAYERS = 2
Change = Callable[[onnx.GraphProto], object]


@pytest.fixture(params=QUANTIZED)
def name(request: pytest.FixtureRequest) -> str:
    kept: str = request.param
    return kept


def token_ids(name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return reference(name.rpartition("-")[0]).token_ids


def paged_logits(folder: Path, name: str) -> Logits:
    decoder = PagedDecoder.open(folder, pages=4)
    return run(decoder, [(Sequence(token_ids(name), np.arange(4, dtype=np.int32)), token_ids(name).size)])[0]


def errors(found: Logits, expected: Logits) -> Logits:
    """Relative error of each position's logits, around their mean."""
    size = np.linalg.norm(expected - expected.mean(axis=1, keepdims=True), axis=1)
    relative: Logits = np.linalg.norm(found - expected, axis=1) / size
    return relative


def paged_graph(folder: Path) -> onnx.GraphProto:
    return onnx.load(folder / "paged.onnx", load_external_data=False).graph


def changed(name: str, folder: Path, change: Change) -> Path:
    """Lowers a copy of a model whose original was changed."""
    copy = Path(shutil.copytree(FIXTURES / name, folder / "model", ignore=shutil.ignore_patterns("paged.*")))
    model = onnx.load(copy / "model.onnx", load_external_data=False)
    change(model.graph)
    (copy / "model.onnx").write_bytes(model.SerializeToString())
    lower_folder(copy)
    return copy


def products(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    return [node for node in graph.node if node.op_type == "MatMulNBits"]


def test_the_lowered_model_is_within_int8_activations_of_the_original_at_every_position(name: str) -> None:
    found = errors(paged_logits(FIXTURES / name, name), original_logits(FIXTURES / name, token_ids(name)))
    assert found.max() < 0.1
    assert found.mean() < 0.04


def test_lowering_loses_no_more_than_a_tenth_of_what_quantizing_lost(name: str) -> None:
    exact = reference(name.rpartition("-")[0]).logits
    found = errors(paged_logits(FIXTURES / name, name), exact).mean()
    lost = errors(original_logits(FIXTURES / name, token_ids(name)), exact).mean()
    assert found < 1.1 * lost + 0.002


def test_every_product_is_packed_and_gate_and_up_are_one(name: str) -> None:
    graph = paged_graph(FIXTURES / name)
    kinds = Counter(node.op_type for node in graph.node)
    assert kinds["MatMulNBits"] == kinds["Sigmoid"] == 0
    assert kinds["QuantizedMatMul"] == 4 * LAYERS + 1  # qkv, output, gate with up, down; the head
    gated = [node for node in graph.node if node.op_type == "QuantizedMatMul" and attributes(node).get("gated")]
    assert len(gated) == LAYERS


def test_weights_are_aligned_in_a_file_of_their_own(name: str) -> None:
    external = [tensor for tensor in paged_graph(FIXTURES / name).initializer if tensor.external_data]
    places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in external]
    assert {place["location"] for place in places} == {"paged.onnx.data"}
    assert all(int(place["offset"]) % 64 == 0 for place in places)


@pytest.mark.parametrize("tied", ["tiny-qwen2-int4", "tiny-qwen3-int8"])
def test_tied_embeddings_are_looked_up_in_the_heads_matrix(tied: str) -> None:
    graph = paged_graph(FIXTURES / tied)
    rows = next(node for node in graph.node if node.op_type == "QuantizedRows")
    head = [node for node in graph.node if node.op_type == "QuantizedMatMul"][-1]
    assert list(rows.input)[1:] == list(head.input)[1:]
    assert not any("embed" in tensor.name for tensor in graph.initializer)


def test_a_table_that_is_not_the_head_stays_in_float32() -> None:
    graph = paged_graph(FIXTURES / "tiny-llama-int8")
    assert "model.embed_tokens.weight" in {tensor.name for tensor in graph.initializer}


def test_equal_tables_under_two_names_are_stored_once(tmp_path: Path) -> None:
    def duplicate(graph: onnx.GraphProto) -> None:
        """What a converter does that quantizes table and head apart."""
        stored = {tensor.name: tensor for tensor in graph.initializer}
        lookup = next(node for node in graph.node if node.op_type == "GatherBlockQuantized")
        reshape = next(node for node in graph.node if lookup.input[0] in node.output)
        for node, index in ((reshape, 0), (lookup, 2)):
            copy = TensorProto.FromString(stored[node.input[index]].SerializeToString())
            copy.name += ".copy"
            graph.initializer.append(copy)
            node.input[index] = copy.name

    folder = changed("tiny-qwen2-int4", tmp_path, duplicate)
    assert (folder / "paged.onnx.data").read_bytes() == (FIXTURES / "tiny-qwen2-int4/paged.onnx.data").read_bytes()


def permute_groups(graph: onnx.GraphProto) -> None:
    """Gives every gate an order of groups, which has no packed form."""
    for node in products(graph):
        if "gate_proj" in node.name:
            rows, block = attributes(node)["K"], attributes(node)["block_size"]
            order = numpy_helper.from_array((np.arange(rows) // block).astype(np.int32), f"{node.name}.order")
            graph.initializer.append(order)
            node.input.extend(["", order.name])


def test_products_without_a_packed_form_stay_and_run(tmp_path: Path) -> None:
    name = "tiny-qwen2-int4"
    folder = changed(name, tmp_path, permute_groups)
    graph = paged_graph(folder)
    assert sum(node.op_type == "MatMulNBits" for node in graph.node) == LAYERS
    assert sum(node.op_type == "QuantizedMatMul" for node in graph.node) == 4 * LAYERS + 1
    found = errors(paged_logits(folder, name), paged_logits(FIXTURES / name, name))
    assert found.max() < 0.1


def test_a_bias_inside_a_product_is_added_after_it(tmp_path: Path) -> None:
    name = "tiny-llama-int8"
    bias = np.random.default_rng(0).standard_normal(48).astype(np.float32)

    def add_bias(graph: onnx.GraphProto) -> None:
        node = next(node for node in products(graph) if "o_proj" in node.name)
        graph.initializer.append(numpy_helper.from_array(bias, "bias"))
        node.input.extend([*[""] * (5 - len(node.input)), "bias"])

    folder = changed(name, tmp_path, add_bias)
    found = errors(paged_logits(folder, name), original_logits(folder, token_ids(name)))
    assert found.max() < 0.1
    assert errors(paged_logits(folder, name), paged_logits(FIXTURES / name, name)).mean() > 0.2


def test_zero_points_are_carried_over(tmp_path: Path) -> None:
    name = "tiny-llama-int8"

    def shift(graph: onnx.GraphProto) -> None:
        for index, node in enumerate(products(graph)):
            if index % 2:
                continue  # so that gates have some and ups have none
            blocks = -(-attributes(node)["K"] // attributes(node)["block_size"])
            points = np.random.default_rng(index).integers(124, 132, attributes(node)["N"] * blocks).astype(np.uint8)
            graph.initializer.append(numpy_helper.from_array(points, f"{node.name}.points"))
            node.input.append(f"{node.name}.points")

    folder = changed(name, tmp_path, shift)
    assert any(tensor.name.endswith(".zero_points") for tensor in paged_graph(folder).initializer)
    assert errors(paged_logits(folder, name), original_logits(folder, token_ids(name))).mean() < 0.05
    assert errors(paged_logits(folder, name), paged_logits(FIXTURES / name, name)).mean() > 0.1


def test_a_gate_that_something_else_reads_stays_apart(tmp_path: Path) -> None:
    name = "tiny-llama-int8"

    def read_gate(graph: onnx.GraphProto) -> None:
        sigmoid = next(node for node in graph.node if node.op_type == "Sigmoid")
        down = next(node for node in graph.node if "down_proj" in node.name)
        at = list(graph.node).index(down)
        graph.node.insert(at, helper.make_node("Add", [down.input[0], sigmoid.input[0]], ["both"], name="both"))
        graph.node[at + 1].input[0] = "both"

    folder = changed(name, tmp_path, read_gate)
    kinds = Counter(node.op_type for node in paged_graph(folder).node)
    assert kinds["Sigmoid"] == 1
    assert kinds["QuantizedMatMul"] == 4 * LAYERS + 2
    assert errors(paged_logits(folder, name), original_logits(folder, token_ids(name))).max() < 0.1


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the kernel does not say what is mapped")
def test_packed_weights_are_used_where_they_are_mapped(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURES / name, tmp_path / "model"))
    decoder = PagedDecoder.open(folder, pages=4)
    run(decoder, [(Sequence(token_ids(name), np.arange(4, dtype=np.int32)), 20)])
    packed = sum(
        int(np.prod(tensor.dims)) for tensor in paged_graph(folder).initializer if tensor.name.endswith(".packed")
    )
    mapped = copied = 0
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            inside = line.endswith(str(folder / "paged.onnx.data"))
        elif inside and line.startswith("Rss:"):
            mapped += 1024 * int(line.split()[1])
        elif inside and line.startswith("Anonymous:"):
            copied += int(line.split()[1])
    assert mapped >= packed
    assert copied == 0


def test_a_step_gives_a_sequence_the_same_logits_alone_and_in_company(name: str) -> None:
    decoder = PagedDecoder.open(FIXTURES / name, pages=8)
    text = token_ids(name)
    alone = run(decoder, [(Sequence(text, np.arange(4, dtype=np.int32)), 60)])[0]
    mine = Sequence(text, np.arange(4, dtype=np.int32))
    other = Sequence(text[::-1].copy(), np.arange(4, 8, dtype=np.int32))
    together = run(decoder, [(other, 33), (mine, 60)])[1]
    np.testing.assert_array_equal(together, alone)
