"""The input of one model run, and the checks it must pass first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed


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


def check_step(step: PackedStep, *, vocabulary_size: int, max_context: int, page_tokens: int, pages: int) -> None:
    """Validates a step before any of it reaches the model.

    Raises:
        InferenceFailed: A shape, type or value is wrong; names the array. No page has changed.
    """
    _check_form(step)
    tokens = step.input_ids.size
    lengths = step.cumulative_sequence_lengths
    counts = lengths[1:] - lengths[:-1]
    if lengths[0] != 0 or lengths[-1] != tokens or counts.min(initial=0) < 0:
        raise InferenceFailed(f"cumulative_sequence_lengths does not rise from 0 to {tokens}")
    _check_range("input_ids", step.input_ids, vocabulary_size)
    _check_range("positions", step.positions, min(max_context, step.block_table.shape[1] * page_tokens))
    _check_range("logits_indices", step.logits_indices, tokens)
    sequences = np.repeat(np.arange(counts.size), counts)
    columns, offsets = np.divmod(step.positions, page_tokens)
    used = step.block_table[sequences, columns]
    _check_range("block_table", used, pages)
    if (step.slot_mapping != used * page_tokens + offsets).any():
        raise InferenceFailed("slot_mapping does not match positions and block_table")


def _check_form(step: PackedStep) -> None:
    forms = (
        ("input_ids", step.input_ids, np.int64, 1),
        ("positions", step.positions, np.int32, 1),
        ("slot_mapping", step.slot_mapping, np.int32, 1),
        ("cumulative_sequence_lengths", step.cumulative_sequence_lengths, np.int32, 1),
        ("block_table", step.block_table, np.int32, 2),
        ("logits_indices", step.logits_indices, np.int64, 1),
    )
    for name, array, dtype, rank in forms:
        if array.dtype != dtype or array.ndim != rank or not array.flags.c_contiguous:
            wanted = f"contiguous {np.dtype(dtype)} of rank {rank}"
            raise InferenceFailed(f"{name} is {array.dtype} of rank {array.ndim}, must be {wanted}")
    tokens = step.input_ids.size
    if tokens == 0:
        raise InferenceFailed("a step has at least one token")
    for name, array in (("positions", step.positions), ("slot_mapping", step.slot_mapping)):
        if array.size != tokens:
            raise InferenceFailed(f"{name} has {array.size} entries for {tokens} tokens")
    if step.cumulative_sequence_lengths.size != step.block_table.shape[0] + 1:
        raise InferenceFailed(
            f"cumulative_sequence_lengths has {step.cumulative_sequence_lengths.size} entries "
            f"for {step.block_table.shape[0]} sequences"
        )


def _check_range(name: str, values: NDArray[np.int64] | NDArray[np.int32], limit: int) -> None:
    # A negative number is a large one without a sign. Half of the calls, which take more time than their work.
    if values.size and int(values.view(f"u{values.itemsize}").max()) >= limit:
        raise InferenceFailed(f"{name} has a value outside [0, {limit})")
