"""Attacks through checkpoints of encoders: sentence-transformers' files say which code runs, and where it lies."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fixtures.makers.tiny_encoder import MODERN_BERT, write_encoder
from tests.unit.model_store.attacks.attack import Attack, Build, Canary, after, replace
from tests.unit.model_store.attacks.valid_folders import POOLING, good_embedder, good_reranker

_PREPENDS = {"type": "Prepend", "prepend": "x" * 1000}


def attacks_on_encoders() -> Iterator[Attack]:
    yield from _modules()
    yield from _configurations()
    yield from _networks()
    yield from _files()


def _modules() -> Iterator[Attack]:
    for kind in ("modeling_evil.Evil", "os.system", "sentence_transformers.models.Dense", "torch.load", ""):
        yield Attack(f"a module of the type {kind!r}", _module(1, type=kind), "is not supported")
    for place in ("../1_Pooling", "/etc", "1_Pooling/../../x", "..", "C:1_Pooling", "a\\b"):
        yield Attack(f"a module in {place!r}", _module(1, path=place), "inside the folder")
    yield Attack("a module in a folder that is not there", _module(1, path="9_Pooling"), "holds no configuration")
    yield Attack("a network in a folder of its own", _module(0, path="0_Transformer"), "0_Transformer")
    yield Attack("a module with keywords", _module(0, kwargs={"trust_remote_code": True}), "not a module that is known")
    yield Attack("a module without a type", _module(1, type=None), "not a module that is known")
    for name, content in (
        ("not JSON", b"["),
        ("an object", b"{}"),
        ("a list of texts", b'["Transformer"]'),
        ("nested without end", b"[" * 60_000),
        ("huge", b" " * (1 << 17)),
        ("a key twice", b'[{"idx": 0, "idx": 0}]'),
    ):
        yield Attack(f"modules.json: {name}", replace(good_embedder, "modules.json", content), "modules.json")


def _configurations() -> Iterator[Attack]:
    for key in ("model_args", "tokenizer_args", "config_args", "processor_kwargs", "custom_code"):
        yield Attack(
            f"sentence_bert_config.json with {key}",
            _json(good_embedder, "sentence_bert_config.json", **{key: {"trust_remote_code": True}}),
            key,
        )
    prompts = "config_sentence_transformers.json"
    yield Attack("prompts that are no texts", _json(good_embedder, prompts, prompts={"query": 7}), "prompts")
    yield Attack("a prompt of absurd length", _json(good_embedder, prompts, prompts={"query": "x" * 9999}), "prompts")
    yield Attack("a default prompt", _json(good_embedder, prompts, default_prompt_name="x"), "default_prompt_name")
    yield Attack("another similarity", _json(good_embedder, prompts, similarity_fn_name="euclidean"), "euclidean")
    yield Attack("code beside the prompts", _json(good_embedder, prompts, auto_model="modeling_evil"), "auto_model")
    for mode in ("max", "lasttoken", ["mean"], None, "../mean"):
        yield Attack(f"pooling by {mode!r}", _json(good_embedder, POOLING, pooling_mode=mode), "not supported")
    yield Attack("pooling not JSON", replace(good_embedder, POOLING, b"{]"), "config.json")


_TENSORS: dict[tuple[str, object], str] = {
    ("num_hidden_layers", 2): "the tensor encoder.layer.1.attention.self.query.weight is missing",
    ("intermediate_size", 63): "the tensor encoder.layer.0.intermediate.dense.weight has the shape [64, 32]",
    ("vocab_size", 17): "the tensor embeddings.word_embeddings.weight has the shape [16, 32]",
}
"""Messages about sizes that only the tensors contradict."""


def _networks() -> Iterator[Attack]:
    for base in (good_embedder, good_reranker):
        for key, value in (
            ("num_hidden_layers", 1 << 40),
            ("num_hidden_layers", 2),
            ("num_hidden_layers", 513),
            ("num_attention_heads", 0),
            ("intermediate_size", 1 << 40),
            ("intermediate_size", None),
            ("intermediate_size", 63),
            ("vocab_size", 1 << 31),
            ("vocab_size", 17),
            ("vocab_size", 0),
            ("type_vocab_size", 1 << 20),
            ("hidden_size", -32),
            ("hidden_size", "32"),
            ("max_position_embeddings", 2**31),
            ("layer_norm_eps", "tiny"),
            ("hidden_act", "os.system"),
            ("model_type", "evil"),
            ("is_decoder", True),
            ("position_embedding_type", "relative_key"),
        ):
            message = _TENSORS.get((key, value), key)
            yield Attack(f"{base.__name__}: {key} = {value!r}", _json(base, "config.json", **{key: value}), message)
        quantized = _json(base, "config.json", quantization_config={"quant_method": "gptq"})
        yield Attack(f"{base.__name__}: quantized weights", quantized, "quantized already")
    modern: tuple[tuple[str, object, str], ...] = (
        ("norm_bias", True, "norm_bias is True"),
        ("hidden_activation", "os.system", "hidden_activation"),
        ("num_hidden_layers", 1 << 40, "num_hidden_layers"),
        ("num_hidden_layers", 6, "the tensor layers.5.attn_norm.weight is missing"),
        ("intermediate_size", 95, "the tensor layers.0.mlp.Wi.weight has the shape [192, 64]"),
        ("vocab_size", 1 << 40, "vocab_size"),
        ("layer_types", ["full_attention"], "layer_types must be 5"),
        ("layer_types", {"0": "full_attention"}, "layer_types must be 5"),
        ("local_attention", -2, "local_attention"),
        ("rope_parameters", {"full_attention": {"rope_type": "evil"}}, "rope_type is 'evil'"),
        ("rope_parameters", [1], "rope_parameters"),
        ("global_rope_theta", 1e300, "global_rope_theta"),
        ("norm_eps", 10, "norm_eps"),
    )
    for key, found, message in modern:
        name = f"ModernBERT: {key} = {found!r}"
        yield Attack(name, _json(_modern_bert, "config.json", **{key: found}), message)
    for labels in ({}, {"0": "a", "1": "b"}, None, ["x"]):
        yield Attack(f"labels {labels!r}", _json(good_reranker, "config.json", id2label=labels), "label")


def _files() -> Iterator[Attack]:
    for base in (good_embedder, good_reranker):

        def pickled(folder: Path, canary: Canary, base: Any = base) -> None:
            base(folder)
            (folder / "model.safetensors").unlink()
            (folder / "pytorch_model.bin").write_bytes(canary.pickled())

        def linked(folder: Path, canary: Canary, base: Any = base) -> None:
            base(folder)
            (folder / "config.json").unlink()
            (folder / "config.json").symlink_to("/etc/passwd")

        yield Attack(f"{base.__name__}: pickled weights", pickled, "pickled weights are code")
        yield Attack(f"{base.__name__}: a configuration that links to /etc/passwd", linked, "link")
        yield Attack(
            f"{base.__name__}: no tokenizer",
            after(base, lambda folder: (folder / "tokenizer.json").unlink()),
            "tokenizer.json",
        )
    yield Attack("weights of another model", replace(good_embedder, "model.safetensors", _one_tensor()), "is missing")
    header = {"w": {"dtype": "F32", "shape": [1 << 40, 1 << 20], "data_offsets": [0, 16]}}
    text = json.dumps(header).encode()
    oversized = len(text).to_bytes(8, "little") + text + bytes(16)
    yield Attack(
        "a tokenizer that makes much of little",
        replace(good_embedder, "tokenizer.json", json.dumps({"normalizer": _PREPENDS}).encode()),
        "prepend",
    )
    yield Attack(
        "a tensor whose shape takes more than it holds", replace(good_embedder, "model.safetensors", oversized), "shape"
    )


def _modern_bert(folder: Path) -> None:
    write_encoder(folder, MODERN_BERT)


def _one_tensor() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(16)


def _module(index: int, **values: object) -> Build:
    def build(folder: Path, canary: Canary) -> None:
        good_embedder(folder)
        listed = json.loads((folder / "modules.json").read_bytes())
        listed[index] |= values
        (folder / "modules.json").write_text(json.dumps(listed))
        (folder / "modeling_evil.py").write_text(canary.python())

    return build


def _json(base: Any, name: str, **values: object) -> Build:
    def build(folder: Path, canary: Canary) -> None:
        base(folder)
        document = json.loads((folder / name).read_bytes()) | values
        (folder / name).write_text(json.dumps(document))
        (folder / "modeling_evil.py").write_text(canary.python())

    return build
