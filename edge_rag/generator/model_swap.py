"""The generator in use, and its replacement by another one without downtime.

    swap      the next generator is made and started      requests go to the present one
    switch    requests go to the next one                 the present one finishes its requests
    retire    the present one is closed                   its memory is freed with its last reference

During a swap, two models and two KV caches are in memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from edge_rag.core.generation import CompletionRequest, GenerationRequest
from edge_rag.core.monitoring.status import EngineStats, ModelInUse
from edge_rag.errors import NotReady
from edge_rag.generator.continuation import Continuation
from edge_rag.generator.quote_generator import AnswerHandle, QuoteGenerator
from edge_rag.generator.streams import ChunkListener, Listener


@dataclass(frozen=True, slots=True)
class InstalledGenerator:
    """A generator and its model.

    Attributes:
        model: Its model; None without one.
    """

    generator: QuoteGenerator
    model: ModelInUse | None
    page_tokens: int
    page_bytes: int


@dataclass(slots=True, eq=False)
class _InUse:
    """A generator with its users: threads that submit to it at this moment, and open continuations."""

    installed: InstalledGenerator
    entering: int = 0
    continuations: int = 0


class ModelSwapper:
    """Implements the pipeline's ``Generator`` with a replaceable generator. Any thread.

    Args:
        first: The first generator; started here.
    """

    def __init__(self, first: InstalledGenerator) -> None:
        self._current = _InUse(first)
        self._changed = threading.Condition()
        self._swap_lock = threading.Lock()
        self._closed = False
        self._epochs: dict[str, int] = {}
        self._share = 1.0
        self._retiring: InstalledGenerator | None = None
        self._retired: EngineStats | None = None  # counters of all retired generators
        first.generator.engine.start()

    @property
    def current(self) -> InstalledGenerator:
        return self._current.installed

    def submit(self, request: GenerationRequest, listener: Listener) -> AnswerHandle:
        with self._acquire() as in_use:
            return in_use.installed.generator.submit(request, listener)

    def complete(self, request: CompletionRequest, listener: Listener) -> AnswerHandle:
        with self._acquire() as in_use:
            return in_use.installed.generator.complete(request, listener)

    def open_continuation(self, request: GenerationRequest, listener: Listener) -> Continuation | None:
        """Prepares an answer that another machine generates; see ``QuoteGenerator.open_continuation``.

        A swap waits for open continuations as for requests, since they may resume on the old generator.
        """
        with self._acquire() as in_use:
            continuation = in_use.installed.generator.open_continuation(request, listener)
            if continuation is not None:
                self._count_continuation(in_use, 1)
                continuation.on_close(lambda: self._count_continuation(in_use, -1))
            return continuation

    def submit_chunks(self, request: GenerationRequest, vocabulary: str, listener: ChunkListener) -> AnswerHandle:
        with self._acquire() as in_use:
            return in_use.installed.generator.submit_chunks(request, vocabulary, listener)

    @property
    def vocabulary(self) -> str:
        return self._current.installed.generator.vocabulary

    def forget(self, trust_domain: str, epoch: int) -> None:
        with self._changed:
            self._epochs[trust_domain] = max(epoch, self._epochs.get(trust_domain, 0))
            for installed in (self._current.installed, self._retiring):
                if installed is not None:
                    installed.generator.engine.forget(trust_domain, epoch)

    def set_throttle(self, share: float) -> None:
        """Limits the present generator and later ones to a share of slots and of a step's tokens."""
        with self._changed:
            self._share = share
            self._current.installed.generator.engine.set_throttle(share)

    def shed_memory(self, drop_cache: bool, hold_batch: bool) -> None:
        with self._changed:
            for installed in (self._current.installed, self._retiring):
                if installed is not None:
                    installed.generator.engine.shed_memory(drop_cache, hold_batch)

    def stats(self) -> EngineStats:
        """Returns the state of the generator in use; load and counters include the generators it replaced."""
        with self._changed:
            now = self._current.installed.generator.engine.stats()
            if self._retiring is not None:
                old = self._retiring.generator.engine.stats()
                now = replace(now, slots_busy=now.slots_busy + old.slots_busy, waiting=now.waiting + old.waiting)
                now = now.plus_counters(old)
            return now if self._retired is None else now.plus_counters(self._retired)

    def swap(self, make: Callable[[], InstalledGenerator], drain_s: float) -> InstalledGenerator:
        """Replaces the present generator; returns when the old one is closed.

        Args:
            drain_s: How long requests of the old one may take to finish, seconds.

        Raises:
            NotReady: Another swap is in progress, or the swapper is closed.
        """
        if not self._swap_lock.acquire(blocking=False):
            raise NotReady("another model swap is in progress; try again when it is done")
        try:
            if self._closed:
                raise NotReady("the generator is shutting down")
            successor = make()
            successor.generator.engine.start()
            with self._changed:
                for trust_domain, epoch in self._epochs.items():
                    successor.generator.engine.forget(trust_domain, epoch)
                old, self._current = self._current, _InUse(successor)
                successor.generator.engine.set_throttle(self._share)
                self._retiring = old.installed
                self._changed.wait_for(lambda: old.entering == 0)
                ends = time.monotonic() + drain_s
                self._changed.wait_for(lambda: old.continuations == 0 or self._closed, drain_s)
            old.installed.generator.engine.close(0.0 if self._closed else max(0.0, ends - time.monotonic()))
            with self._changed:
                ended = old.installed.generator.engine.stats()
                self._retired = ended if self._retired is None else ended.plus_counters(self._retired)
                self._retiring = None
            return successor
        finally:
            self._swap_lock.release()

    @contextmanager
    def _acquire(self) -> Iterator[_InUse]:
        """Yields the generator in use; it is not closed before the context is left."""
        with self._changed:
            in_use = self._current
            in_use.entering += 1
        try:
            yield in_use
        finally:
            with self._changed:
                in_use.entering -= 1
                self._changed.notify_all()

    def _count_continuation(self, in_use: _InUse, more: int) -> None:
        with self._changed:
            in_use.continuations += more
            self._changed.notify_all()

    def close(self) -> None:
        """Closes the present generator and the one being retired; unfinished requests fail."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if (retiring := self._retiring) is not None:
            retiring.generator.engine.close()
        with self._swap_lock:
            self._current.installed.generator.engine.close()
