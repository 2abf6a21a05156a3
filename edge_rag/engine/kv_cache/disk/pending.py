"""Requests whose prompts begin with pages that are on their way from the disk."""

from __future__ import annotations

from collections.abc import Callable

from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.disk.tier import PageTier, Reading
from edge_rag.engine.request import ActiveRequest
from edge_rag.engine.sequence import SequenceId


class PendingLoads:
    """Holds requests back until their pages are there, or no longer than computing them would take.

    The engine's thread only.

    Args:
        tier: Reads pages; None where nothing is kept on disk.
        pool: Where they go.
        clock: Monotonic seconds, the engine's.
    """

    def __init__(self, tier: PageTier | None, pool: BlockPool, clock: Callable[[], float]) -> None:
        self._tier = tier
        self._pool = pool
        self._clock = clock
        self._held: dict[SequenceId, tuple[ActiveRequest, list[Reading]]] = {}

    def __len__(self) -> int:
        """Number of requests held back."""
        return len(self._held)

    def hold(self, request: ActiveRequest) -> bool:
        """Has what the disk holds of a request's beginning, and of the passages it is to copy, read.

        Returns:
            Whether the request is held back for it.
        """
        sequence = request.sequence
        if self._tier is None:
            return False
        readings = [self._tier.want(self._pool, sequence.trust_domain, sequence.tokens, sequence.keys)]
        readings += [self._tier.want(self._pool, sequence.trust_domain, span.alone, []) for span in sequence.spans]
        begun = [reading for reading in readings if reading is not None]
        if begun:
            self._held[sequence.id] = (request, begun)
        return bool(begun)

    def ready(self) -> list[ActiveRequest]:
        """Puts pages that came into the cache; returns the requests that need wait no longer, in order of arrival."""
        if self._tier is not None:
            self._tier.arrived(self._pool)
        if not self._held:
            return []
        now = self._clock()
        over = [
            request
            for request, readings in self._held.values()
            if all(reading.done or now >= reading.until for reading in readings)
        ]
        for request in over:
            del self._held[request.sequence.id]
        return over

    def drop(self, request: ActiveRequest) -> None:
        """A request is over; nothing happens if it was not held back."""
        self._held.pop(request.sequence.id, None)
