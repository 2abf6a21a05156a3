"""Checkpoints of every family compute what their configuration says, and damaged ones are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_rag.errors import ModelFolderInvalid, ModelNotLowerable
from edge_rag.model_store.checkpoint import ARCHITECTURES
from edge_rag.runtime.checkpoint.architectures import DECODERS, describe_checkpoint
from edge_rag.runtime.checkpoint.safetensors import Tensors, read_header
from edge_rag.runtime.checkpoint.weights import CheckpointWeights
from edge_rag.runtime.gguf.architectures import describe_decoder
from edge_rag.runtime.gguf.file import GgufFile
from edge_rag.runtime.gguf.weights import GgufWeights
from edge_rag.runtime.lowering.reference_decoder import reference_logits
from edge_rag.runtime.model_folder.manifest import ModelRole
from tests.synthetic.tiny_checkpoint import family, settings, write_checkpoint, write_safetensors
from tests.synthetic.tiny_gguf import MAKERS, VOCABULARY, tiny_model

TEXT = np.random.default_rng(3).integers(3, len(VOCABULARY), 90)


def made(name: str, folder: Path) -> Path:
    return write_checkpoint(folder / "tiny", name, tiny_model(name))


@pytest.mark.parametrize("name", MAKERS)
def test_a_folder_computes_the_same_as_the_gguf_file_of_its_weights(name: str, tmp_path: Path) -> None:
    folder = made(name, tmp_path)
    description = describe_checkpoint(folder, 4096)
    (found,) = reference_logits(description, CheckpointWeights(folder, description), [TEXT])
    file = GgufFile(tiny_model(name).write(tmp_path / "tiny.gguf"))
    same = describe_decoder(file, 4096)
    (expected,) = reference_logits(same, GgufWeights(file, same), [TEXT])
    np.testing.assert_allclose(found, expected, atol=1e-4 * float(np.abs(expected).max()))
    assert description.geometry == same.geometry


@pytest.mark.convert
@pytest.mark.parametrize("name", MAKERS)
def test_every_position_agrees_with_transformers(name: str, tmp_path: Path) -> None:
    import torch
    import transformers

    folder = made(name, tmp_path)
    original = getattr(transformers, f"{family(name)}ForCausalLM").from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        expected = original(torch.from_numpy(TEXT)[None]).logits[0].numpy()
    description = describe_checkpoint(folder, 4096)
    (found,) = reference_logits(description, CheckpointWeights(folder, description), [TEXT])
    np.testing.assert_allclose(found, expected, atol=3e-4 * float(np.abs(expected).max()))


def test_every_class_that_is_taken_has_a_graph() -> None:
    taken = {name for name, (role, _) in ARCHITECTURES.items() if role is ModelRole.GENERATOR}
    assert {f"{family(name)}ForCausalLM" for name in MAKERS} < taken == DECODERS


def test_bfloat16_and_shards_are_read(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    write_safetensors(tmp_path / names[0], {"a": values}, "BF16")
    write_safetensors(tmp_path / names[1], {"b": values[0]})
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": dict(zip("ab", names, strict=True))})
    )
    tensors = Tensors(tmp_path)
    np.testing.assert_allclose(tensors.rows("a"), values, rtol=1 / 128)
    np.testing.assert_array_equal(tensors.rows("a", np.array([4, 1])), tensors.rows("a")[[4, 1]])
    np.testing.assert_array_equal(tensors.vector("b"), values[0])
    with pytest.raises(ModelFolderInvalid, match="c is missing"):
        tensors.vector("c")


def header(**changes: object) -> dict[str, object]:
    return {"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16], **changes}}


@pytest.mark.parametrize(
    ("described", "named"),
    [
        (header(data_offsets=[0, 1 << 60]), "outside the file"),
        (header(data_offsets=[-4, 12]), "outside the file"),
        (header(data_offsets=[12, 4]), "outside the file"),
        (header(data_offsets=[0]), "no position"),
        (header(data_offsets=[0, 16.0]), "no position"),
        (header(shape=[2, 3]), "its shape takes 24"),
        (header(shape=[1 << 40, 1 << 40]), "a shape beyond"),
        (header(shape=[-1, 2]), "a shape beyond"),
        (header(shape=[True, 4]), "a shape beyond"),
        (header(shape=[1] * 9), "no shape"),
        (header(shape="2"), "no shape"),
        (header() | {"b": {"dtype": "F32", "shape": [1], "data_offsets": [12, 16]}}, "'b' overlaps 'a'"),
        ({"a": 7}, "no position"),
        ({"n" * 600: header()["a"]}, "a name of 600 characters"),
    ],
)
def test_a_hostile_header_is_refused_with_the_tensor(described: dict[str, object], named: str, tmp_path: Path) -> None:
    content = json.dumps(described).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(content).to_bytes(8, "little") + content + bytes(16))
    with pytest.raises(ModelFolderInvalid, match=named):
        read_header(path)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 7, b"\xff" * 8 + b"{}", b"\x09\0\0\0\0\0\0\0{}", b"\x02\0\0\0\0\0\0\0[]"]
)
def test_what_is_no_safetensors_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelFolderInvalid, match="not a safetensors file"):
        Tensors(tmp_path)


def test_values_that_are_not_finite_are_refused_with_the_tensor(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"a": np.array([[1, np.inf]], np.float32)})
    with pytest.raises(ModelFolderInvalid, match="the tensor a has values that are not finite"):
        Tensors(tmp_path).rows("a")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_attention_heads": "4"}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "num_attention_heads is 4"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'"),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor is missing"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"eos_token_id": -1}, "eos_token_id"),
        ({"eos_token_id": None}, "eos_token_id"),
        ({"vocab_size": 7}, "model.embed_tokens"),
        ({"head_dim": 64}, "self_attn"),
    ],
)
def test_an_unusable_value_is_refused_by_its_name(changes: dict[str, Any], named: str, tmp_path: Path) -> None:
    folder = made("llama", tmp_path)
    config = settings("llama", tiny_model("llama")) | {"architectures": ["LlamaForCausalLM"]} | changes
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").unlink()
    with pytest.raises((ModelFolderInvalid, ModelNotLowerable), match=named):
        CheckpointWeights(folder, describe_checkpoint(folder, 4096))
