"""The weights of a GGUF file as the graph writer reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.gguf.architectures import INTERLEAVED
from edge_rag.runtime.gguf.blocks import read_blocks, read_floats
from edge_rag.runtime.gguf.file import GgufFile, TensorInfo
from edge_rag.runtime.lowering.decoder_graph import DecoderDescription
from edge_rag.runtime.lowering.weight_packing import QuantizedMatrix, quantize

Floats = NDArray[np.float32]

_BLOCK: Final = 32
"""Block size of matrices that are quantized here."""

_WHOLE: Final[Mapping[str, str]] = {"embeddings": "token_embd", "head": "output", "norm": "output_norm"}
_LAYER: Final[Mapping[str, str]] = {
    "attention_norm": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "query_norm": "attn_q_norm",
    "key_norm": "attn_k_norm",
    "attention_output": "attn_output",
    "attention_output_norm": "post_attention_norm",
    "feed_forward_norm": "ffn_norm",
    "feed_forward_output_norm": "post_ffw_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


class GgufWeights:
    """Implements ``DecoderWeights`` and ``ReferenceWeights``."""

    def __init__(self, file: GgufFile, description: DecoderDescription) -> None:
        self._file = file
        self._description = description
        self._interleaved = file.text("general.architecture") in INTERLEAVED

    def has(self, name: str) -> bool:
        return self._place(name)[0] in self._file.tensors

    def matrix(self, name: str) -> QuantizedMatrix:
        """Returns a matrix [inputs, outputs].

        Quantized blocks are kept as they are: their integers, scales and minima. Floating-point weights are rounded to
        8 bits.
        """
        tensor, raw = self._rows(name)
        if tensor.type.block_elements == 1:
            weights = read_floats(tensor.type, raw)
            self._require_finite(np.isfinite(weights).all(), tensor.name)
            return quantize(np.ascontiguousarray(weights.T), 8, _BLOCK)
        blocks = read_blocks(tensor.type, raw)
        self._require_finite(blocks.is_finite, tensor.name)
        return blocks.matrix

    def by_token(self, name: str) -> list[QuantizedMatrix]:
        """Returns the embeddings or the head, [width, tokens]; raises as ``matrix`` does."""
        return [self.matrix(name)]

    def rows(self, name: str, rows: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Returns rows of a matrix as they are in the file, float32 [rows, inputs]."""
        tensor, raw = self._rows(name, rows)
        return read_floats(tensor.type, raw)

    def _rows(self, name: str, rows: NDArray[np.int64] | slice = slice(None)) -> tuple[TensorInfo, NDArray[np.uint8]]:
        tensor_name, part = self._place(name)
        tensor = self._file.tensor(tensor_name)
        if len(tensor.shape) != 2:
            raise ModelFolderInvalid(f"{self._file.path.name}: the tensor {tensor_name} is no matrix")
        return tensor, self._file.raw(tensor_name)[self._order(name, part, tensor.shape[0])[rows]]

    def vector(self, name: str) -> Floats:
        """Returns a vector."""
        tensor_name, rows = self._place(name)
        tensor = self._file.tensor(tensor_name)
        if len(tensor.shape) != 1:
            raise ModelFolderInvalid(f"{self._file.path.name}: the tensor {tensor_name} is no vector")
        values = read_floats(tensor.type, self._file.raw(tensor_name)).reshape(-1)
        self._require_finite(np.isfinite(values).all(), tensor_name)
        return values[self._order(name.removesuffix(".bias"), rows, values.size)]

    def _place(self, name: str) -> tuple[str, tuple[int, int] | None]:
        """Returns the tensor that holds a matrix or vector, and the part of its rows as numerator and denominator."""
        plain, _, bias = name.partition(".bias") if name.endswith(".bias") else (name, "", None)
        ending = "bias" if bias is not None else "weight"
        number, dot, part = plain.partition(".")
        if not dot:
            return f"{_WHOLE[plain]}.{ending}", None
        own = f"blk.{number}.{_LAYER[part]}.{ending}"
        found = self._description
        fused = f"blk.{number}.attn_qkv.{ending}"
        if part in ("query", "key", "value") and fused in self._file.tensors:
            query, key = found.query_heads * found.head_size, found.kv_heads * found.head_size
            first = {"query": 0, "key": query, "value": query + key}[part]
            return fused, (first, first + (query if part == "query" else key))
        if part in ("gate", "up") and f"blk.{number}.ffn_gate.weight" not in self._file.tensors:
            both = f"blk.{number}.ffn_up.{ending}"
            half = self._file.tensor(both).shape[0] // 2 if both in self._file.tensors else 0
            return both, ((0, half) if part == "gate" else (half, 2 * half))
        return own, None

    def _order(self, name: str, rows: tuple[int, int] | None, count: int) -> NDArray[np.int64]:
        """Returns the rows of a tensor that make up a matrix, in the order of a rotation by halves."""
        first, last = rows or (0, count)
        order = np.arange(first, last)
        part = name.partition(".")[2]
        if not self._interleaved or part not in ("query", "key"):
            return order
        size = self._description.head_size
        if order.size % size:
            raise ModelFolderInvalid(f"{self._file.path.name}: {name} has {order.size} rows, no multiple of {size}")
        return order.reshape(-1, size // 2, 2).swapaxes(1, 2).reshape(-1)

    def _require_finite(self, finite: bool | np.bool_, name: str) -> None:
        if not finite:
            raise ModelFolderInvalid(f"{self._file.path.name}: the tensor {name} has values that are not finite")
