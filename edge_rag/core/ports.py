"""Ports that several rooms share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from edge_rag.core.documents.jobs import IngestPhase
from edge_rag.core.monitoring.event import AuditEvent
from edge_rag.core.placement import OffloadRule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class AuditSink(Protocol):
    """Keeps audit events. Called on any thread."""

    def record(self, event: AuditEvent) -> None:
        """Takes an event; returns at once and does not raise. Events of one request arrive in their order."""
        ...


class Embedder(Protocol):
    """Turns text into vectors. Methods may be called from several threads."""

    @property
    def name(self) -> str:
        """Identity of the model; embedders of one name return the same vectors."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """Most tokens of a text; the rest of a longer text is ignored."""
        ...

    def count_tokens(self, text: str) -> int:
        """Returns the number of tokens of a text."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds passages of documents: float32 [n, dimension], each row of length 1."""
        ...

    def embed_questions(self, questions: Sequence[str]) -> NDArray[np.float32]:
        """Embeds questions: float32 [n, dimension], each row of length 1. Some models embed them differently from
        passages.
        """
        ...


class IngestTask(Protocol):
    """The ingest of one document, as its scheduler controls it. Called on the thread that ingests the document."""

    def check(self) -> None:
        """Returns at once if the ingest goes on.

        Raises:
            NotReady: The daemon is shutting down.
            RequestCancelled: The document's job was cancelled, or its client has gone.
        """
        ...

    def parsing(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Returns the context in which the document is parsed; ``stop`` ends that from another thread."""
        ...

    def embedding(self) -> AbstractContextManager[None]:
        """Returns the context of one turn at the embedder; waits for the turns of other documents."""
        ...

    def pause(self, worked_s: float) -> None:
        """Waits while queries are answered, after so many seconds of work at the embedder."""
        ...

    def charge(self, seconds: float) -> None:
        """Charges work on the document to its owner, seconds."""
        ...

    def report(self, phase: IngestPhase, done: int, total: int) -> None:
        """Records the phase, the number of embedded chunks and the number of all chunks."""
        ...


class Embedding(Protocol):
    """Source of passages' vectors: this box's embedder, or the same model on another box for text that may leave
    this one."""

    def passages(
        self,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule],
        embed_locally: Callable[[Sequence[str]], NDArray[np.float32]],
        yield_to_queries: Callable[[float], None],
        on_progress: Callable[[int], None],
    ) -> NDArray[np.float32]:
        """Embeds the passages of a document: float32 [texts, dimension], each row of length 1. Any thread.

        Args:
            rule: Returns the collection's current offload rule; called on any thread.
            embed_locally: Embeds a few passages on this box, on the caller's thread.
            yield_to_queries: Called after that with its duration, seconds; returns when the next call may start.
        """
        ...
