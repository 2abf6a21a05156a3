"""Prompts that are likely to come, computed while the engine is idle.

Retrieval knows the passages before the reranker has ordered them. The engine computes the likely prompt meanwhile; its
pages are in the prefix cache when the request comes. If the order differs, the common beginning is still of use.

    add          any thread; a bounded queue, the oldest entry is dropped
    begin_step   the disk's pages of new entries are read; the pages of the current entry are released if there is work
    next         a step of the current entry, only while nothing runs and nothing waits
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from edge_rag.engine.extension import EngineExtension
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.disk.connector import DiskConnector
from edge_rag.engine.request import ActiveRequest, TokenRequest
from edge_rag.engine.scheduling.plan import PlanEntry, StepPlan
from edge_rag.engine.scheduling.scheduler import Scheduler
from edge_rag.engine.sequence import DomainEpochs, Sequence

MAX_PREFETCHES: Final = 4
CHUNK_TOKENS: Final = 64
"""Tokens of a prefetch step: a request that comes waits for one such step at most."""

EXPIRES_S: Final = 5.0
"""Time after which a prompt whose request did not come is dropped, seconds."""


@dataclass(slots=True, eq=False)
class PrefetchRequest:
    """A prompt that is likely to come.

    Attributes:
        sequence: Its tokens.
        at: When it was added, seconds.
    """

    request: TokenRequest
    sequence: Sequence
    at: float
    started: bool = False
    computed_tokens: int = 0


class Prefetcher(EngineExtension):
    """The queue of likely prompts and the one that is being computed.

    Args:
        compute: Whether prompts are computed; otherwise their pages are only read from disk.
    """

    def __init__(
        self,
        compute: bool,
        pool: BlockPool,
        scheduler: Scheduler,
        disk: DiskConnector,
        epochs: DomainEpochs,
        on_ended: Callable[[PrefetchRequest], None],
    ) -> None:
        self._compute = compute
        self._pool = pool
        self._scheduler = scheduler
        self._disk = disk
        self._epochs = epochs
        self._on_ended = on_ended
        self._new: deque[PrefetchRequest] = deque(maxlen=MAX_PREFETCHES)
        self._queue: deque[PrefetchRequest] = deque(maxlen=MAX_PREFETCHES)
        self._lock = threading.Lock()
        self._current: PrefetchRequest | None = None

    @property
    def enabled(self) -> bool:
        """Whether a likely prompt is of use: it can be computed, or there are pages on disk. Any thread."""
        stats = self._disk.stats
        return self._compute or (stats is not None and stats.pages > 0)

    @property
    def pending(self) -> bool:
        return self._current is not None or bool(self._queue)

    def add(self, prefetch: PrefetchRequest) -> None:
        """Adds a prompt; any thread."""
        with self._lock:
            self._new.append(prefetch)
            if self._compute:
                self._queue.append(prefetch)

    def hold(self, request: ActiveRequest) -> bool:
        """Drops the prefetch of a request that came; the request does not wait."""
        self.remove(request)
        return False

    def remove(self, request: ActiveRequest) -> None:
        """Drops the prefetch of a request that came or is over."""
        if not self.pending:
            return
        request_id = request.request.request_id
        with self._lock:
            others = [each for each in self._queue if each.request.request_id != request_id]
            self._queue = deque(others, maxlen=MAX_PREFETCHES)
        if self._current is not None and self._current.request.request_id == request_id:
            self.drop()

    def begin_step(self, now: float) -> Iterable[ActiveRequest]:
        """Reads pages of new prompts from disk; releases the pages of the current one if there is other work."""
        if self._new:
            with self._lock:
                added = list(self._new)
                self._new.clear()
            for prefetch in added:
                if not self._epochs.is_over(prefetch.request):
                    self._disk.load(prefetch.sequence)
        if self._current is not None and not self._scheduler.idle:
            self._release()
        return ()

    def next(self, now: float) -> tuple[Sequence, StepPlan] | None:
        """Returns the next step and its sequence, or None if there is nothing to compute."""
        while (prefetch := self._take()) is not None:
            sequence, pool = prefetch.sequence, self._pool
            if now - prefetch.at > EXPIRES_S or self._epochs.is_over(prefetch.request):
                self.drop()
                continue
            if not prefetch.started:
                found = pool.match(sequence.trust_domain, sequence.tokens, sequence.keys)
                pool.share(sequence.id, found)
                sequence.computed, prefetch.started = len(found) * pool.page_tokens, True
            end = (len(sequence.tokens) - 1) // pool.page_tokens * pool.page_tokens
            count = min(max(1, CHUNK_TOKENS // pool.page_tokens) * pool.page_tokens, end - sequence.computed)
            if count <= 0 or pool.pages_for(count) > pool.available:
                self.drop()
                continue
            return sequence, StepPlan((PlanEntry(sequence.id, sequence.computed, count, wants_logits=False),))
        return None

    def commit(self, plan: StepPlan) -> None:
        """Records that a step of the current prompt was computed."""
        if self._current is not None:
            sequence = self._current.sequence
            sequence.computed += plan.tokens
            self._current.computed_tokens += plan.tokens
            self._pool.register_full(
                sequence.id, sequence.trust_domain, sequence.tokens, sequence.computed, sequence.keys, requested=False
            )

    def clear(self) -> None:
        with self._lock:
            self._queue.clear()
        self.drop()

    def drop(self) -> None:
        self._release()
        if self._current is not None and self._current.computed_tokens:
            self._on_ended(self._current)
        self._current = None

    def _release(self) -> None:
        if self._current is not None and self._current.started:
            self._pool.release(self._current.sequence.id)
            self._current.started = False

    def _take(self) -> PrefetchRequest | None:
        if self._current is None:
            with self._lock:
                self._current = self._queue.popleft() if self._queue else None
        return self._current
