"""Steps of a decoder for sequences that are all at the same position."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.decoder.model_input import PackedStep


def page_table(sequences: int, tokens: int, page_tokens: int) -> NDArray[np.int32]:
    """Returns pages of their own for each sequence, int32 [sequences, pages]."""
    width = -(-tokens // page_tokens)
    return np.arange(sequences * width, dtype=np.int32).reshape(sequences, width)


def packed_step(
    tokens: NDArray[Any], table: NDArray[np.int32], page_tokens: int, first: int, every: bool = False
) -> PackedStep:
    """Makes a step of int64 tokens [sequences, n] at positions ``first`` on; logits of the last or of all."""
    sequences, count = tokens.shape
    positions = np.arange(first, first + count, dtype=np.int32)
    slots = table[:, positions // page_tokens] * page_tokens + positions % page_tokens
    ends = np.arange(sequences + 1, dtype=np.int32) * count
    return PackedStep(
        np.ascontiguousarray(tokens.reshape(-1), np.int64),
        np.tile(positions, sequences),
        slots.reshape(-1).astype(np.int32),
        ends,
        table,
        np.arange(tokens.size, dtype=np.int64) if every else ends[1:].astype(np.int64) - 1,
    )
