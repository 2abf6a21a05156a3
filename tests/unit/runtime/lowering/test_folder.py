"""A model is lowered once, beside its original, and again when the original changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx
import pytest

from edge_rag.errors import ModelFolderInvalid, ModelNotLowerable
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.folder import lower_folder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder
from tests.synthetic.tiny_model import FIXTURES

LOWERED = ("paged.json", "paged.onnx", "paged.onnx.data")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = Path(shutil.copytree(FIXTURES / "tiny-llama", tmp_path / "model"))
    for name in LOWERED:
        (copy / name).unlink()
    return copy


def set_config(folder: Path, section: str | None, name: str, value: object) -> None:
    path = folder / "genai_config.json"
    config = json.loads(path.read_text())
    target = config["model"] if section is None else config["model"][section]
    target[name] = value
    path.write_text(json.dumps(config))


def test_lowering_a_folder_adds_the_paged_graph_and_its_description(folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    geometry = lower_folder(folder)
    assert {path.name for path in folder.iterdir()} == before | set(LOWERED)
    assert geometry == read_geometry(folder)
    for name in LOWERED:
        assert (folder / name).read_bytes() == (FIXTURES / "tiny-llama" / name).read_bytes()


def test_a_folder_that_is_lowered_already_is_left_alone(folder: Path) -> None:
    geometry = lower_folder(folder)
    (folder / "paged.onnx").write_bytes(b"untouched")
    assert lower_folder(folder) == geometry
    assert (folder / "paged.onnx").read_bytes() == b"untouched"


def test_a_changed_original_is_lowered_again(folder: Path) -> None:
    lower_folder(folder)
    set_config(folder, None, "context_length", 100)
    assert lower_folder(folder).max_context == read_geometry(folder).max_context == 100


def test_several_end_tokens_are_kept(folder: Path) -> None:
    set_config(folder, None, "eos_token_id", [2, 0])
    assert lower_folder(folder).end_tokens == {0, 2}


@pytest.mark.parametrize("name", ["../model.onnx", "/etc/passwd", "..", "", None, "sub/model.onnx"])
def test_a_graph_outside_the_folder_is_refused(folder: Path, name: object) -> None:
    set_config(folder, "decoder", "filename", name)
    with pytest.raises(ModelFolderInvalid, match="filename"):
        lower_folder(folder)


def test_a_window_without_layers_in_the_graph_bounds_the_context(folder: Path) -> None:
    set_config(folder, "decoder", "sliding_window", {"window_size": 128, "layers": []})
    assert lower_folder(folder).max_context == 128


@pytest.mark.parametrize(
    "window", [128, {}, {"window_size": 0}, {"window_size": "128"}, {"window_size": 128, "layers": ["0"]}]
)
def test_a_sliding_window_of_another_form_is_refused(folder: Path, window: object) -> None:
    set_config(folder, "decoder", "sliding_window", window)
    with pytest.raises(ModelFolderInvalid, match="sliding_window"):
        lower_folder(folder)


def test_a_window_for_a_layer_that_has_none_in_the_graph_is_refused(folder: Path) -> None:
    set_config(folder, "decoder", "sliding_window", {"window_size": 128, "layers": [1]})
    with pytest.raises(ModelNotLowerable, match=r"layers \[1\] see 128 tokens"):
        lower_folder(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("genai_config.json", b"{"),
        ("genai_config.json", b"[]"),
        ("genai_config.json", b"{}"),
        ("model.onnx", b"garbage"),
    ],
)
def test_a_damaged_file_is_refused_by_name_and_nothing_is_written(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(ModelFolderInvalid, match=name.replace(".", r"\.")):
        lower_folder(folder)
    assert not any((folder / lowered).exists() for lowered in LOWERED)


def test_a_missing_graph_is_refused(folder: Path) -> None:
    (folder / "model.onnx").unlink()
    with pytest.raises(ModelFolderInvalid, match=r"model\.onnx is missing"):
        lower_folder(folder)


def test_the_paged_form_needs_nothing_of_the_original(folder: Path) -> None:
    geometry = lower_folder(folder)
    for name in ("model.onnx", "model.onnx.data", "genai_config.json"):
        (folder / name).unlink()
    assert lower_folder(folder) == geometry
    assert PagedDecoder.open(folder, pages=1).vocabulary_size == geometry.vocabulary_size


def write_as_format_1(folder: Path) -> None:
    description = json.loads((folder / "paged.json").read_text())
    (folder / "paged.json").write_text(json.dumps(description | {"format": 1}))


def test_a_paged_form_of_an_older_format_is_made_again(folder: Path) -> None:
    geometry = lower_folder(folder)
    write_as_format_1(folder)
    (folder / "paged.onnx").write_bytes(b"of the older format")
    assert lower_folder(folder) == geometry
    for name in LOWERED:
        assert (folder / name).read_bytes() == (FIXTURES / "tiny-llama" / name).read_bytes()


def test_a_paged_form_of_an_older_format_without_its_original_is_refused(folder: Path) -> None:
    lower_folder(folder)
    write_as_format_1(folder)
    for name in ("model.onnx", "model.onnx.data", "genai_config.json"):
        (folder / name).unlink()
    with pytest.raises(ModelFolderInvalid, match="format 1, 2 is read: lower the model again"):
        lower_folder(folder)
    with pytest.raises(ModelFolderInvalid, match="format 1, 2 is read: lower the model again"):
        PagedDecoder.open(folder, pages=1)


def test_other_weights_are_lowered_again(folder: Path) -> None:
    lower_folder(folder)
    weights = folder / "model.onnx.data"
    weights.write_bytes(weights.read_bytes()[::-1])
    lower_folder(folder)
    assert (folder / "paged.onnx.data").read_bytes() != (FIXTURES / "tiny-llama" / "paged.onnx.data").read_bytes()


def test_truncated_weights_are_refused_and_leave_the_present_form(folder: Path) -> None:
    lower_folder(folder)
    kept = {name: (folder / name).read_bytes() for name in LOWERED}
    weights = folder / "model.onnx.data"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(ModelFolderInvalid, match=r"model\.onnx\.data is truncated"):
        lower_folder(folder)
    assert {path.name for path in folder.glob("paged*")} == set(LOWERED)
    assert {name: (folder / name).read_bytes() for name in LOWERED} == kept


@pytest.mark.parametrize("location", ["../model.onnx.data", "/etc/passwd", "", ".."])
def test_weights_outside_the_folder_are_refused(folder: Path, location: str) -> None:
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelFolderInvalid, match="outside the folder"):
        lower_folder(folder)


def test_weights_of_another_size_than_the_graph_says_are_refused(tmp_path: Path) -> None:
    source = FIXTURES / "tiny-qwen2-int4"
    folder = Path(shutil.copytree(source, tmp_path / "model", ignore=shutil.ignore_patterns("paged.*")))
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    node = next(node for node in model.graph.node if node.op_type == "MatMulNBits")
    for attribute in node.attribute:
        if attribute.name == "N":
            attribute.i += 16
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelFolderInvalid, match="sizes of its weights do not match"):
        lower_folder(folder)
    assert not any((folder / name).exists() for name in LOWERED)


def test_the_shipped_quoting_model_is_whole_and_holds_the_paged_form_alone() -> None:
    quoter = Path(__file__).parents[3] / "fixtures" / "quoter"
    verify_model_folder(quoter, ModelRole.GENERATOR, (*LOWERED, "tokenizer.json"))
    assert read_geometry(quoter).layers == 6
    assert not list(quoter.glob("model.*"))
