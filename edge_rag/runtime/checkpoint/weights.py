"""The weights of a Hugging Face folder, by the names of ``DecoderWeights``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.checkpoint.architectures import norms_are_shifted, read_settings
from edge_rag.runtime.checkpoint.safetensors import Tensors
from edge_rag.runtime.lowering.decoder_graph import DecoderDescription

Floats = NDArray[np.float32]

_WHOLE: Final[Mapping[str, str]] = {"embeddings": "model.embed_tokens", "head": "lm_head", "norm": "model.norm"}
_LAYER: Final[Mapping[str, str]] = {
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "query_norm": "self_attn.q_norm",
    "key_norm": "self_attn.k_norm",
    "attention_output": "self_attn.o_proj",
    "feed_forward_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_GEMMA: Final[Mapping[str, str]] = {
    "attention_output_norm": "post_attention_layernorm",
    "feed_forward_norm": "pre_feedforward_layernorm",
    "feed_forward_output_norm": "post_feedforward_layernorm",
}
_QKV: Final = "self_attn.qkv_proj"
_GATE_UP: Final = "mlp.gate_up_proj"


class CheckpointWeights:
    """Implements ``ReferenceWeights``."""

    def __init__(self, folder: Path, description: DecoderDescription) -> None:
        config = read_settings(folder / "config.json")
        self._tensors = Tensors(folder)
        self._description = description
        self._shifted = norms_are_shifted(config)
        self._tied = config.flag("tie_word_embeddings", "lm_head.weight" not in self._tensors)
        for name in matrix_names(description):
            if name != "head" or self.has("head"):
                self._check_shape(folder, name)

    @property
    def width(self) -> int:
        return self._tensors.shape("model.embed_tokens.weight")[1]

    def has(self, name: str) -> bool:
        if name == "head":
            return not self._tied
        return self._place(name)[0] in self._tensors

    def shape(self, name: str) -> tuple[int, int]:
        tensor, part = self._place(name)
        rows, inputs = self._tensors.shape(tensor)
        return (rows if part is None else part.stop - part.start), inputs

    def rows(self, name: str, rows: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Returns rows of a matrix, float32 [rows, inputs]."""
        tensor, part = self._place(name)
        if part is None:
            return self._tensors.rows(tensor, rows)
        return self._tensors.rows(tensor, np.arange(part.start, part.stop)[rows])

    def vector(self, name: str) -> Floats:
        tensor, part = self._place(name)
        values = self._tensors.vector(tensor)
        if self._shifted and name.endswith("norm"):
            values = values + np.float32(1)
        return values if part is None else values[part]

    def _place(self, name: str) -> tuple[str, slice | None]:
        """Returns the tensor that holds a matrix or vector, and its rows of it; None for all."""
        plain, ending = (name.removesuffix(".bias"), "bias") if name.endswith(".bias") else (name, "weight")
        number, dot, part = plain.partition(".")
        if not dot:
            return f"{_WHOLE[plain]}.{ending}", None
        layer = f"model.layers.{number}"
        found = self._description
        query, key = found.query_heads * found.head_size, found.kv_heads * found.head_size
        if part in ("query", "key", "value") and f"{layer}.{_QKV}.weight" in self._tensors:
            first = {"query": 0, "key": query, "value": query + key}[part]
            return f"{layer}.{_QKV}.{ending}", slice(first, first + (query if part == "query" else key))
        if part in ("gate", "up") and f"{layer}.{_GATE_UP}.weight" in self._tensors:
            half = self._tensors.shape(f"{layer}.{_GATE_UP}.weight")[0] // 2
            return f"{layer}.{_GATE_UP}.{ending}", slice(0, half) if part == "gate" else slice(half, 2 * half)
        names = {**_LAYER, **_GEMMA} if found.output_norms else _LAYER
        if part not in names:
            return "", None
        return f"{layer}.{names[part]}.{ending}", None

    def _check_shape(self, folder: Path, name: str) -> None:
        found = self._description
        query, key = found.query_heads * found.head_size, found.kv_heads * found.head_size
        tensor, part = self._place(name)
        stored = self._tensors.shape(tensor)
        if len(stored) != 2 or len(self._tensors.shape("model.embed_tokens.weight")) != 2:
            raise ModelFolderInvalid(f"{folder.name}: the tensor {tensor} has the shape {list(stored)}, is no matrix")
        inner = self.shape(f"{name.partition('.')[0]}.gate")[0] if "." in name else 0
        width = self.width
        expected = {
            "embeddings": (found.vocabulary_size, width),
            "head": (found.vocabulary_size, width),
            "query": (query, width),
            "key": (key, width),
            "value": (key, width),
            "attention_output": (width, query),
            "gate": (inner, width),
            "up": (inner, width),
            "down": (width, inner),
        }[name.rpartition(".")[2]]
        if self.shape(name) != expected or (part is not None and part.stop > stored[0]):
            raise ModelFolderInvalid(
                f"{folder.name}: the tensor {tensor} has the shape {list(stored)}; {name} must be {list(expected)}"
            )


def matrix_names(description: DecoderDescription) -> list[str]:
    parts = ("query", "key", "value", "attention_output", "gate", "up", "down")
    return ["embeddings", *(f"{number}.{part}" for number in range(len(description.layers)) for part in parts), "head"]
