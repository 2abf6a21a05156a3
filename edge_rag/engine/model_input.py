"""Packs a step's plan and pages into the arrays that the model takes: all tokens end to end, without padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_rag.engine.kv_cache.prefix_cache import PageId
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.sequence import Sequence as TokenSequence
from edge_rag.engine.sequence import SequenceId
from edge_rag.runtime.decoder.model_input import PackedStep


@dataclass(frozen=True, slots=True)
class TokenMove:
    """Cached tokens that are copied before a step runs; see ``ModelRunner.move_tokens``.

    Attributes:
        sources: int64 [n], slots that hold them (``page * page_tokens + offset``).
        targets: int64 [n], slots to copy them to.
        distance: Positions by which they move, at least 0.
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    distance: int


def token_moves(plan: StepPlan, tables: Mapping[SequenceId, tuple[PageId, ...]], page_tokens: int) -> list[TokenMove]:
    """Returns the copies that a step needs.

    Args:
        tables: Block table of each sequence in the plan, long enough for its tokens.
    """
    return [
        TokenMove(
            _slots(copy.pages, copy.offset, copy.length, page_tokens),
            _slots(tables[entry.sequence], copy.start, copy.length, page_tokens),
            copy.start - copy.offset,
        )
        for entry in plan.entries
        for copy in entry.copies
    ]


def _slots(table: Sequence[PageId], first: int, count: int, page_tokens: int) -> NDArray[np.int64]:
    page, offset = np.divmod(np.arange(first, first + count, dtype=np.int64), page_tokens)
    return np.array(table, np.int64)[page] * page_tokens + offset


def pack(
    plan: StepPlan,
    sequences: Mapping[SequenceId, TokenSequence],
    tables: Mapping[SequenceId, tuple[PageId, ...]],
    page_tokens: int,
) -> PackedStep:
    """Returns a step as arrays."""
    entries = plan.entries
    counts = np.array([entry.count + entry.drafted for entry in entries], np.int32)
    ends: NDArray[np.int32] = np.zeros(len(entries) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    firsts = np.array([entry.first for entry in entries], np.int32)
    held = [tables[entry.sequence] for entry in entries]
    block_table: NDArray[np.int32] = np.zeros((len(entries), max(map(len, held))), np.int32)
    for row, pages in zip(block_table, held, strict=True):
        row[: len(pages)] = pages
    owners = np.repeat(np.arange(len(entries)), counts)
    positions = np.arange(plan.tokens, dtype=np.int32) + (firsts - ends[:-1])[owners]
    for entry, begin, end in zip(entries, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        for copy in entry.copies:
            own = positions[begin:end]
            own[own >= copy.start] += np.int32(copy.length)
    page, offset = np.divmod(positions, np.int32(page_tokens))
    input_ids: list[int] = []
    for entry in entries:
        sequence = sequences[entry.sequence]
        for first, last in entry.computed():
            input_ids += sequence.tokens[first:last]
        input_ids += sequence.draft[: entry.drafted]
    return PackedStep(
        input_ids=np.array(input_ids, np.int64),
        positions=positions,
        slot_mapping=block_table[owners, page] * np.int32(page_tokens) + offset,
        cumulative_sequence_lengths=ends,
        block_table=block_table,
        logits_indices=np.array(
            [
                token
                for entry, end in zip(entries, ends[1:].tolist(), strict=True)
                if entry.wants_logits
                for token in range(end - 1 - entry.drafted, end)
            ],
            np.int64,
        ),
    )
