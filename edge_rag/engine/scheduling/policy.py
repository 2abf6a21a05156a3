"""Scheduling policy as functions: limits of a step, token split, victims of preemption, what fits, presets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from typing import Final

from edge_rag.core.query import SchedulingPreset
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.scheduling.plan import PlanEntry
from edge_rag.engine.sequence import KvCopy, Sequence, SequenceId, WaitReason
from edge_rag.errors import ConfigurationError

MAX_PAUSE_S: Final = 0.5
"""Longest pause after a step, seconds; cancellations take effect after it."""


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Size of a step.

    Attributes:
        max_slots: Most sequences in one step, at least 1.
        max_step_tokens: Most tokens in one step.
        prefill_tokens: Tokens of every step reserved for prefill while any is pending, at least 1.
    """

    max_slots: int
    max_step_tokens: int
    prefill_tokens: int

    def __post_init__(self) -> None:
        if self.max_slots < 1 or self.prefill_tokens < 1:
            raise ConfigurationError("max_slots and prefill_tokens: at least 1")
        if self.max_slots + self.prefill_tokens > self.max_step_tokens:
            raise ConfigurationError(
                f"max_step_tokens: {self.max_step_tokens} cannot hold {self.max_slots} slots and a prefill share of"
                f" {self.prefill_tokens} tokens; at least {self.max_slots + self.prefill_tokens} are needed"
            )


def throttled_limits(limits: SchedulerLimits, share: float) -> SchedulerLimits:
    """Returns the limits under throttling.

    Running sequences keep decoding: a step has room for one token of each slot at any share.

    Args:
        share: Share of slots and tokens to use, above 0 to 1.
    """
    fewer = max(1, int(limits.max_slots * share + 1e-9))
    prefill = max(1, int(limits.prefill_tokens * share))
    tokens = max(limits.max_slots + prefill, int(limits.max_step_tokens * share))
    return SchedulerLimits(fewer, tokens, prefill)


def pause_after_step_s(share: float, worked_s: float) -> float:
    """Returns how long to pause after a step under throttling, seconds.

    Smaller steps alone do not cool a busy machine: it computes as hard, and smaller batches cost more energy per token.
    So the model also runs for no more than that share of the time.

    Args:
        share: Share of the time to use, above 0 to 1.
    """
    return min(MAX_PAUSE_S, worked_s * (1 / share - 1))


BESIDE_DECODE: Final = 8
"""While another client decodes, prompts of clients with several slots have the reserved tokens divided by this."""


def split_tokens(
    pending: SequenceOf[int], limits: SchedulerLimits, owners: SequenceOf[tuple[int, str]] = ()
) -> list[int]:
    """Divides a step's tokens: decodes first, then prefills, for which ``prefill_tokens`` are kept.

    Prefills of a higher class come first; in a class, clients have equal shares (max-min fairness), and a client's own
    prefills go in the given order. A step takes as long as all of its tokens, so that long prompts slow all decodes
    beside them: of a client with several slots they get few tokens while another client decodes.

    Args:
        pending: Pending tokens of each running sequence, at least 1, best rank first.
        owners: Class and client of each sequence; empty if all have the same.

    Returns:
        Tokens each sequence computes in this step, 0 to its pending tokens; together at most ``max_step_tokens``.
    """
    owners = owners or [(0, "")] * len(pending)
    reserved = min(sum(n for n in pending if n > 1), limits.prefill_tokens)
    left = limits.max_step_tokens
    counts = [0] * len(pending)
    for i, n in enumerate(pending):
        if n == 1 and left > reserved:
            counts[i] = 1
            left -= 1
    wanted: dict[tuple[int, str], int] = {}
    for owner, n in zip(owners, pending, strict=True):
        if n > 1:
            wanted[owner] = wanted.get(owner, 0) + n
    slots = Counter(client for _, client in owners)
    decoding = {client for (_, client), n in zip(owners, pending, strict=True) if n == 1}
    beside = max(1, limits.prefill_tokens // BESIDE_DECODE)
    for owner in wanted:
        if slots[owner[1]] > 1 and decoding - {owner[1]}:
            wanted[owner] = min(wanted[owner], beside)
    granted = _shares(wanted, left)
    for i, (owner, n) in enumerate(zip(owners, pending, strict=True)):
        if n > 1:
            counts[i] = min(n, granted[owner])
            granted[owner] -= counts[i]
    return counts


def _shares(wanted: Mapping[tuple[int, str], int], tokens: int) -> dict[tuple[int, str], int]:
    """Returns the tokens of each client: by class, then max-min fair."""
    granted: dict[tuple[int, str], int] = {}
    for level in sorted({level for level, _ in wanted}):
        members = sorted((owner for owner in wanted if owner[0] == level), key=lambda owner: wanted[owner])
        for place, owner in enumerate(members):
            granted[owner] = min(wanted[owner], -(-tokens // (len(members) - place)))
            tokens -= granted[owner]
    return granted


def displaceable(running: SequenceOf[Sequence], sequence: Sequence) -> list[Sequence]:
    return [each for each in running if each.level > sequence.priority]


def with_several(running: SequenceOf[Sequence], sequence: Sequence) -> Sequence | None:
    """Returns the running sequence that makes room for one of a client without a slot, or None.

    It is the worst-ranked one of the client with most slots, at least two, and not of a higher class. Each client keeps
    a slot, so sequences do not displace each other in turn.
    """
    slots = Counter(each.client for each in running)
    if not running or slots[sequence.client]:
        return None
    most = max(slots.values())
    candidates = [each for each in running if slots[each.client] == most > 1 and each.level >= sequence.priority]
    return candidates[-1] if candidates else None


def choose_victim(running: SequenceOf[Sequence]) -> Sequence:
    """Returns the running sequence to preempt, given in order of rank, at least one: the worst rank."""
    return running[-1]


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


@dataclass(frozen=True, slots=True)
class StepSize:
    """Default size of a step.

    Attributes:
        slots: Sequences that run at once, at least 1.
        prefill_share: Share of a step's tokens beyond the decodes that is reserved for prefill, (0, 1).
    """

    slots: int
    tokens: int
    prefill_share: float


_FACTOR: Final = {SchedulingPreset.LATENCY: 0.5, SchedulingPreset.BALANCED: 1.0, SchedulingPreset.THROUGHPUT: 2.0}


def limits_for(
    preset: SchedulingPreset, balanced: StepSize, max_slots: int | None = None, max_step_tokens: int | None = None
) -> SchedulerLimits:
    """Returns the limits of a preset.

    More slots serve more requests for one read of the weights, each of them slower. More tokens a step shorten prefill
    and lengthen the time between tokens of the sequences that decode beside it. So both are scaled together.

    Args:
        max_slots: Slots; None for the preset's.
        max_step_tokens: Tokens a step; None for the preset's.
    """
    slots = max_slots or max(1, int(balanced.slots * _FACTOR[preset]))
    tokens = max_step_tokens or int(balanced.tokens * _FACTOR[preset])
    return SchedulerLimits(slots, tokens, max(1, int((tokens - slots) * balanced.prefill_share)))
