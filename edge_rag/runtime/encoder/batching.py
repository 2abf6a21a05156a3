"""Texts end to end: what an encoder reads without padding.

An encoder's layers work token by token, but for attention, which is told where each text begins. So texts of any
lengths share a run, no token is computed for nothing, and what a text comes to depends on itself alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

INPUT_IDS = "input_ids"
POSITIONS = "positions"
LENGTHS = "cumulative_sequence_lengths"


@dataclass(frozen=True, slots=True, eq=False)
class PackedTexts:
    """Texts that are run together.

    Attributes:
        input_ids: int64 [tokens], the tokens of all texts, one text after the other.
        positions: int64 [tokens], each token's place in its own text.
        cumulative_sequence_lengths: int32 [texts + 1]; text s has tokens [at s, at s + 1).
    """

    input_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    cumulative_sequence_lengths: NDArray[np.int32]

    def inputs(self) -> dict[str, NDArray[np.generic]]:
        """Returns the arrays by the names that graphs give them."""
        return {
            INPUT_IDS: self.input_ids,
            POSITIONS: self.positions,
            LENGTHS: self.cumulative_sequence_lengths,
        }


def pack_texts(texts: Sequence[Sequence[int]]) -> PackedTexts:
    """Lays the token ids of texts end to end.

    Args:
        texts: Token ids of each text, at least one text.
    """
    ends = np.cumsum([0, *map(len, texts)])
    return PackedTexts(
        np.concatenate([np.asarray(ids, dtype=np.int64) for ids in texts]),
        np.arange(ends[-1]) - np.repeat(ends[:-1], np.diff(ends)),
        ends.astype(np.int32),
    )


def plan_packs(lengths: Sequence[int], most_tokens: int) -> list[range]:
    """Divides texts, in order, among runs.

    Args:
        lengths: Tokens of each text.
        most_tokens: Most tokens of a run; a text that is longer alone gets a run of its own.

    Returns:
        Ranges of texts, one a run, none empty; together they are all texts in order.
    """
    packs: list[range] = []
    first, tokens = 0, 0
    for text, length in enumerate(lengths):
        if text > first and tokens + length > most_tokens:
            packs.append(range(first, text))
            first, tokens = text, 0
        tokens += length
    return [*packs, range(first, len(lengths))] if len(lengths) > first else packs
