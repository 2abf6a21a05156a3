"""Quantized models over the project's own products."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.onnx_graph import attributes
from tests.synthetic.tiny_model import FIXTURES, QUANTIZED, Logits, Sequence, position_errors, reference, run

LAYERS = 2


@pytest.fixture(params=QUANTIZED)
def name(request: pytest.FixtureRequest) -> str:
    kept: str = request.param
    return kept


def token_ids(name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return reference(name.rpartition("-")[0]).token_ids


def paged_logits(folder: Path, name: str) -> Logits:
    decoder = PagedDecoder.open(folder, pages=4)
    return run(decoder, [(Sequence(token_ids(name), np.arange(4, dtype=np.int32)), token_ids(name).size)])[0]


def paged_graph(folder: Path) -> onnx.GraphProto:
    return onnx.load(folder / "paged.onnx", load_external_data=False).graph


def test_a_quantized_model_stays_near_hugging_face(name: str) -> None:
    found = position_errors(paged_logits(FIXTURES / name, name), reference(name.rpartition("-")[0]).logits)
    assert found.mean() < (0.04 if name.endswith("int8") else 0.5)


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
