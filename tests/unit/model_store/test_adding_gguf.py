"""Adding GGUF files, with every process that adding starts; without torch."""

from dataclasses import replace
from pathlib import Path

import pytest

from edge_rag.errors import ModelError, ModelNotAdded
from edge_rag.model_store.add import add
from edge_rag.model_store.directory import StoreDirectory
from edge_rag.model_store.source import AddRequest, GgufSource, ModelPrecision, NoProgress
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder
from tests.synthetic.tiny_gguf import TinyModel, tiny_model
from tests.unit.model_store.adding import calm, hard, left_in


def request(model: TinyModel, folder: Path, *, accept_loss: bool = False) -> AddRequest:
    source = GgufSource(model.write(folder / "Tiny.gguf"))
    return AddRequest(source, "tiny", None, None, accept_loss=accept_loss)


def test_a_gguf_file_becomes_a_verified_folder_that_agrees_with_its_weights(
    store: StoreDirectory, tmp_path: Path
) -> None:
    manifest = add(store, request(calm(tiny_model("llama")), tmp_path), NoProgress())
    assert verify_model_folder(store.folder("tiny"), ModelRole.GENERATOR) == manifest
    assert set(manifest.files) == {
        "paged.onnx", "paged.onnx.data", "paged.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
    }  # fmt: skip
    assert manifest.licence == "apache-2.0"
    assert manifest.source.startswith("Tiny.gguf, SHA-256 ")
    agreement = manifest.parameters["agreement_with_original"]
    assert isinstance(agreement, dict)
    assert agreement["good"] is True
    assert left_in(store) == [".lock", "tiny"]


def test_a_model_that_loses_too_much_is_refused_with_the_figures_unless_the_loss_is_accepted(
    store: StoreDirectory, tmp_path: Path
) -> None:
    lossy = hard(tiny_model("llama"))
    with pytest.raises(ModelNotAdded, match=r"nats on average \(at most 0\.02\).*--accept-loss"):
        add(store, request(lossy, tmp_path), NoProgress())
    assert left_in(store) == [".lock"]
    agreement = add(store, request(lossy, tmp_path, accept_loss=True), NoProgress()).parameters[
        "agreement_with_original"
    ]
    assert isinstance(agreement, dict)
    assert agreement["good"] is False


BOMB = "{% for a in range(999999999) %}{% for b in range(999999999) %}x{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("tokenizer.chat_template", "", "chat_template"),
        ("tokenizer.chat_template", BOMB, "template"),
        ("tokenizer.chat_template", "{{ messages[0].content * 10 ** 9 }}", "template"),
        ("tokenizer.ggml.pre", "of-another-planet", "of-another-planet"),
        (".rope.scaling.type", "longrope", "rope.scaling"),
    ],
)
def test_an_unusable_file_is_refused_with_the_field_and_leaves_nothing(
    key: str, value: str, named: str, store: StoreDirectory, tmp_path: Path
) -> None:
    model = tiny_model("llama")
    broken = replace(model, metadata={**model.metadata, key: value})
    with pytest.raises(ModelError, match=named):
        add(store, request(broken, tmp_path), NoProgress())
    assert left_in(store) == [".lock"]


def test_a_file_that_is_cut_off_is_refused(store: StoreDirectory, tmp_path: Path) -> None:
    wanted = request(tiny_model("llama"), tmp_path)
    path = tmp_path / "Tiny.gguf"
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(ModelNotAdded, match=r"the tensor .* ends at"):
        add(store, wanted, NoProgress())


def test_a_precision_is_for_folders(store: StoreDirectory, tmp_path: Path) -> None:
    wanted = replace(request(tiny_model("llama"), tmp_path), precision=ModelPrecision.INT4)
    with pytest.raises(ModelNotAdded, match="--precision"):
        add(store, wanted, NoProgress())
