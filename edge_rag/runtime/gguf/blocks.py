"""The block formats of ggml: their integers, scales and minima.

Every format stores a weight as ``scale * q - minimum``, with one scale and one minimum for 16 or 32
consecutive weights. Layouts: ggml's ``ggml-common.h``; K-quants pack 6-bit scales and minima of 8 blocks in 12 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.gguf.file import TensorType

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_SUPER: Final = 256
"""Weights of a block of a K-quant; it has 8 or 16 smaller blocks."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows of quantized weights: ``scales * values - minima``, by block.

    Attributes:
        values: uint8 [rows, k], each below ``2 ** bits``.
        scales: float32 [rows, blocks].
        minima: float32 [rows, blocks].
        bits: Bits of the largest value, 4, 5, 6 or 8.
        block_size: Weights that share a scale, 16 or 32.
    """

    values: Bytes
    scales: Floats
    minima: Floats
    bits: int
    block_size: int

    def weights(self) -> Floats:
        """Returns the weights, float32 [rows, k]."""
        rows, columns = self.values.shape
        blocks = self.values.reshape(rows, -1, self.block_size).astype(np.float32)
        weights: Floats = blocks * self.scales[:, :, None] - self.minima[:, :, None]
        return weights.reshape(rows, columns)


def read_blocks(form: TensorType, raw: Bytes) -> Blocks:
    """Reads rows of a quantized tensor.

    Args:
        form: Its type, not a floating-point one.
        raw: uint8 [rows, bytes of a row].
    """
    blocks = np.ascontiguousarray(raw).reshape(raw.shape[0], -1, form.block_bytes)
    return _READERS[form](blocks)


def read_floats(form: TensorType, raw: Bytes) -> Floats:
    """Reads rows of a tensor of any type as float32 [rows, k].

    Args:
        form: Its type.
        raw: uint8 [rows, bytes of a row].
    """
    content = np.ascontiguousarray(raw)
    match form:
        case TensorType.F32:
            return content.view("<f4")
        case TensorType.F16:
            return content.view("<f2").astype(np.float32)
        case TensorType.BF16:
            widened: Floats = (content.view("<u2").astype(np.uint32) << 16).view(np.float32)
            return widened
        case _:
            return read_blocks(form, raw).weights()


def _q4_0(blocks: Bytes) -> Blocks:
    scales = _half(blocks, 0)
    return Blocks(_nibbles(blocks[:, :, 2:]), scales, 8 * scales, 4, 32)


def _q4_1(blocks: Bytes) -> Blocks:
    return Blocks(_nibbles(blocks[:, :, 4:]), _half(blocks, 0), -_half(blocks, 2), 4, 32)


def _q5_0(blocks: Bytes) -> Blocks:
    scales = _half(blocks, 0)
    return Blocks(_nibbles(blocks[:, :, 6:]) | _fifth_bits(blocks[:, :, 2:6]), scales, 16 * scales, 5, 32)


def _q5_1(blocks: Bytes) -> Blocks:
    values = _nibbles(blocks[:, :, 8:]) | _fifth_bits(blocks[:, :, 4:8])
    return Blocks(values, _half(blocks, 0), -_half(blocks, 2), 5, 32)


def _q8_0(blocks: Bytes) -> Blocks:
    scales = _half(blocks, 0)
    values: Bytes = blocks[:, :, 2:].reshape(blocks.shape[0], -1) ^ np.uint8(128)  # -128 to 127 as 0 to 255
    return Blocks(values, scales, 128 * scales, 8, 32)


def _q4_k(blocks: Bytes) -> Blocks:
    scales, minima = _k_scales(blocks)
    return Blocks(_pairs_of_runs(blocks[:, :, 16:]), scales, minima, 4, 32)


def _q5_k(blocks: Bytes) -> Blocks:
    scales, minima = _k_scales(blocks)
    rows, count, _ = blocks.shape
    # Bit n of byte i is the fifth bit of weight i of run n.
    high: Bytes = (blocks[:, :, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    return Blocks(
        _pairs_of_runs(blocks[:, :, 48:]) | (high << np.uint8(4)).reshape(rows, count * _SUPER), scales, minima, 5, 32
    )


def _q6_k(blocks: Bytes) -> Blocks:
    rows, count, _ = blocks.shape
    halves = blocks[:, :, :128].reshape(rows, count, 2, 1, 2, 32) >> np.array([0, 4], np.uint8)[:, None, None]
    pairs = blocks[:, :, 128:192].reshape(rows, count, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    values: Bytes = halves.reshape(rows, count, 2, 4, 32) & np.uint8(15) | (pairs & np.uint8(3)) << np.uint8(4)
    scales = blocks[:, :, 192:208].view(np.int8).astype(np.float32) * _half(blocks, 208)[:, :, None]
    scales = scales.reshape(rows, -1)
    return Blocks(values.reshape(rows, -1), scales, 32 * scales, 6, 16)


_READERS: Final[dict[TensorType, Callable[[Bytes], Blocks]]] = {
    TensorType.Q4_0: _q4_0,
    TensorType.Q4_1: _q4_1,
    TensorType.Q5_0: _q5_0,
    TensorType.Q5_1: _q5_1,
    TensorType.Q8_0: _q8_0,
    TensorType.Q4_K: _q4_k,
    TensorType.Q5_K: _q5_k,
    TensorType.Q6_K: _q6_k,
}


def _half(blocks: Bytes, at: int) -> Floats:
    """Returns the float16 at a place of each block, float32 [rows, blocks]."""
    return np.ascontiguousarray(blocks[:, :, at : at + 2]).view("<f2")[:, :, 0].astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """Returns 32 values of each 16 bytes: the low halves, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=2).reshape(packed.shape[0], -1)


def _fifth_bits(packed: Bytes) -> Bytes:
    """Returns bit 4 of 32 values from each 4 bytes, the first value in the lowest bit."""
    bits: Bytes = np.unpackbits(packed, axis=2, bitorder="little") << np.uint8(4)
    return bits.reshape(packed.shape[0], -1)


def _pairs_of_runs(packed: Bytes) -> Bytes:
    """Returns 256 values of each 128 bytes: of each 32 bytes the low halves, then the high ones."""
    rows, count, _ = packed.shape
    runs: Bytes = packed.reshape(rows, count, 4, 1, 32) >> np.array([0, 4], np.uint8)[:, None] & np.uint8(15)
    return runs.reshape(rows, count * _SUPER)


def _k_scales(blocks: Bytes) -> tuple[Floats, Floats]:
    """Returns scales and minima of the 8 blocks of Q4_K and Q5_K, float32 [rows, 8 * blocks] each."""
    packed = blocks[:, :, 4:16]
    first, second, rest = packed[:, :, :4], packed[:, :, 4:8], packed[:, :, 8:]
    scales = np.concatenate([first & 63, rest & 15 | first >> 6 << 4], axis=2).astype(np.float32)
    minima = np.concatenate([second & 63, rest >> 4 | second >> 6 << 4], axis=2).astype(np.float32)
    rows = blocks.shape[0]
    return (
        (scales * _half(blocks, 0)[:, :, None]).reshape(rows, -1),
        (minima * _half(blocks, 2)[:, :, None]).reshape(rows, -1),
    )
