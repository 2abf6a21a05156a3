"""A snapshot of a running engine, taken between two steps: its sequences and the holders of its pages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from edge_rag.core.monitoring.status import PageMap, SlotUse
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.request import ActiveRequest

MAP_CELLS: Final = 512
"""Most cells of a page map."""

SNAPSHOT_TIMEOUT_S: Final = 1.0
"""Longest time a caller waits for the running step, seconds; then it gets the snapshot before."""


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """An engine between two steps."""

    sequences: tuple[SlotUse, ...]
    page_map: PageMap


def take_snapshot(running: Iterable[ActiveRequest], pool: BlockPool, now: float) -> EngineSnapshot:
    """Returns the present state; on the engine's thread."""
    slots = []
    for active in running:
        sequence = active.sequence
        slots.append(
            SlotUse(
                request_id=active.request.request_id,
                client=active.request.client,
                priority=active.request.priority,
                age_s=now - active.submitted,
                prompt_tokens=sequence.prompt_tokens,
                cached_tokens=sequence.cached_tokens,
                computed_tokens=sequence.computed,
                generated_tokens=sequence.generated,
                max_tokens=sequence.max_tokens,
                pages=pool.held(sequence.id),
                preemptions=sequence.preemptions,
            )
        )
    return EngineSnapshot(tuple(slots), pool.map(MAP_CELLS))


class SnapshotExchange:
    """Hands snapshots to other threads: a caller requests one, the engine's thread takes it between two steps."""

    def __init__(self, first: EngineSnapshot) -> None:
        self._latest = first
        self._taken = 0
        self._requested = False
        self._changed = threading.Condition()

    def request(self, wake: Callable[[], None]) -> EngineSnapshot:
        """Returns a snapshot taken after the call, or the latest one if the running step takes too long."""
        with self._changed:
            before = self._taken
            self._requested = True
        wake()
        with self._changed:
            self._changed.wait_for(lambda: self._taken > before, SNAPSHOT_TIMEOUT_S)
            return self._latest

    def serve(self, take: Callable[[], EngineSnapshot]) -> None:
        """Takes a snapshot if one was requested; on the engine's thread, between two steps."""
        if self._requested:
            snapshot = take()
            with self._changed:
                self._latest = snapshot
                self._taken += 1
                self._requested = False
                self._changed.notify_all()
