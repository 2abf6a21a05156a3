"""A step as the CUDA graph takes it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed
from edge_rag.runtime.decoder.model_input import PackedStep


def step_inputs(step: PackedStep) -> dict[str, NDArray[Any]]:
    """Returns the inputs of the graph but for its caches.

    The operator derives where tokens are stored from the lengths, so the tokens of a sequence have to follow each other
    without gaps. The bounds in ``attention_metadata`` are exact; they spare a device a look at the lengths.

    Args:
        step: A step that ``check_step`` found to add up.

    Returns:
        By name: input_ids int64 [T], cumulative_sequence_lengths int32 [S+1], past_sequence_lengths int32 [S],
        block_table int32 [S, max_pages], attention_metadata int32 [3] (most new tokens of a sequence, most tokens of
        one, least of that), logits_indices int64 [max(R, 1)].

    Raises:
        InferenceFailed: A sequence's tokens do not follow each other.
    """
    lengths = step.cumulative_sequence_lengths
    counts = np.diff(lengths)
    # An empty sequence at the end has no first token; whatever is taken for it is not used.
    firsts = step.positions[np.minimum(lengths[:-1], step.positions.size - 1)]
    past = np.where(counts > 0, firsts, 0).astype(np.int32)
    offsets = np.arange(step.positions.size, dtype=np.int32) - np.repeat(lengths[:-1], counts)
    if not np.array_equal(step.positions, np.repeat(past, counts) + offsets):
        raise InferenceFailed("positions of a sequence do not follow each other, which the cuda provider needs")
    longest = int((past + counts).max())
    # A product without rows is a case that no kernel has to know.
    rows = step.logits_indices if step.logits_indices.size else np.zeros(1, np.int64)
    return {
        "input_ids": step.input_ids,
        "cumulative_sequence_lengths": lengths,
        "past_sequence_lengths": past,
        "block_table": step.block_table,
        "attention_metadata": np.array([counts.max(), longest, longest], np.int32),
        "logits_indices": rows,
    }
