"""A generator that borrows other machines: implements the pipeline's ``Generator`` over this box's and remotes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.monitoring.status import RemoteInUse
from edge_rag.core.placement import OffloadMode, OffloadRule, OffloadUse
from edge_rag.errors import DeadlineExceeded, EdgeRagError, NotReady, Overloaded, RequestCancelled
from edge_rag.offload.context import LoopThread, OffloadContext
from edge_rag.offload.events import OffloadAnnouncer
from edge_rag.offload.generation.hedged_request import HedgedRequest
from edge_rag.offload.generation.redaction import Redactor
from edge_rag.offload.generation.routing import Facts, choose, documents_key
from edge_rag.offload.generation.timeouts import Bounds
from edge_rag.offload.ports import Handle, Listener, LocalGenerator, Remote, UsageSink
from edge_rag.offload.remotes.circuit_breaker import Breaker
from edge_rag.offload.remotes.remote_state import RemoteState, kind_of

_CHARACTERS_PER_TOKEN: Final = 4
_RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class OffloadLimits:
    """The operator's choices.

    Attributes:
        mode: When other machines write answers.
        bounds: How long they are waited for.
        breaker: As each remote's begins.
        queue: Most requests that may wait to be looked at.
    """

    mode: OffloadMode
    bounds: Bounds = field(default_factory=Bounds)
    breaker: Breaker = field(default_factory=Breaker)
    queue: int = 256


class FlightHandle:
    """A request that was admitted.

    Args:
        tower: Where its flight is watched.
        flight: Its flight.
    """

    def __init__(self, tower: OffloadContext, flight: HedgedRequest) -> None:
        self._tower = tower
        self._flight = flight

    def cancel(self, why: EdgeRagError | None = None) -> None:
        """Ends it; see ``pipeline.ports.GenerationHandle``."""
        error = why or RequestCancelled("cancelled by the caller")
        self._tower.post(lambda: self._flight.give_up(error))

    def pause(self) -> None:
        """Has whoever writes wait for the reader until ``resume``."""
        self._tower.post(self._flight.pause)

    def resume(self) -> None:
        """Lets it go on."""
        self._tower.post(self._flight.resume)


class OffloadingGenerator:
    """Writes answers here or elsewhere. All methods may be called from any thread.

    Args:
        local: This box's generator; its owner starts and closes it, after this.
        remotes: Other machines, with names of their own.
        limits: The operator's choices.
        redactor: Knows what must not leave where it is redacted.
        books: Keep the trail of decisions, and what clients used.
        strained: Whether this box is held back or on battery.
        clock: Monotonic seconds; deadlines are on it.
    """

    def __init__(
        self,
        local: LocalGenerator,
        remotes: Sequence[Remote],
        limits: OffloadLimits,
        redactor: Redactor,
        books: UsageSink,
        strained: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._local = local
        self._limits = limits
        self._strained = strained
        self._desks = {remote.name: RemoteState(remote, limits.breaker) for remote in remotes}
        self._tower = OffloadContext(local, self._desks, limits.bounds, redactor, OffloadAnnouncer(books), books, clock)
        self._clock = clock
        writers = any(OffloadUse.GENERATE in remote.uses for remote in remotes)
        self._ever = writers and limits.mode is not OffloadMode.NEVER
        self._changed = threading.Condition()
        self._flights: set[HedgedRequest] = set()
        self._waiting = 0
        self._closed = False
        self._tower.start()

    def submit(self, request: GenerationRequest, listener: Listener) -> Handle:
        """Admits a request; see ``pipeline.ports.Generator``. What may not leave, the generator here gets at once."""
        if request.offload is OffloadRule.NEVER or not self._ever:
            return self._local.submit(request, listener)
        now = self._clock()
        if request.deadline is not None and now >= request.deadline:
            raise DeadlineExceeded("generator")
        facts = self._facts(request, now)
        choice = choose(facts)
        flight = HedgedRequest(self._tower, request, listener, choice, facts.prompt_tokens, self._landed)
        with self._changed:
            if self._closed:
                raise NotReady("the generator is shutting down")
            if self._waiting >= self._limits.queue:
                raise Overloaded("generator", _RETRY_S)
            self._waiting += 1
            self._flights.add(flight)
        try:
            flight.prepare()
        except BaseException:
            self._begun()
            self._landed(flight)
            raise
        self._tower.announcer.placed(request, facts, choice, now)
        self._tower.post(lambda: self._take_off(flight))
        return FlightHandle(self._tower, flight)

    @property
    def dispatch(self) -> LoopThread:
        """The event loop that machines are asked on, and what is noted of each: for what else they are asked."""
        return self._tower

    def remotes(self) -> tuple[RemoteInUse, ...]:
        """Returns the remotes as they are now."""
        return tuple(desk.snapshot() for desk in self._desks.values())

    def close(self) -> None:
        """Refuses new requests and gives up what is under way."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            flights = tuple(self._flights)
        error = NotReady("the generator is shutting down")
        for flight in flights:
            self._tower.post(lambda flight=flight: flight.give_up(error))  # type: ignore[misc]
        self._tower.stop()

    def _facts(self, request: GenerationRequest, now: float) -> Facts:
        # The prompt is not laid out yet, and must not be where nothing leaves: its length is estimated.
        characters = len(request.question) + sum(len(ranked.passage.text) for ranked in request.passages)
        prompt_tokens = max(1, characters // _CHARACTERS_PER_TOKEN)
        kind, most = kind_of(request.mode), request.sampling.max_tokens
        return Facts(
            mode=self._limits.mode,
            rule=request.offload,
            can_redact=self._tower.can_redact,
            priority=request.priority,
            deadline_in_s=None if request.deadline is None else request.deadline - now,
            prompt_tokens=prompt_tokens,
            documents=documents_key(ranked.passage.document_id for ranked in request.passages),
            waiting=self._local.stats().waiting,
            strained=self._strained(),
            local=self._tower.local_outlook(request, prompt_tokens),
            remotes=tuple(
                desk.facts(kind, prompt_tokens, most, self._tower.able(desk, request), now)
                for desk in self._desks.values()
            ),
        )

    def _take_off(self, flight: HedgedRequest) -> None:
        self._begun()
        flight.take_off()

    def _begun(self) -> None:
        with self._changed:
            self._waiting -= 1

    def _landed(self, flight: HedgedRequest) -> None:
        with self._changed:
            self._flights.discard(flight)
