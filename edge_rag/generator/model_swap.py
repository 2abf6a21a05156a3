"""The generator in use, and how another takes its place while questions keep coming.

    swap      the next one is made and started      questions go to the present one
    switch    new questions go to the next one      the present one finishes what it has
    retire    the present one is closed             its memory is free once nobody refers to it

For the time of a swap there are two models and two caches in memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.monitoring.status import EngineStats, ModelInUse
from edge_rag.errors import NotReady
from edge_rag.generator.continuation import Continuation
from edge_rag.generator.generator import AnswerGenerator, Handle
from edge_rag.generator.streams.answer_stream import Listener
from edge_rag.generator.streams.chunk_stream import SaidListener


@dataclass(frozen=True, slots=True)
class Installed:
    """A generator and what is reported of its model.

    Attributes:
        generator: Not started yet when it is handed over.
        model: Its model.
        page_tokens: Tokens a KV page holds.
        page_bytes: Bytes of a KV page over all layers.
    """

    generator: AnswerGenerator
    model: ModelInUse
    page_tokens: int
    page_bytes: int


@dataclass(slots=True, eq=False)
class _Place:
    """A generator, how many threads are handing it a request at this moment, and how many answers are dictated to it
    and not over."""

    installed: Installed
    entering: int = 0
    dictated: int = 0


class ModelSwapper:
    """Implements the pipeline's ``Generator`` with whichever generator is in use. Any thread.

    Args:
        first: The generator to begin with; started here.
    """

    def __init__(self, first: Installed) -> None:
        self._place = _Place(first)
        self._moved = threading.Condition()
        self._swapping = threading.Lock()
        self._closed = False
        self._epochs: dict[str, int] = {}
        self._share = 1.0
        self._retiring: Installed | None = None
        self._retired: EngineStats | None = None  # the last one's, counted on those before it
        first.generator.engine.start()

    @property
    def current(self) -> Installed:
        """What new questions go to."""
        return self._place.installed

    def submit(self, request: GenerationRequest, listener: Listener) -> Handle:
        """Admits a request; see ``pipeline.ports.Generator``."""
        with self._entered() as place:
            return place.installed.generator.submit(request, listener)

    def dictation(self, request: GenerationRequest, listener: Listener) -> Continuation | None:
        """Begins an answer that somebody else writes; see ``AnswerGenerator.dictation``.

        Its generator may be asked to go on, so a swap waits for it as for requests of the generator's own.
        """
        with self._entered() as place:
            dictation = place.installed.generator.dictation(request, listener)
            if dictation is not None:
                self._count_dictated(place, 1)
                dictation.when_closed(lambda: self._count_dictated(place, -1))
            return dictation

    def write(self, request: GenerationRequest, vocabulary: str, listener: SaidListener) -> Handle:
        """Admits a request of somebody who checks what is said; see ``AnswerGenerator.write``."""
        with self._entered() as place:
            return place.installed.generator.write(request, vocabulary, listener)

    @property
    def vocabulary(self) -> str:
        """What the tokens of the generator in use are of."""
        return self._place.installed.generator.vocabulary

    def prefetch(self, request: GenerationRequest) -> None:
        """Notes that a request is likely to come; see ``AnswerGenerator.prefetch``."""
        self._place.installed.generator.prefetch(request)

    def forget(self, trust_domain: str, epoch: int) -> None:
        """Drops what is cached of a trust domain's epochs before this one.

        In the generator in use; one that retires takes no new questions, and one that comes later is told.
        """
        with self._moved:
            self._epochs[trust_domain] = max(epoch, self._epochs.get(trust_domain, 0))
            self._place.installed.generator.engine.forget(trust_domain, epoch)

    def set_throttle(self, share: float) -> None:
        """Has the generator in use, and whichever takes its place, use that share of slots and of a step's tokens."""
        with self._moved:
            self._share = share
            self._place.installed.generator.engine.set_throttle(share)

    def shed_memory(self, drop_cache: bool, hold_batch: bool) -> None:
        """Has the generators there are give memory back; one that takes their place is told at the next look."""
        with self._moved:
            for installed in (self._place.installed, self._retiring):
                if installed is not None:
                    installed.generator.engine.shed_memory(drop_cache, hold_batch)

    def stats(self) -> EngineStats:
        """Returns the state of the engine in use; running and waiting requests and counters include retired engines."""
        with self._moved:
            now = self._place.installed.generator.engine.stats()
            if self._retiring is not None:
                old = self._retiring.generator.engine.stats()
                now = replace(now, slots_busy=now.slots_busy + old.slots_busy, waiting=now.waiting + old.waiting)
                now = now.plus_counters(old)
            return now if self._retired is None else now.plus_counters(self._retired)

    def swap(self, make: Callable[[], Installed], drain_s: float) -> ModelInUse:
        """Puts another generator in the present one's place; returns when the old one is closed.

        Args:
            make: Makes the next one, ready to start.
            drain_s: How long requests of the old one may take to finish, seconds.

        Returns:
            The model now in use.

        Raises:
            NotReady: Another swap is under way, or the exchange is closed.
            EdgeRagError: The next one could not be made; the present one stays.
        """
        if not self._swapping.acquire(blocking=False):
            raise NotReady("another model is being put in place; try again when that is done")
        try:
            if self._closed:
                raise NotReady("the generator is shutting down")
            following = make()
            following.generator.engine.start()
            with self._moved:
                for trust_domain, epoch in self._epochs.items():
                    following.generator.engine.forget(trust_domain, epoch)
                old, self._place = self._place, _Place(following)
                following.generator.engine.set_throttle(self._share)
                self._retiring = old.installed
                self._moved.wait_for(lambda: old.entering == 0)
                ends = time.monotonic() + drain_s
                self._moved.wait_for(lambda: old.dictated == 0 or self._closed, drain_s)
            old.installed.generator.engine.close(0.0 if self._closed else max(0.0, ends - time.monotonic()))
            with self._moved:
                ended = old.installed.generator.engine.stats()
                self._retired = ended if self._retired is None else ended.plus_counters(self._retired)
                self._retiring = None
            return following.model
        finally:
            self._swapping.release()

    @contextmanager
    def _entered(self) -> Iterator[_Place]:
        """Gives the place in use, whose generator is not closed before this is left."""
        with self._moved:
            place = self._place
            place.entering += 1
        try:
            yield place
        finally:
            with self._moved:
                place.entering -= 1
                self._moved.notify_all()

    def _count_dictated(self, place: _Place, more: int) -> None:
        with self._moved:
            place.dictated += more
            self._moved.notify_all()

    def close(self) -> None:
        """Stops the generator in use, and the one it is replacing; what they have not finished is given up."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()
        if (retiring := self._retiring) is not None:
            retiring.generator.engine.close()
        with self._swapping:
            self._place.installed.generator.engine.close()
