"""What the room needs of others: remotes, and the generator of this box."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Protocol

from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.generation import GeneratedChunk, GenerationEvent, GenerationRequest
from edge_rag.core.monitoring.status import EngineStats
from edge_rag.core.placement import OffloadUse
from edge_rag.core.ports import AuditSink
from edge_rag.core.query import AnswerFormat, AnswerMode
from edge_rag.errors import EdgeRagError
from edge_rag.offload.generation.request_builder import Order, PromptText

Listener = Callable[[GenerationEvent], None]


@dataclass(frozen=True, slots=True)
class Busy:
    """How busy a remote says that it is.

    Attributes:
        waiting: Requests that wait there.
        running: Slots in use.
        slots: Slots there are, at least 1.
    """

    waiting: int
    running: int
    slots: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A remote's answer is over.

    Attributes:
        reason: Why.
        usage: What it used there; None where it does not say.
        queue_s: How long it waited there, seconds; 0 where it does not say.
        compute_s: How long it was written there, seconds; 0 where it does not say.
    """

    reason: FinishReason
    usage: Usage | None = None
    queue_s: float = 0.0
    compute_s: float = 0.0


Heard = GeneratedChunk | Busy | Ended


class Remote(Protocol):
    """Another machine that may write answers. Used from one event loop."""

    @property
    def name(self) -> str:
        """What it is called in settings, status and trail."""
        ...

    @property
    def kind(self) -> str:
        """What it is, for people."""
        ...

    @property
    def address(self) -> str:
        """Where it is, for people."""
        ...

    @property
    def uses(self) -> frozenset[OffloadUse]:
        """What it is used for."""
        ...

    def able(self, mode: AnswerMode, form: AnswerFormat | None, redacted: bool) -> bool:
        """Whether it can write such an answer."""
        ...

    def seal(self, order: Order) -> bytes:
        """Returns exactly the bytes that will be sent as the request's body."""
        ...

    def send(self, sealed: bytes, within_s: float | None) -> AsyncGenerator[Heard, None]:
        """Sends a request and yields what comes back; ``Ended`` last. Closing the iterator ends the call.

        Args:
            sealed: From ``seal``.
            within_s: Time to the deadline, seconds, which the remote is told; None without one.

        Raises:
            RemoteFailed: Whatever goes wrong; nothing else is raised.
        """
        ...

    async def close(self) -> None:
        """Lets connections go."""
        ...


class Handle(Protocol):
    """A request that a generator has admitted; see ``pipeline.ports.GenerationHandle``. Any thread."""

    def cancel(self, why: EdgeRagError | None = None) -> None:
        """Ends it; idempotent."""
        ...

    def pause(self) -> None:
        """Has it wait for its reader until ``resume``."""
        ...

    def resume(self) -> None:
        """Lets it go on."""
        ...


class Continuation(Protocol):
    """An answer that is written elsewhere and checked here. For one thread at a time."""

    @property
    def prompt(self) -> PromptText:
        """What is answered."""
        ...

    @property
    def said_tokens(self) -> int:
        """Tokens said so far."""
        ...

    def say(self, said: GeneratedChunk) -> FinishReason | None:
        """Takes what was said next; returns why the answer ends here, if it does.

        Raises:
            RemoteFailed: It may not be said; nothing of it was told.
        """
        ...

    def finish(self, reason: FinishReason, usage: Usage | None, queue_s: float, compute_s: float) -> None:
        """Ends the answer well.

        Raises:
            RemoteFailed: It cannot end here; nothing was told.
        """
        ...

    def close(self) -> None:
        """Nothing more comes: lets go of the generator that would have gone on; idempotent."""
        ...

    def go_on(self) -> Callable[[], None]:
        """Has the local generator write the rest, on its own thread; returns what cancels that.

        Raises:
            EdgeRagError: It does not take it.
        """
        ...


class LocalGenerator(Protocol):
    """The generator of this box. Any thread."""

    @property
    def vocabulary(self) -> str:
        """What its tokens are of."""
        ...

    def submit(self, request: GenerationRequest, listener: Listener) -> Handle:
        """Admits a request; see ``pipeline.ports.Generator``."""
        ...

    def dictation(self, request: GenerationRequest, listener: Listener) -> Continuation | None:
        """Begins an answer that is written elsewhere; None where there is nothing to write.

        Raises:
            EdgeRagError: It could not be answered here either.
        """
        ...

    def stats(self) -> EngineStats:
        """Returns the state of its batch and queue."""
        ...


class UsageSink(AuditSink, Protocol):
    """Keeps the trail of decisions, and what clients used. Any thread; must return at once and not raise."""

    def written_elsewhere(self, client: str, usage: Usage, alone: bool) -> None:
        """Takes what other machines wrote of an answer that is over.

        Args:
            client: Who asked.
            usage: Tokens they wrote; the prompt's where it was not computed here.
            alone: Whether the generator here had no part in it, and so reports no request.
        """
        ...
