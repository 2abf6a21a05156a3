"""Whether there is room for one more sequence.

How much of what was drafted a step has room for; pure.

Who copies passages from which pages, and when those pages are wanted back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from typing import Final

from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.page_copy import KvCopy
from edge_rag.engine.scheduling.plan import PlanEntry
from edge_rag.engine.sequence import Sequence, SequenceId, WaitReason

_MOST_DOUBLINGS: Final = 16


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """What a sequence would need to enter, and what there is."""

    free_slots: int  # not negative; if there are none, the pages are not looked at closely
    pages_needed: int  # beside those found in the cache
    pages_free: int  # beside those kept for the ones that run; negative if these are short themselves

    @property
    def lack(self) -> WaitReason | None:
        """What is missing, or None if the sequence may enter."""
        if not self.free_slots:
            return WaitReason.SLOTS
        return WaitReason.PAGES if self.pages_needed > self.pages_free else None

    @property
    def numbers(self) -> dict[str, float]:
        """The pages, by name."""
        return {"pages_needed": self.pages_needed, "pages_free": self.pages_free}


def can_admit(
    sequence: Sequence, running: Collection[Sequence], leaving: Collection[Sequence], max_slots: int, pool: BlockPool
) -> AdmissionCheck:
    """Measures what a sequence would need to enter, and what there would be.

    It needs a slot and its pages, beside what the others have yet to fill and some growth for each of them, so that the
    next steps do not put it out again: a page each, and twice as many for every time that pages ran out for it.

    Args:
        sequence: Who wants to enter.
        running: Who has a slot.
        leaving: Those of them that would leave for it.
        max_slots: Slots there are.
        pool: The pages.
    """
    free_slots = max_slots - len(running) + len(leaving)
    if free_slots <= 0:
        return AdmissionCheck(0, pool.pages_for(len(sequence.tokens)), pool.available)
    shared = pool.match(sequence.trust_domain, sequence.tokens, sequence.keys)
    needed = pool.pages_for(len(sequence.tokens)) - len(shared)
    growth = 1 << min(sequence.shortages, _MOST_DOUBLINGS)
    kept = 0
    for other in running:
        if other not in leaving:
            now, at_most = pool.pages_for(len(other.tokens)), pool.pages_for(other.prompt_tokens + other.max_tokens)
            kept += now - pool.held(other.id) + min(growth, at_most - now)
    return AdmissionCheck(free_slots, needed, pool.available_without([s.id for s in leaving], shared) - kept)


def with_drafts(
    entries: SequenceOf[PlanEntry],
    drafts: Mapping[SequenceId, int],
    promised: int,
    max_step_tokens: int,
    pool: BlockPool,
) -> tuple[PlanEntry, ...]:
    """Adds drafts where the step and the pages have room to spare; nobody gives way to a draft.

    Args:
        entries: The step without drafts.
        drafts: How many tokens are drafted, by sequence.
        promised: Pages that the step takes.
        max_step_tokens: Most tokens computed in it.
        pool: The pages.
    """
    if not drafts:
        return tuple(entries)
    left = max_step_tokens - sum(entry.count for entry in entries)
    result: list[PlanEntry] = []
    for entry in entries:
        drafted = min(drafts.get(entry.sequence, 0), left) if entry.wants_logits else 0
        end = entry.end
        pages = max(pool.held(entry.sequence), pool.pages_for(end))
        drafted = max(0, min(drafted, (pages + pool.available - promised) * pool.page_tokens - end))
        promised += max(0, pool.pages_for(end + drafted) - pages)
        left -= drafted
        result.append(replace(entry, drafted=drafted) if drafted else entry)
    return tuple(result)


def copy_plan(sequence: Sequence, pool: BlockPool, spare: int) -> None:
    """Gives a sequence that has just entered loans of what the cache holds of its passages.

    What is not held is computed. A page that is lent cannot be taken for anything else until it has been copied.

    Args:
        sequence: Who enters; what the cache holds of its beginning is its own already.
        pool: The pages.
        spare: Pages that can be had beside those that the sequence and the others need.
    """
    sequence.copies, sequence.exact_until = (), None
    copies: list[KvCopy] = []
    for span in sequence.spans:
        start = max(span.start, sequence.computed)
        pages = pool.match(sequence.trust_domain, span.alone, [])
        offset = span.offset + start - span.start
        length = min(span.end, sequence.prompt_tokens - 1) - start
        length = min(length, len(pages) * pool.page_tokens - offset)
        if length <= 0:
            continue
        spare -= pool.idle(pages)
        if spare < 0:
            break
        pool.pin(sequence.id, pages)
        copies.append(KvCopy(start, length, pages, offset))
    if copies:
        sequence.copies, sequence.exact_until = tuple(copies), copies[0].start


def revoke(sequences: Iterable[Sequence], pool: BlockPool) -> bool:
    """Takes loans back that are not copied yet: the sequences compute these passages themselves.

    Returns:
        Whether there were any.
    """
    borrowers = [sequence for sequence in sequences if sequence.copies]
    for sequence in borrowers:
        pool.unpin(sequence.id)
        sequence.copies = ()
    return bool(borrowers)
