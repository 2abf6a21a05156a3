"""The plan of a step as a value that the scheduler makes, and as the arrays that the model takes.

All tokens of the arrays stand end to end, without padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.engine.sequence import KvCopy, PageId, Sequence, SequenceId, computed_ranges, copied_tokens
from edge_rag.runtime.decoder.model_input import PackedStep


class PreemptionReason(Enum):
    """Why a sequence was preempted, as a sentence for audit events."""

    SHARE = "a client without a slot takes one of a client with several"
    SLOT = "its slot was needed by a higher class"
    PAGES = "its pages were needed by a higher class"
    SHORTAGE = "pages ran out for one that goes before it"
    MEMORY = "memory is short, and it can wait"


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One sequence's part of a step."""

    sequence: SequenceId
    first: int  # position of the first token to compute, 0-based, in the sequence
    count: int  # tokens of the sequence to compute, at least 1
    wants_logits: bool  # whether the last of them is the sequence's last token, so that a token is sampled
    drafted: int = 0  # drafted tokens computed after them, each with its logits; only where those are wanted
    copies: tuple[KvCopy, ...] = ()  # copied before the step runs, between the computed tokens, in order

    @property
    def end(self) -> int:
        """Position after the last computed or copied token, drafted ones not counted."""
        return self.first + self.count + copied_tokens(self.copies)

    def computed(self) -> Iterator[tuple[int, int]]:
        """Yields first and end positions of the computed ranges, drafted tokens not included."""
        return computed_ranges(self.first, self.end, self.copies)


@dataclass(frozen=True, slots=True)
class SchedulingEvent:
    """A decision about a sequence: an ``AuditEvent`` without time and request."""

    kind: AuditEventKind  # ADMITTED, DEFERRED, PREEMPTED or RESUMED
    sequence: SequenceId
    reason: str  # a short sentence without numbers
    numbers: Mapping[str, float]  # that decided; units are in the names
    preempted_for: SequenceId | None = None  # for PREEMPTED, the sequence that needed the slot or the pages


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One model run."""

    entries: tuple[PlanEntry, ...]  # in rank order; each sequence at most once
    events: tuple[SchedulingEvent, ...] = ()  # in order

    def ends(self, accepted: Mapping[SequenceId, int] | None = None) -> dict[SequenceId, int]:
        """Returns the position of each sequence after its last token, with the drafted ones that were accepted.

        Args:
            accepted: Accepted drafted tokens, 0 where a sequence is absent; None for all drafted ones.
        """
        if accepted is None:
            return {entry.sequence: entry.end + entry.drafted for entry in self.entries}
        return {entry.sequence: entry.end + accepted.get(entry.sequence, 0) for entry in self.entries}

    @property
    def admitted(self) -> tuple[SequenceId, ...]:
        entering = (AuditEventKind.ADMITTED, AuditEventKind.RESUMED)
        return tuple(event.sequence for event in self.events if event.kind in entering)

    @property
    def preempted(self) -> tuple[SequenceId, ...]:
        return tuple(event.sequence for event in self.events if event.kind is AuditEventKind.PREEMPTED)

    @property
    def tokens(self) -> int:
        return sum(entry.count + entry.drafted for entry in self.entries)

    @property
    def drafted(self) -> int:
        """Drafted tokens among them."""
        return sum(entry.drafted for entry in self.entries)

    @property
    def decodes(self) -> int:
        """Sequences that compute a single token, drafted ones not counted."""
        return sum(entry.count == 1 for entry in self.entries)


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


def _slots(table: SequenceOf[PageId], first: int, count: int, page_tokens: int) -> NDArray[np.int64]:
    page, offset = np.divmod(np.arange(first, first + count, dtype=np.int64), page_tokens)
    return np.array(table, np.int64)[page] * page_tokens + offset


def pack(
    plan: StepPlan,
    sequences: Mapping[SequenceId, Sequence],
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
