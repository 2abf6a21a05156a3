"""The block formats of ggml: their integers, scales and minima.

A format stores a weight as ``scale * (q - zero)`` or as ``scale * q + minimum``, with one scale and one minimum for 16
or 32 consecutive weights, float16 or small integers that count a float16 of 256 weights (K-quants). Layouts: ggml's
``ggml-common.h``; Q4_K and Q5_K pack 6-bit scales and minima of 8 blocks in 12 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.gguf.file import TensorType
from edge_rag.runtime.lowering.weight_packing import BlockFormat, QuantizedMatrix, Stored, dequantize

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
_Element = TypeVar("_Element", bound=np.generic)

_SUPER: Final = 256
"""Weights of a block of a K-quant; it has 8 or 16 smaller blocks."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows of quantized weights, with nothing rounded.

    A weight is ``scale * (value - 2 ** (bits - 1))``, or ``scale * value + minimum`` where there are minima.

    Attributes:
        values: uint8 [rows, k], each below ``2 ** bits``.
        block_size: Weights that share a scale, 16 or 32.
        scales: float16 [rows, blocks]; or uint8, which count the factors.
        minima: The same of minima, or None.
        scale_factors: float32 [rows, blocks of 256], with scales of type uint8 only.
    """

    values: Bytes
    bits: int
    block_size: int
    scales: Stored
    minima: Stored | None = None
    scale_factors: Floats | None = None
    minimum_factors: Floats | None = None

    @property
    def matrix(self) -> QuantizedMatrix:
        """The weights as a matrix [k, rows]."""

        def turned(values: NDArray[_Element]) -> NDArray[_Element]:
            return np.ascontiguousarray(values.T)

        rows, columns = self.values.shape
        return QuantizedMatrix(
            BlockFormat(columns, rows, self.bits, self.block_size),
            turned(self.values),
            turned(self.scales),
            None,
            None if self.minima is None else turned(self.minima),
            None if self.scale_factors is None else turned(self.scale_factors),
            None if self.minimum_factors is None else turned(self.minimum_factors),
        )

    @property
    def is_finite(self) -> bool:
        stored = (self.scales, self.minima, self.scale_factors, self.minimum_factors)
        return all(values is None or bool(np.isfinite(values).all()) for values in stored)


def read_blocks(form: TensorType, raw: Bytes) -> Blocks:
    """Reads rows of a quantized tensor.

    Args:
        raw: uint8 [rows, bytes of a row].
    """
    blocks = np.ascontiguousarray(raw).reshape(raw.shape[0], -1, form.block_bytes)
    return _READERS[form](blocks)


def read_floats(form: TensorType, raw: Bytes) -> Floats:
    """Reads rows of a tensor of any type as float32 [rows, k].

    Args:
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
            return np.ascontiguousarray(dequantize(read_blocks(form, raw).matrix).T)


def _q4_0(blocks: Bytes) -> Blocks:
    return Blocks(_nibbles(blocks[:, :, 2:]), 4, 32, _half(blocks, 0))


def _q4_1(blocks: Bytes) -> Blocks:
    return Blocks(_nibbles(blocks[:, :, 4:]), 4, 32, _half(blocks, 0), _half(blocks, 2))


def _q5_0(blocks: Bytes) -> Blocks:
    values = _nibbles(blocks[:, :, 6:]) | _fifth_bits(blocks[:, :, 2:6])
    return Blocks(values + np.uint8(112), 8, 32, _half(blocks, 0))  # 16 is the zero


def _q5_1(blocks: Bytes) -> Blocks:
    values = _nibbles(blocks[:, :, 8:]) | _fifth_bits(blocks[:, :, 4:8])
    return Blocks(values, 8, 32, _half(blocks, 0), _half(blocks, 2))


def _q8_0(blocks: Bytes) -> Blocks:
    values: Bytes = blocks[:, :, 2:].reshape(blocks.shape[0], -1) ^ np.uint8(128)  # -128 to 127 as 0 to 255
    return Blocks(values, 8, 32, _half(blocks, 0))


def _q4_k(blocks: Bytes) -> Blocks:
    return Blocks(_pairs_of_runs(blocks[:, :, 16:]), 4, 32, *_k_scales(blocks))


def _q5_k(blocks: Bytes) -> Blocks:
    rows, count, _ = blocks.shape
    # Bit n of byte i is the fifth bit of weight i of run n.
    high: Bytes = (blocks[:, :, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    values = _pairs_of_runs(blocks[:, :, 48:]) | (high << np.uint8(4)).reshape(rows, count * _SUPER)
    return Blocks(values, 8, 32, *_k_scales(blocks))


def _q6_k(blocks: Bytes) -> Blocks:
    rows, count, _ = blocks.shape
    halves = blocks[:, :, :128].reshape(rows, count, 2, 1, 2, 32) >> np.array([0, 4], np.uint8)[:, None, None]
    pairs = blocks[:, :, 128:192].reshape(rows, count, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    values: Bytes = halves.reshape(rows, count, 2, 4, 32) & np.uint8(15) | (pairs & np.uint8(3)) << np.uint8(4)
    signed = blocks[:, :, 192:208].view(np.int8).astype(np.int16).reshape(rows, -1, 1)
    # 32 is the zero; a block of a negative scale is stored with its values' signs changed.
    centred = (values.reshape(rows, -1, 16).astype(np.int16) - 32) * np.where(signed < 0, np.int16(-1), np.int16(1))
    moved = (centred + 128).astype(np.uint8).reshape(rows, -1)
    scales = np.abs(signed)[:, :, 0].astype(np.uint8)
    return Blocks(moved, 8, 16, scales, None, _half(blocks, 208).astype(np.float32))


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


def _half(blocks: Bytes, at: int) -> NDArray[np.float16]:
    """Returns the float16 at a place of each block, [rows, blocks]."""
    return np.ascontiguousarray(blocks[:, :, at : at + 2]).view("<f2")[:, :, 0].astype(np.float16)


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


def _k_scales(blocks: Bytes) -> tuple[Bytes, Bytes, Floats, Floats]:
    """Returns scales and minima of the 8 blocks of Q4_K and Q5_K, uint8 [rows, 8 * blocks] each, and their factors."""
    packed = blocks[:, :, 4:16]
    first, second, rest = packed[:, :, :4], packed[:, :, 4:8], packed[:, :, 8:]
    scales = np.concatenate([first & 63, rest & 15 | first >> 6 << 4], axis=2)
    minima = np.concatenate([second & 63, rest >> 4 | second >> 6 << 4], axis=2)
    rows = blocks.shape[0]
    factors = _half(blocks, 0).astype(np.float32), -_half(blocks, 2).astype(np.float32)
    return scales.reshape(rows, -1), minima.reshape(rows, -1), *factors
