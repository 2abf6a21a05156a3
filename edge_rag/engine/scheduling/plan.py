"""The plan of a step as a value: the scheduler makes it, reservation and packing read nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.engine.kv_cache.page_copy import KvCopy, computed_ranges, copied_tokens
from edge_rag.engine.sequence import SequenceId


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
