"""Tiny random GGUF files of every architecture, laid out as llama.cpp's converter does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray
from tokenizers.pre_tokenizers import ByteLevel

Floats = NDArray[np.float32]

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("a b", "ab c", "\u0120 a")
VOCABULARY = (*SPECIAL, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES))
WIDTH, HEADS, KV_HEADS, HEAD_SIZE, INNER, LAYERS, CONTEXT = 128, 4, 2, 32, 96, 7, 256
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class TinyModel:
    """A model to be written.

    Attributes:
        architecture: Its name in the file.
        metadata: Values by key; a key that begins with a dot follows the name of the architecture.
        tensors: By the names of the file.
        types: Types of tensors that are not stored as float32.
        raw: Bytes of tensors that are stored as they are, uint8 [rows, bytes of a row].
    """

    architecture: str
    metadata: Mapping[str, object]
    tensors: Mapping[str, Floats]
    types: Mapping[str, gguf.GGMLQuantizationType] = field(default_factory=dict)
    raw: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        """Writes the file."""
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.metadata.items():
            _add(writer, f"{self.architecture}{key}" if key.startswith(".") else key, value)
        for name, values in self.tensors.items():
            form = self.types.get(name)
            if form is None:
                writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
            else:
                stored = self.raw[name] if name in self.raw else gguf.quants.quantize(values, form)
                writer.add_tensor(name, stored, raw_dtype=form)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case list():
            writer.add_array(key, value)


def _common(random: np.random.Generator, architecture: str, rows: Mapping[str, int]) -> TinyModel:
    """Returns a model of Llama's layout with random weights."""

    def matrix(height: int, width: int) -> Floats:
        return random.normal(0, width**-0.5, (height, width)).astype(np.float32)

    def norm(width: int = WIDTH) -> Floats:
        return random.uniform(0.5, 1.5, width).astype(np.float32)

    tensors: dict[str, Floats] = {"token_embd.weight": matrix(len(VOCABULARY), WIDTH), "output_norm.weight": norm()}
    for number in range(LAYERS):
        tensors |= {
            f"blk.{number}.attn_norm.weight": norm(),
            f"blk.{number}.ffn_norm.weight": norm(),
            **{f"blk.{number}.{name}.weight": matrix(height, WIDTH) for name, height in rows.items()},
            f"blk.{number}.attn_output.weight": matrix(WIDTH, HEADS * HEAD_SIZE),
            f"blk.{number}.ffn_down.weight": matrix(WIDTH, INNER),
        }
    metadata: dict[str, object] = {
        ".block_count": LAYERS,
        ".context_length": CONTEXT,
        ".embedding_length": WIDTH,
        ".feed_forward_length": INNER,
        ".attention.head_count": HEADS,
        ".attention.head_count_kv": KV_HEADS,
        ".attention.layer_norm_rms_epsilon": 1e-5,
        ".rope.freq_base": 10_000.0,
        ".rope.dimension_count": HEAD_SIZE,
        "general.license": "apache-2.0",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": list(VOCABULARY),
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(VOCABULARY) - len(SPECIAL)),
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    }
    return TinyModel(architecture, metadata, tensors)


_ROWS = {
    "attn_q": HEADS * HEAD_SIZE,
    "attn_k": KV_HEADS * HEAD_SIZE,
    "attn_v": KV_HEADS * HEAD_SIZE,
    "ffn_gate": INNER,
    "ffn_up": INNER,
}


def _vectors(random: np.random.Generator, sizes: Mapping[str, int], kind: str) -> dict[str, Floats]:
    return {
        f"blk.{number}.{name}.{kind}": random.uniform(0.5, 1.5, size).astype(np.float32)
        for number in range(LAYERS)
        for name, size in sizes.items()
    }


def _with(model: TinyModel, metadata: Mapping[str, object], tensors: Mapping[str, Floats] | None = None) -> TinyModel:
    return replace(model, metadata={**model.metadata, **metadata}, tensors={**model.tensors, **(tensors or {})})


def _llama(random: np.random.Generator) -> TinyModel:
    head = random.normal(0, WIDTH**-0.5, (len(VOCABULARY), WIDTH)).astype(np.float32)
    return _with(_common(random, "llama", _ROWS), {}, {"output.weight": head})


def _llama3(random: np.random.Generator) -> TinyModel:
    turns = 64 / (2 * np.pi) * 500_000.0 ** -(np.arange(HEAD_SIZE // 2) / (HEAD_SIZE // 2))
    share = np.clip((turns - 1) / 3, 0, 1)
    factors = (1 / ((1 - share) / 8 + share)).astype(np.float32)
    return _with(_common(random, "llama", _ROWS), {".rope.freq_base": 500_000.0}, {"rope_freqs.weight": factors})


def _mistral(random: np.random.Generator) -> TinyModel:
    return _with(_llama(random), {".attention.sliding_window": 16})


def _qwen2(random: np.random.Generator) -> TinyModel:
    biases = _vectors(random, {name: _ROWS[name] for name in ("attn_q", "attn_k", "attn_v")}, "bias")
    return _with(_common(random, "qwen2", _ROWS), {}, biases)


def _qwen2_yarn(random: np.random.Generator) -> TinyModel:
    scaling = {"type": "yarn", "factor": 4.0, "original_context_length": CONTEXT // 4}
    return _with(_qwen2(random), {f".rope.scaling.{key}": value for key, value in scaling.items()})


def _qwen3(random: np.random.Generator) -> TinyModel:
    norms = _vectors(random, {"attn_q_norm": HEAD_SIZE, "attn_k_norm": HEAD_SIZE}, "weight")
    sizes = {".attention.key_length": HEAD_SIZE, ".attention.value_length": HEAD_SIZE}
    return _with(_common(random, "qwen3", _ROWS), sizes, norms)


def _smollm3(random: np.random.Generator) -> TinyModel:
    return _common(random, "smollm3", _ROWS)


def _phi3(random: np.random.Generator) -> TinyModel:
    return _common(random, "phi3", {"attn_qkv": (HEADS + 2 * KV_HEADS) * HEAD_SIZE, "ffn_up": 2 * INNER})


def _gemma3(random: np.random.Generator) -> TinyModel:
    norms = _vectors(random, {"attn_q_norm": HEAD_SIZE, "attn_k_norm": HEAD_SIZE}, "weight")
    after = _vectors(random, {"post_attention_norm": WIDTH, "post_ffw_norm": WIDTH}, "weight")
    sizes = {".attention.key_length": HEAD_SIZE, ".attention.value_length": HEAD_SIZE}
    scaling = {".attention.sliding_window": 16, ".rope.freq_base": 1e6}
    return _with(_common(random, "gemma3", _ROWS), {**sizes, **scaling}, norms | after)


def _granite(random: np.random.Generator) -> TinyModel:
    scales = {"attention.scale": 0.0625, "embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 4.0}
    return _with(_common(random, "granite", _ROWS), {f".{key}": value for key, value in scales.items()})


MAKERS: Mapping[str, Callable[[np.random.Generator], TinyModel]] = {
    "llama": _llama,
    "llama3": _llama3,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen2-yarn": _qwen2_yarn,
    "qwen3": _qwen3,
    "smollm3": _smollm3,
    "phi3": _phi3,
    "gemma3": _gemma3,
    "granite": _granite,
}
"""Ten models of eight families; Mistral's files name the architecture ``llama``."""


def tiny_model(name: str) -> TinyModel:
    return MAKERS[name](np.random.default_rng(sum(map(ord, name))))
