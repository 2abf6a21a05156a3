"""Ports of the query path with several implementations. Each has one contract suite in ``tests/contract/``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Generator as Steps
from typing import Protocol, runtime_checkable

from edge_rag.core.generation import GenerationEvent, GenerationRequest
from edge_rag.core.passage import Reranked, RerankRequest
from edge_rag.errors import EdgeRagError


class Reranker(Protocol):
    """Orders passages. Called by one thread at a time."""

    def rerank(self, requests: Sequence[RerankRequest]) -> list[Reranked]:
        """Returns one entry per request, in order: at most ``limit`` passages each, best first."""
        ...


@runtime_checkable
class StepwiseReranker(Reranker, Protocol):
    """A reranker that can stop between steps of one request."""

    def unread_characters(self, request: RerankRequest) -> int:
        """Returns the characters of the passages that have to be encoded; any thread."""
        ...

    def rerank_in_steps(self, request: RerankRequest, step_characters: int) -> Steps[None, None, Reranked]:
        """Returns what ``rerank`` returns for one request; yields whenever about so many characters were encoded.

        Other requests may be answered between two steps, by the same thread.
        """
        ...


class GenerationHandle(Protocol):
    """A request that the generator has admitted. Methods may be called from any thread, also after its end."""

    def cancel(self, reason: EdgeRagError | None = None) -> None:
        """Ends the request at the next step boundary with ``GenerationFailed(reason)``; idempotent.

        Args:
            reason: The error it ends with; None for RequestCancelled.
        """
        ...

    def pause(self) -> None:
        """Excludes the request from steps, from the next step boundary until ``resume``.

        A paused request holds neither a slot nor pages. It ends with ``GenerationFailed(SlowConsumer)`` if it is not
        resumed in time.
        """
        ...

    def resume(self) -> None:
        """Queues a paused request again; it keeps no priority."""
        ...


class Generator(Protocol):
    """Generates answers. All methods may be called from any thread."""

    def submit(self, request: GenerationRequest, listener: Callable[[GenerationEvent], None]) -> GenerationHandle:
        """Admits a request.

        Args:
            listener: Called on the generator's thread with every event, in order; returns at once. The last event, and
                only the last, is ``Generated`` or ``GenerationFailed``.

        Raises:
            Overloaded: The waiting queue is full.
            RequestTooLarge: Prompt and answer are longer than the model or the device allows.
            DeadlineExceeded: The deadline has passed.
            NotReady: The generator is shutting down.
        """
        ...
