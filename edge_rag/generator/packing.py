"""A plan and its pages as the arrays the model takes: all sequences' tokens end to end, no padding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edge_rag.generator.kv.prefix import PageId
from edge_rag.generator.plan import StepPlan
from edge_rag.generator.sequence import Sequence, SequenceId
from edge_rag.runtime.packed_step import PackedStep


def pack(
    plan: StepPlan,
    sequences: Mapping[SequenceId, Sequence],
    tables: Mapping[SequenceId, tuple[PageId, ...]],
    page_tokens: int,
) -> PackedStep:
    """Lays a step out.

    Args:
        plan: The step; at least one entry.
        sequences: Sequences by id.
        tables: Block table of each sequence in the plan, long enough for its tokens.
        page_tokens: Tokens a page holds.
    """
    entries = plan.entries
    input_ids = np.empty(plan.tokens, np.int64)
    positions = np.empty(plan.tokens, np.int32)
    slots = np.empty(plan.tokens, np.int32)
    block_table: NDArray[np.int32] = np.zeros((len(entries), max(len(tables[e.sequence]) for e in entries)), np.int32)
    ends = np.cumsum([entry.count for entry in entries], dtype=np.int32)
    for row, (entry, end) in enumerate(zip(entries, ends.tolist(), strict=True)):
        part = slice(end - entry.count, end)
        last = entry.first + entry.count
        pages = np.array(tables[entry.sequence], np.int32)
        block_table[row, : len(pages)] = pages
        input_ids[part] = sequences[entry.sequence].tokens[entry.first : last]
        positions[part] = np.arange(entry.first, last, dtype=np.int32)
        slots[part] = pages[positions[part] // page_tokens] * page_tokens + positions[part] % page_tokens
    return PackedStep(
        input_ids=input_ids,
        positions=positions,
        slot_mapping=slots,
        cumulative_sequence_lengths=np.concatenate([np.zeros(1, np.int32), ends]),
        block_table=block_table,
        logits_indices=np.array(
            [end - 1 for entry, end in zip(entries, ends.tolist(), strict=True) if entry.wants_logits], np.int64
        ),
    )
