"""Token vectors, and in four bits a dimension, the form in which those of passages are compared and kept; pure.

Each block of 64 dimensions of a token has a scale, and a dimension is one of 16 equally spaced values around zero. The
scales of a token are chosen so that the product of the rounded vector with the exact one is 1, its square length: then
products with other vectors are neither larger nor smaller on the mean (the estimator of Gao and Long, RaBitQ, SIGMOD
2024). Every passage is rounded before it is compared, so that a passage is scored the same whether its vectors were
kept or just computed. ``docs/adr/0020-token-vectors.md`` compares forms.

Layout, little endian: tokens uint32, dimension uint32; then for each token in turn the character ranges int32
[tokens, 2], the scales float16 [tokens, blocks] and the values uint8 [tokens, 32 blocks], the first of two dimensions
in the low half of a byte.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FORM: Final = "4 bits, 64 a scale"
"""Names the layout and the rounding; changes when the same vectors may become other bytes."""

_BLOCK: Final = 64
_LEVELS: Final = 16
_MIDDLE: Final = (_LEVELS - 1) / 2
_HEADER: Final = struct.Struct("<II")

_PAIRS: Final = (
    np.stack((np.arange(256) % _LEVELS, np.arange(256) // _LEVELS), axis=1).astype(np.float32) - np.float32(_MIDDLE)
).view(np.float64)[:, 0]
"""The two values of each byte, side by side as one element, so that one look-up unpacks both."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenVectors:
    """A text as one vector for each token, without special tokens.

    Attributes:
        vectors: float32 [tokens, dimension], each of unit length; no rows where the text has no tokens.
        offsets: int32 [tokens, 2]: each token's first character in the text and one past its last, in code points.
    """

    vectors: NDArray[np.float32]
    offsets: NDArray[np.int32]


def packed_bytes(tokens: int, dimension: int) -> int:
    blocks = _blocks(dimension)
    return _HEADER.size + tokens * (8 + 2 * blocks + blocks * _BLOCK // 2)


def pack(tokens: TokenVectors) -> bytes:
    """Rounds the token vectors of a text; a vector of zeros stays one.

    Args:
        tokens: Any number of tokens, of any dimension.
    """
    count, dimension = tokens.vectors.shape
    blocks = _blocks(dimension)
    exact = np.zeros((count, blocks * _BLOCK), np.float32)
    exact[:, :dimension] = tokens.vectors
    parts = exact.reshape(count, blocks, _BLOCK)
    scales = np.maximum(parts.max(axis=2), -parts.min(axis=2)) / np.float32(_MIDDLE)
    steps = np.divide(np.float32(1.0), scales, out=np.zeros_like(scales), where=scales > 0)
    values = parts * steps[:, :, None]
    values += np.float32(_LEVELS / 2)
    levels = np.minimum(values, np.float32(_LEVELS - 1)).astype(np.uint8)
    rounded = np.einsum("tbd,tbd->tb", levels - np.float32(_MIDDLE), parts)
    products = (rounded * scales).sum(axis=1, keepdims=True)
    squares = np.einsum("tbd,tbd->t", parts, parts)[:, None]
    scales *= np.divide(squares, products, out=np.ones_like(products), where=products > 0)
    levels = levels.reshape(count, blocks * _BLOCK)
    codes = levels[:, 0::2] | (levels[:, 1::2] << 4)
    offsets = tokens.offsets.astype("<i4")
    header = _HEADER.pack(count, dimension)
    return b"".join((header, offsets.tobytes(), scales.astype("<f2").tobytes(), codes.tobytes()))


def unpack(packed: bytes) -> TokenVectors:
    """Returns rounded token vectors, about of unit length."""
    if len(packed) < _HEADER.size:
        raise ValueError("packed vectors without a header")
    count, dimension = _HEADER.unpack_from(packed)
    if not dimension or len(packed) != packed_bytes(count, dimension):
        raise ValueError(f"{len(packed):,} bytes are not {count:,} vectors of {dimension:,} dimensions")
    blocks = _blocks(dimension)
    at = _HEADER.size
    offsets = np.frombuffer(packed, "<i4", 2 * count, at).reshape(count, 2).astype(np.int32)
    at += offsets.nbytes
    scales = np.frombuffer(packed, "<f2", count * blocks, at).astype(np.float32)
    at += 2 * count * blocks
    if not np.isfinite(scales).all() or (offsets[:, 1] < offsets[:, 0]).any() or (np.diff(offsets[:, 0]) < 0).any():
        raise ValueError("packed vectors with impossible scales or places")
    codes = np.frombuffer(packed, np.uint8, offset=at)
    values: NDArray[np.float32] = _PAIRS[codes].view(np.float32).reshape(count * blocks, _BLOCK)
    values *= scales[:, None]
    return TokenVectors(np.ascontiguousarray(values.reshape(count, blocks * _BLOCK)[:, :dimension]), offsets)


def _blocks(dimension: int) -> int:
    return -(-dimension // _BLOCK)
