"""Does it fit: admission of a sequence, drafted tokens of a step, pages that passages are copied from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from typing import Final

from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.page_copy import KvCopy
from edge_rag.engine.scheduling.plan import PlanEntry
from edge_rag.engine.sequence import Sequence, SequenceId, WaitReason

_MAX_DOUBLINGS: Final = 16


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """The slots and pages that a sequence needs to be admitted, and those available."""

    free_slots: int  # not negative; if 0, the pages are only estimated
    pages_needed: int  # without those found in the cache
    pages_free: int  # without those kept for running sequences; negative if these are short

    @property
    def lack(self) -> WaitReason | None:
        """The missing resource, or None if the sequence can be admitted."""
        if not self.free_slots:
            return WaitReason.SLOTS
        return WaitReason.PAGES if self.pages_needed > self.pages_free else None

    @property
    def numbers(self) -> dict[str, float]:
        return {"pages_needed": self.pages_needed, "pages_free": self.pages_free}


def can_admit(
    sequence: Sequence, running: Collection[Sequence], leaving: Collection[Sequence], max_slots: int, pool: BlockPool
) -> AdmissionCheck:
    """Checks a sequence's admission.

    It needs a slot and its pages, besides the pages that running sequences have yet to fill and some growth for each of
    them, so that the next steps do not preempt it: one page each, doubled by every preemption for want of pages.
    """
    free_slots = max_slots - len(running) + len(leaving)
    if free_slots <= 0:
        return AdmissionCheck(0, pool.pages_for(len(sequence.tokens)), pool.available)
    shared = pool.match(sequence.trust_domain, sequence.tokens, sequence.keys)
    needed = pool.pages_for(len(sequence.tokens)) - len(shared)
    growth = 1 << min(sequence.shortages, _MAX_DOUBLINGS)
    kept = 0
    for other in running:
        if other not in leaving:
            now, at_most = pool.pages_for(len(other.tokens)), pool.pages_for(other.prompt_tokens + other.max_tokens)
            kept += now - pool.held(other.id) + min(growth, at_most - now)
    return AdmissionCheck(free_slots, needed, pool.available_without([s.id for s in leaving], shared) - kept)


def with_drafts(
    entries: SequenceOf[PlanEntry],
    drafts: Mapping[SequenceId, int],
    reserved: int,
    max_step_tokens: int,
    pool: BlockPool,
) -> tuple[PlanEntry, ...]:
    """Adds drafted tokens as far as the step and the free pages have room; no sequence is preempted for a draft.

    Args:
        drafts: Number of drafted tokens, by sequence.
    """
    if not drafts:
        return tuple(entries)
    left = max_step_tokens - sum(entry.count for entry in entries)
    result: list[PlanEntry] = []
    for entry in entries:
        drafted = min(drafts.get(entry.sequence, 0), left) if entry.wants_logits else 0
        end = entry.end
        pages = max(pool.held(entry.sequence), pool.pages_for(end))
        drafted = max(0, min(drafted, (pages + pool.available - reserved) * pool.page_tokens - end))
        reserved += max(0, pool.pages_for(end + drafted) - pages)
        left -= drafted
        result.append(replace(entry, drafted=drafted) if drafted else entry)
    return tuple(result)


def copy_plan(sequence: Sequence, pool: BlockPool, spare: int) -> tuple[KvCopy, ...]:
    """Plans the copies of a newly admitted sequence's passages that are cached, and pins their pages.

    Passages that are not cached are computed. A pinned page cannot be allocated until it was copied.
    """
    copies: list[KvCopy] = []
    for span in sequence.spans:
        start = max(span.start, sequence.computed)
        pages = pool.match(sequence.trust_domain, span.alone, [])
        offset = span.offset + start - span.start
        length = min(span.end, sequence.prompt_tokens - 1) - start
        length = min(length, len(pages) * pool.page_tokens - offset)
        if length <= 0:
            continue
        spare -= pool.count_idle(pages)
        if spare < 0:
            break
        pool.pin(sequence.id, pages)
        copies.append(KvCopy(start, length, pages, offset))
    return tuple(copies)


def revoke(sequences: Iterable[Sequence], pool: BlockPool) -> bool:
    copying = [sequence for sequence in sequences if sequence.copies]
    for sequence in copying:
        pool.unpin(sequence.id)
        sequence.copies = ()
    return bool(copying)
