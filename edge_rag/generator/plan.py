"""What one step does, as a value: the scheduler writes it, the reservation and the runner read nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from edge_rag.generator.sequence import SequenceId


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One sequence's part of a step."""

    sequence: SequenceId
    first: int  # position of the first token to compute, 0-based, in the sequence
    count: int  # tokens to compute, at least 1
    wants_logits: bool  # whether the last of them is the sequence's last token, so that the next one is chosen


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One model run."""

    entries: tuple[PlanEntry, ...]  # in rank order; each sequence at most once
    admitted: tuple[SequenceId, ...] = ()  # sequences that entered with this step
    preempted: tuple[SequenceId, ...] = ()  # sequences that gave their pages back before it

    @property
    def tokens(self) -> int:
        """Tokens computed in the step."""
        return sum(entry.count for entry in self.entries)

    @property
    def decodes(self) -> int:
        """Sequences that compute a single token."""
        return sum(entry.count == 1 for entry in self.entries)
