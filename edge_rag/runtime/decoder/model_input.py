"""The input of one model run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PackedStep:
    """The tokens of one model run, packed: one sequence after the other without padding.

    T tokens, S sequences, R rows of logits. All arrays are C-contiguous.

    Attributes:
        input_ids: int64 [T], token ids.
        positions: int32 [T], 0-based position of each token in its sequence.
        slot_mapping: int32 [T], ``page * page_tokens + offset`` where each token's keys and values are stored.
        cumulative_sequence_lengths: int32 [S+1], from 0 to T: sequence s has tokens ``c[s]`` to ``c[s+1]``.
        block_table: int32 [S, max_pages], each sequence's pages in order; entries after its last position are not read.
        logits_indices: int64 [R], tokens whose logits are computed, in the order in which they are returned.
    """

    input_ids: NDArray[np.int64]
    positions: NDArray[np.int32]
    slot_mapping: NDArray[np.int32]
    cumulative_sequence_lengths: NDArray[np.int32]
    block_table: NDArray[np.int32]
    logits_indices: NDArray[np.int64]
