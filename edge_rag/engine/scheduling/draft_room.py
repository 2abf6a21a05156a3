"""How much of what was drafted a step has room for; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edge_rag.engine.kv_cache.block_pool import PagePool
from edge_rag.engine.scheduling.plan import PlanEntry
from edge_rag.engine.sequence import SequenceId


def with_drafts(
    entries: Sequence[PlanEntry], drafts: Mapping[SequenceId, int], promised: int, max_step_tokens: int, pool: PagePool
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
