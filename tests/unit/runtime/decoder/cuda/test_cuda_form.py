"""The CUDA form of a model: a graph of ONNX Runtime's own operators that computes what the paged form computes."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from edge_rag.errors import ModelError, ModelFolderInvalid, ModelNotLowerable
from edge_rag.runtime.decoder.cuda.folder import read_cuda_form, write_cuda_form
from edge_rag.runtime.decoder.cuda.kv_scales import KvScales, read_scales, scales_of
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.lowering.verification import teacher_forced_logits
from edge_rag.runtime.model_folder.graph_check import check_graph
from edge_rag.runtime.session.sessions import open_session
from tests.support.accelerators.cuda import cuda_copy
from tests.support.accelerators.cuda_reference import CudaReference
from tests.synthetic.tiny_model import FAMILIES, FIXTURES, QUANTIZED, Logits, TokenIds, position_errors, reference

SMALL = Path(__file__).parents[4] / "fixtures" / "quoter"


def text(name: str) -> TokenIds:
    return reference(next(family for family in FAMILIES if name.startswith(family))).token_ids


def divergence(found: Logits, expected: Logits) -> float:
    one, other = (rows - rows.max(axis=1, keepdims=True) for rows in (expected, found))
    one, other = (rows - np.log(np.exp(rows).sum(axis=1, keepdims=True)) for rows in (one, other))
    return float((np.exp(one) * (one - other)).sum(axis=1).mean())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = "tiny-qwen3-int8"
    return cuda_copy(FIXTURES / name, tmp_path_factory.mktemp("cuda") / name, text(name))


@pytest.mark.parametrize("name", [*FAMILIES, *QUANTIZED])
def test_it_computes_the_logits_of_the_paged_form(name: str, tmp_path: Path) -> None:
    token_ids = text(name)
    folder = cuda_copy(FIXTURES / name, tmp_path / name, token_ids)
    expected = teacher_forced_logits(PagedDecoder.open(folder, 4), token_ids, 60)
    found = teacher_forced_logits(CudaReference(folder, 4), token_ids, 60)
    # INT8 with a scale a channel rounds otherwise than with one a token: a few close decisions fall otherwise, too.
    assert position_errors(found, expected).max() < 0.06
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.95


def test_the_default_model_chooses_the_same_tokens_but_for_close_decisions(tmp_path: Path) -> None:
    with np.load(FIXTURES / "quoter.npz") as stored:
        token_ids = stored["token_ids"]
    folder = cuda_copy(SMALL, tmp_path / "quoter", token_ids[:384])
    # The rest of the text is not what the scales are from.
    expected = teacher_forced_logits(PagedDecoder.open(folder, 16), token_ids, 400)
    found = teacher_forced_logits(CudaReference(folder, 16), token_ids, 400)
    assert divergence(found, expected) < 0.005
    assert position_errors(found, expected).mean() < 0.04
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.94


def test_it_consists_of_operators_of_onnx_runtime_only(folder: Path) -> None:
    model = onnx.load(folder / "cuda.onnx", load_external_data=False)
    assert {opset.domain for opset in model.opset_import} == {"", "com.microsoft"}
    assert {node.domain for node in model.graph.node} == {"", "com.microsoft"}
    kinds = Counter(node.op_type for node in model.graph.node)
    assert kinds["PagedAttention"] == read_geometry(folder).layers
    assert kinds["GatherBlockQuantized"] == 1
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    check_graph((folder / "cuda.onnx").read_bytes(), sizes)


def test_onnx_finds_the_graph_well_formed(folder: Path) -> None:
    model = onnx.load(folder / "cuda.onnx")
    for node in model.graph.node:
        if node.op_type == "SimplifiedLayerNormalization":
            node.domain = "com.microsoft"  # an operator of ONNX Runtime that it keeps among those of ONNX
    onnx.checker.check_model(model, full_check=True)


def test_onnx_runtime_takes_the_graph_and_lacks_only_the_operator_on_processor_cores(folder: Path) -> None:
    # Its types and shapes hold. What fails comes after: nodes that the cores do not have in float16 are given float32,
    # and this one has no form for that either.
    with pytest.raises(ModelError, match=r"InsertedPrecisionFreeCast.* of operator \(PagedAttention\)"):
        open_session(folder / "cuda.onnx")


def test_a_form_made_from_another_paged_form_is_refused(tmp_path: Path) -> None:
    copy = cuda_copy(FIXTURES / "tiny-qwen2", tmp_path / "model", text("tiny-qwen2"))
    assert read_cuda_form(copy) == read_geometry(copy)
    description = json.loads((copy / "paged.json").read_text())
    (copy / "paged.json").write_text(json.dumps(description | {"max_context": 100}))
    with pytest.raises(ModelFolderInvalid, match=r"made from another paged\.json"):
        read_cuda_form(copy)


def test_scales_outlive_their_file(folder: Path) -> None:
    geometry = read_geometry(folder)
    scales = read_scales(folder / "kv_scales.json", geometry)
    stored = onnx.load(folder / "cuda.onnx")
    (kept,) = (tensor for tensor in stored.graph.initializer if tensor.name == "edge_rag.1.value_scale")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(kept), scales.values[1][:, None])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"qmax": 0}, "qmax"),
        ({"qmax": "128"}, "qmax"),
        ({"scales": None}, "scales is missing"),
        ({"scales": {"k_scales": [[1.0]], "v_scales": [[1.0]]}}, "shape"),
        ({"scales": {"k_scales": "many"}}, "not a list of numbers"),
    ],
)
def test_a_scale_file_of_another_model_is_refused(
    folder: Path, tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    path = tmp_path / "scales.json"
    path.write_text(json.dumps(json.loads((folder / "kv_scales.json").read_text()) | change))
    with pytest.raises(ModelFolderInvalid, match=problem):
        read_scales(path, read_geometry(folder))


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_is_a_finite_number_above_0(folder: Path, tmp_path: Path, wrong: float) -> None:
    content = json.loads((folder / "kv_scales.json").read_text())
    content["scales"]["k_scales"][1][7] = wrong
    path = tmp_path / "scales.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ModelFolderInvalid, match="finite number above 0"):
        read_scales(path, read_geometry(folder))


def test_a_file_with_another_divisor_has_the_same_range(folder: Path, tmp_path: Path) -> None:
    content = json.loads((folder / "kv_scales.json").read_text())
    path = tmp_path / "scales.json"
    path.write_text(json.dumps(content | {"qmax": 64.0}))
    geometry = read_geometry(folder)
    halved, usual = read_scales(path, geometry), read_scales(folder / "kv_scales.json", geometry)
    np.testing.assert_array_equal(halved.keys, usual.keys / 2)


def test_a_channel_that_is_always_0_has_a_scale() -> None:
    nothing = np.zeros((1, 1, 16), np.float32)
    assert (scales_of(nothing, nothing, 1.0).keys > 0).all()


def test_a_model_whose_heads_the_provider_cannot_take_is_refused(tmp_path: Path) -> None:
    copy = cuda_copy(FIXTURES / "tiny-qwen2", tmp_path / "model", text("tiny-qwen2"))
    geometry = read_geometry(copy)
    description = json.loads((copy / "paged.json").read_text())
    (copy / "paged.json").write_text(json.dumps(description | {"head_size": 72}))
    shape = (geometry.layers, geometry.kv_heads, 72)
    scales = KvScales(np.ones(shape, np.float32), np.ones(shape, np.float32))
    with pytest.raises(ModelNotLowerable, match="heads of 72"):
        write_cuda_form(copy, copy, scales, {})
    assert not (copy / "cuda.onnx.data.partial").exists()
