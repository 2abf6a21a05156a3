"""Adding language models from Hugging Face folders, with every process that it starts; without torch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_rag.errors import ModelError, ModelNotAdded
from edge_rag.model_store.add import add
from edge_rag.model_store.directory import StoreDirectory
from edge_rag.model_store.source import AddRequest, LocalFolder, ModelPrecision, NoProgress
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder
from tests.synthetic.tiny_checkpoint import write_checkpoint
from tests.synthetic.tiny_gguf import tiny_model
from tests.unit.model_store.adding import Interrupted, calm, hard, left_in


def request(folder: Path, precision: ModelPrecision | None = None, *, accept_loss: bool = False) -> AddRequest:
    return AddRequest(LocalFolder(folder), "tiny", precision, None, accept_loss=accept_loss)


class Lines(NoProgress):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def detail(self, line: str) -> None:
        self.lines.append(line)


def test_the_smallest_form_that_passes_is_added_with_the_table_of_those_tried(
    store: StoreDirectory, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "Tiny", "llama", calm(tiny_model("llama")), "BF16")
    progress = Lines()
    manifest = add(store, request(folder), progress)
    assert verify_model_folder(store.folder("tiny"), ModelRole.GENERATOR) == manifest
    assert set(manifest.files) == {
        "paged.onnx", "paged.onnx.data", "paged.json", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    tried = manifest.parameters["forms_tried"]
    assert isinstance(tried, list)
    forms = [each for each in tried if isinstance(each, dict)]
    assert forms[0]["form"] == "4 bits"
    assert [each["good"] for each in forms] == [False] * (len(forms) - 1) + [True]
    bits = [each["bits_per_weight"] for each in forms]
    assert bits == sorted(bits, key=float)  # type: ignore[arg-type]
    assert manifest.parameters["agreement_with_original"] == forms[-1]
    assert manifest.licence == "apache-2.0"
    assert any(line.startswith("fitting layer 1 of 7") for line in progress.lines)
    assert left_in(store) == [".lock", "tiny"]


def test_nothing_below_the_gate_is_added_unless_the_loss_is_accepted(store: StoreDirectory, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "Tiny", "llama", hard(tiny_model("llama")))
    with pytest.raises(ModelNotAdded, match=r"(?s)--accept-loss.*4 bits +\d\.\d\d +\d\.\d{4} .*failed"):
        add(store, request(folder, ModelPrecision.INT4), NoProgress())
    assert left_in(store) == [".lock"]
    manifest = add(store, request(folder, ModelPrecision.INT4, accept_loss=True), NoProgress())
    agreement = manifest.parameters["agreement_with_original"]
    assert isinstance(agreement, dict)
    assert agreement["good"] is False


def test_a_damaged_tensor_is_named_and_nothing_is_left(store: StoreDirectory, tmp_path: Path) -> None:
    model = tiny_model("qwen3")
    broken = {**model.tensors, "blk.2.ffn_up.weight": np.full_like(model.tensors["blk.2.ffn_up.weight"], np.nan)}
    folder = write_checkpoint(tmp_path / "Tiny", "qwen3", replace(model, tensors=broken))
    with pytest.raises(ModelError, match=r"model\.layers\.2\.mlp\.up_proj\.weight has values that are not finite"):
        add(store, request(folder), NoProgress())
    assert left_in(store) == [".lock"]


@pytest.mark.parametrize("line", ["balancing keys", "fitting layer 2", "writing 4 bits"])
def test_an_interruption_leaves_the_store_as_it_was(line: str, store: StoreDirectory, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "Tiny", "llama", tiny_model("llama"))
    with pytest.raises(KeyboardInterrupt):
        add(store, request(folder), Interrupted(line))
    assert left_in(store) == [".lock"]


def test_a_language_model_in_float32_is_refused(store: StoreDirectory, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "Tiny", "llama", tiny_model("llama"))
    with pytest.raises(ModelNotAdded, match="int4 or int8, not fp32"):
        add(store, request(folder, ModelPrecision.FP32), NoProgress())
