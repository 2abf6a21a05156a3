"""Whether there is room for one more sequence."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from edge_rag.engine.kv_cache.block_pool import PagePool
from edge_rag.engine.sequence import Deferral, Sequence

_MOST_DOUBLINGS: Final = 16


@dataclass(frozen=True, slots=True)
class Room:
    """What a sequence would need to enter, and what there is."""

    free_slots: int  # not negative; if there are none, the pages are not looked at closely
    pages_needed: int  # beside those found in the cache
    pages_free: int  # beside those kept for the ones that run; negative if these are short themselves

    @property
    def lack(self) -> Deferral | None:
        """What is missing, or None if the sequence may enter."""
        if not self.free_slots:
            return Deferral.SLOTS
        return Deferral.PAGES if self.pages_needed > self.pages_free else None

    @property
    def numbers(self) -> dict[str, float]:
        """The pages, by name."""
        return {"pages_needed": self.pages_needed, "pages_free": self.pages_free}


def room_for(
    sequence: Sequence, running: Collection[Sequence], leaving: Collection[Sequence], max_slots: int, pool: PagePool
) -> Room:
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
        return Room(0, pool.pages_for(len(sequence.tokens)), pool.available)
    shared = pool.match(sequence.trust_domain, sequence.tokens, sequence.keys)
    needed = pool.pages_for(len(sequence.tokens)) - len(shared)
    growth = 1 << min(sequence.shortages, _MOST_DOUBLINGS)
    kept = 0
    for other in running:
        if other not in leaving:
            now, at_most = pool.pages_for(len(other.tokens)), pool.pages_for(other.prompt_tokens + other.max_tokens)
            kept += now - pool.held(other.id) + min(growth, at_most - now)
    return Room(free_slots, needed, pool.available_without([s.id for s in leaving], shared) - kept)
