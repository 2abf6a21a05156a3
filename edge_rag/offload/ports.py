"""Ports of this room: remotes that generate, the local generator, and sinks for audit events and usage."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Protocol

from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.generation import GeneratedChunk, GenerationEvent, GenerationRequest
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.status import EngineStats
from edge_rag.core.placement import OffloadUse
from edge_rag.core.ports import AuditSink
from edge_rag.core.query import AnswerFormat, Priority, Sampling
from edge_rag.generator.continuation import Continuation
from edge_rag.generator.quote_generator import AnswerHandle

Listener = Callable[[GenerationEvent], None]


@dataclass(frozen=True, slots=True)
class RemoteLoad:
    """Load that a remote reports.

    Attributes:
        waiting: Requests in its queue.
        running: Slots in use.
        slots: Slots in total, at least 1.
    """

    waiting: int
    running: int
    slots: int


@dataclass(frozen=True, slots=True)
class RemoteFinished:
    """The end of a remote's answer.

    Attributes:
        usage: Tokens used there; None if not reported.
        queue_s: Time in the remote's queue, seconds; 0 if not reported.
        compute_s: Time of generation, seconds; 0 if not reported.
    """

    reason: FinishReason
    usage: Usage | None = None
    queue_s: float = 0.0
    compute_s: float = 0.0


RemoteEvent = GeneratedChunk | RemoteLoad | RemoteFinished


@dataclass(frozen=True, slots=True)
class SentPassage:
    """A passage without its source."""

    text: str


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """A request to a remote.

    Attributes:
        passages: In the order of the local prompt, which numbers them.
        format: Required form of the answer, or None.
        vocabulary: Identity of the local vocabulary; empty if text is wanted instead of tokens.
        sharing: Requests with the same value may share cached KV; a salted hash that hides the collection's name.
    """

    request_id: RequestId
    question: str
    passages: tuple[SentPassage, ...]
    system: str
    user: str
    sampling: Sampling
    priority: Priority
    format: AnswerFormat | None
    vocabulary: str
    sharing: str


class Remote(Protocol):
    """Another machine that may generate answers. Used from one event loop."""

    @property
    def name(self) -> str:
        """Its name in settings, status and audit log."""
        ...

    @property
    def kind(self) -> str:
        """Its kind, for display."""
        ...

    @property
    def address(self) -> str:
        """Its address, for display."""
        ...

    @property
    def uses(self) -> frozenset[OffloadUse]:
        """The work it is used for."""
        ...

    def supports(self, form: AnswerFormat | None, redacted: bool) -> bool:
        """Whether it can generate such an answer."""
        ...

    def serialize(self, outbound: OutboundRequest) -> bytes:
        """Returns the exact bytes of the request body."""
        ...

    def send(self, body: bytes, timeout_s: float | None) -> AsyncGenerator[RemoteEvent, None]:
        """Sends a request and yields its events, ``RemoteFinished`` last. Closing the iterator cancels the call.

        Args:
            body: From ``serialize``.
            timeout_s: Time to the deadline, seconds, which is passed to the remote; None without a deadline.

        Raises:
            RemoteFailed: On any failure; no other error is raised.
        """
        ...

    async def close(self) -> None:
        """Closes its connections."""
        ...


@dataclass(frozen=True, slots=True)
class EncoderModels:
    """Identity of the model that embeds."""

    embedder: str
    dimension: int

    def difference(self, other: EncoderModels) -> str:
        """Returns how a remote's model differs; empty if it does not."""
        if self == other:
            return ""
        remote, local = f"{other.embedder} ({other.dimension})", f"{self.embedder} ({self.dimension})"
        return f"its embedder is {remote[:200]}, the local one is {local}"


@dataclass(frozen=True, slots=True)
class OutboundTexts:
    """Passages to embed."""

    embedder: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RemoteVectors:
    """Vectors as received, not validated.

    Attributes:
        data: float32, little endian, row after row.
        queue_s: Queueing time as reported, seconds.
        compute_s: Compute time as reported, seconds.
    """

    data: bytes
    queue_s: float
    compute_s: float


class LocalGenerator(Protocol):
    """The generator of this box. Any thread."""

    @property
    def vocabulary(self) -> str:
        """Identity of its vocabulary."""
        ...

    def submit(self, request: GenerationRequest, listener: Listener) -> AnswerHandle:
        """Admits a request; see ``pipeline.ports.Generator``."""
        ...

    def open_continuation(self, request: GenerationRequest, listener: Listener) -> Continuation | None:
        """Prepares an answer that a remote generates; None if there is nothing to generate.

        Raises:
            EdgeRagError: The request could not be answered locally either.
        """
        ...

    def stats(self) -> EngineStats:
        """Returns the state of its batch and queue."""
        ...


class UsageSink(AuditSink, Protocol):
    """Writes audit events and counts usage. Any thread; methods return at once and do not raise."""

    def record_remote(self, client: str, usage: Usage, remote_only: bool) -> None:
        """Adds what remotes generated of a completed answer.

        Args:
            client: The client.
            usage: Tokens they generated; those of the prompt if the local generator did not compute it.
            remote_only: Whether the local generator took no part, and so reports no request of its own.
        """
        ...
