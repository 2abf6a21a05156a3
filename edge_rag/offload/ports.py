"""What this room needs: remotes that generate, the local generator, and sinks for audit events and usage."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Protocol

from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.generation import GeneratedChunk, GenerationEvent, GenerationRequest
from edge_rag.core.monitoring.status import EngineStats
from edge_rag.core.placement import OffloadUse
from edge_rag.core.ports import AuditSink
from edge_rag.core.query import AnswerFormat
from edge_rag.errors import EdgeRagError
from edge_rag.offload.generation.request_builder import OutboundRequest, PromptText

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
        reason: Why it ended.
        usage: What it used there; None if not reported.
        queue_s: Time in the remote's queue, seconds; 0 if not reported.
        compute_s: Time of generation, seconds; 0 if not reported.
    """

    reason: FinishReason
    usage: Usage | None = None
    queue_s: float = 0.0
    compute_s: float = 0.0


RemoteEvent = GeneratedChunk | RemoteLoad | RemoteFinished


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


class LocalHandle(Protocol):
    """A request that a generator has admitted; see ``pipeline.ports.GenerationHandle``. Any thread."""

    def cancel(self, error: EdgeRagError | None = None) -> None:
        """Ends it; idempotent."""
        ...

    def pause(self) -> None:
        """Suspends generation until ``resume``."""
        ...

    def resume(self) -> None:
        """Continues generation."""
        ...


class ResumableAnswer(Protocol):
    """An answer that a remote generates: checked here, and continued here if the remote fails. One thread at a time."""

    @property
    def prompt(self) -> PromptText:
        """The prompt."""
        ...

    @property
    def generated_tokens(self) -> int:
        """Tokens accepted so far."""
        ...

    def append(self, chunk: GeneratedChunk) -> FinishReason | None:
        """Checks and emits a chunk; returns the finish reason if the answer ends with it.

        Raises:
            RemoteFailed: The chunk violates the request's constraints; nothing of it was emitted.
        """
        ...

    def finish(self, reason: FinishReason, usage: Usage | None, queue_s: float, compute_s: float) -> None:
        """Ends the answer successfully.

        Raises:
            RemoteFailed: The answer is incomplete; nothing was emitted.
        """
        ...

    def close(self) -> None:
        """Releases the local generator that was kept for a continuation; idempotent."""
        ...

    def resume_locally(self) -> Callable[[], None]:
        """Has the local generator write the rest, on its own thread; returns a function that cancels it.

        Raises:
            EdgeRagError: The local generator did not admit it.
        """
        ...


class LocalGenerator(Protocol):
    """The generator of this box. Any thread."""

    @property
    def vocabulary(self) -> str:
        """Identity of its vocabulary."""
        ...

    def submit(self, request: GenerationRequest, listener: Listener) -> LocalHandle:
        """Admits a request; see ``pipeline.ports.Generator``."""
        ...

    def open_continuation(self, request: GenerationRequest, listener: Listener) -> ResumableAnswer | None:
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
