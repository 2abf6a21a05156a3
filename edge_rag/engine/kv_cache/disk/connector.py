"""Connects the engine's loop to the disk tier: new requests wait for their pages, for a bounded time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from edge_rag.core.monitoring.status import DiskStats
from edge_rag.engine.extension import EngineExtension
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.disk.tier import PageLoad, PageTier
from edge_rag.engine.kv_cache.prefix_cache import PageKey
from edge_rag.engine.request import ActiveRequest
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.sequence import Sequence as TokenSequence
from edge_rag.engine.sequence import SequenceId

_FLUSH_S: Final = 5.0
"""Longest time for writing pages to disk when the engine ends, seconds."""


class DiskConnector(EngineExtension):
    """Loads a new request's pages from disk before it is scheduled.

    Args:
        tier: Reads and writes pages; None without a disk tier.
    """

    def __init__(self, tier: PageTier | None, pool: BlockPool) -> None:
        self._tier = tier
        self._pool = pool
        self._held: dict[SequenceId, tuple[ActiveRequest, list[PageLoad]]] = {}

    @property
    def stats(self) -> DiskStats | None:
        """Counters of the tier; None without one. Any thread."""
        return None if self._tier is None else self._tier.stats

    def start(self, wake: Callable[[], None]) -> None:
        if self._tier is not None:
            self._tier.start(wake)

    def close(self) -> None:
        if self._tier is not None:
            self._tier.close()

    def flush(self) -> None:
        if self._tier is not None:
            self._tier.flush(self._pool.findable, _FLUSH_S)

    def invalidate(self, trust_domain: str, epoch: int) -> None:
        """Removes a trust domain's epochs before this one from disk; any thread."""
        if self._tier is not None:
            self._tier.forget(trust_domain, epoch)

    def load(self, sequence: TokenSequence) -> PageLoad | None:
        """Starts reading the pages of a sequence's beginning; None if there are none, or computing is faster."""
        return self._load(sequence.trust_domain, sequence.tokens, sequence.keys)

    def hold(self, request: ActiveRequest) -> bool:
        """Starts reading the pages of a request's beginning and of the passages that it is to copy."""
        if self._tier is None:
            return False
        sequence = request.sequence
        started = [self.load(sequence)]
        started += [self._load(sequence.trust_domain, span.alone, []) for span in sequence.spans]
        loads = [load for load in started if load is not None]
        if loads:
            self._held[sequence.id] = (request, loads)
        return bool(loads)

    def begin_step(self, now: float) -> Sequence[ActiveRequest]:
        """Inserts loaded pages into the cache; releases requests in order of arrival."""
        if self._tier is not None:
            self._tier.insert_loaded(self._pool)
        if not self._held:
            return ()
        ready = [
            request for request, loads in self._held.values() if all(load.done or now >= load.until for load in loads)
        ]
        for request in ready:
            del self._held[request.sequence.id]
        return ready

    def end_step(self, plan: StepPlan, run_s: float) -> Sequence[ActiveRequest]:
        if self._tier is not None and plan.tokens - plan.decodes > plan.decodes:
            self._tier.observe_compute(plan.tokens, run_s)
        return ()

    def remove(self, request: ActiveRequest) -> None:
        self._held.pop(request.sequence.id, None)

    def _load(self, trust_domain: str, tokens: Sequence[int], keys: list[PageKey]) -> PageLoad | None:
        return None if self._tier is None else self._tier.load(self._pool, trust_domain, tokens, keys)
