"""Small folders with nothing wrong about them, of each kind that can be added."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from edge_rag.runtime.checkpoint.architectures import Settings
from edge_rag.runtime.encoder.checkpoint_weights import bert_tensors
from tests.synthetic.tiny_checkpoint import write_safetensors

GENAI_CONFIG: dict[str, Any] = {
    "model": {
        "type": "llama",
        "vocab_size": 16,
        "context_length": 64,
        "bos_token_id": None,
        "eos_token_id": [2],
        "pad_token_id": 0,
        "decoder": {
            "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
            "filename": "model.onnx",
            "head_size": 16,
            "hidden_size": 32,
            "num_attention_heads": 2,
            "num_hidden_layers": 1,
            "num_key_value_heads": 1,
            "inputs": {"input_ids": "input_ids", "past_key_names": "past_key_values.%d.key"},
            "outputs": {"logits": "logits"},
        },
    },
    "search": {"max_length": 64},
}


CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def graph() -> onnx.ModelProto:
    """Adds four weights, which lie in model.data."""
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "model.data"), ("offset", "0"), ("length", "16")):
        weights.external_data.add(key=key, value=value)
    inner = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        initializer=[weights],
    )
    return helper.make_model(
        inner, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    )


def good_model(folder: Path) -> None:
    folder.mkdir()
    _graph_and_tokenizer(folder)
    write_manifest_of(folder)


def good_genai(folder: Path) -> None:
    folder.mkdir()
    _graph_and_tokenizer(folder)
    (folder / "genai_config.json").write_text(json.dumps(GENAI_CONFIG))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 2,
}


def good_checkpoint(folder: Path) -> None:
    folder.mkdir()
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    (folder / "config.json").write_text(json.dumps(LLAMA))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    (folder / "tokenizer.json").write_text("{}")


POOLING = "1_Pooling/config.json"
BERT = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 48,
    "vocab_size": 16,
    "layer_norm_eps": 1e-12,
}


def good_embedder(folder: Path) -> None:
    """A sentence-transformers folder."""
    good_checkpoint(folder)
    (folder / "1_Pooling").mkdir()
    for name, document in (
        ("config.json", BERT),
        ("sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": False}),
        ("config_sentence_transformers.json", {"prompts": {"query": "ask: "}, "similarity_fn_name": "cosine"}),
        (POOLING, {"pooling_mode": "mean", "include_prompt": True}),
        (
            "modules.json",
            [
                {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            ],
        ),
    ):
        (folder / name).write_text(json.dumps(document))
    _weights(folder, BERT)


def good_reranker(folder: Path) -> None:
    good_checkpoint(folder)
    config = BERT | {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "score"}}
    (folder / "config.json").write_text(json.dumps(config))
    _weights(folder, config)


def _weights(folder: Path, config: dict[str, Any]) -> None:
    shapes = bert_tensors(Settings("config.json", config), "id2label" in config)
    write_safetensors(folder / "model.safetensors", {name: np.zeros(shape, np.float32) for name, shape in shapes})


def good_serial(folder: Path) -> None:
    good_genai(folder)
    write_manifest_of(folder, {"form": "serial"})


def write_manifest_of(folder: Path, parameters: dict[str, Any] | None = None) -> None:
    """Writes a manifest that lists what is there, whatever it is."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "manifest.json":
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            files[path.relative_to(folder).as_posix()] = {"sha256": digest, "bytes": path.stat().st_size}
    document = {
        "format": 1,
        "name": "tiny",
        "role": "generator",
        "licence": "Apache-2.0",
        "source": "made here",
        "made_by": "a test",
        "parameters": parameters or {},
        "files": files,
    }
    (folder / "manifest.json").write_text(json.dumps(document))


def _graph_and_tokenizer(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(graph().SerializeToString())
    (folder / "model.data").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (folder / "tokenizer.json").write_text('{"model": {}}')
