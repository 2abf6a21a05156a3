"""What the pipeline needs of the rooms below it. Each port has one contract suite in ``tests/contract/``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from edge_rag.core.decision import Decision
from edge_rag.core.document import DocumentInfo, IngestOutcome, Upload
from edge_rag.core.generation import GenerationEvent, GenerationRequest
from edge_rag.core.ids import DocumentId
from edge_rag.core.passage import Reranked, RerankRequest, RetrievalRequest, Retrieved


class Retriever(Protocol):
    """Finds passages. Called by one thread at a time."""

    def retrieve(self, requests: Sequence[RetrievalRequest]) -> list[Retrieved | Exception]:
        """Answers each request, in order; one request's failure is its own entry and leaves the others unharmed."""
        ...


class Reranker(Protocol):
    """Orders passages. Called by one thread at a time."""

    def rerank(self, requests: Sequence[RerankRequest]) -> list[Reranked]:
        """Answers each request, in order: at most ``limit`` passages each, best first."""
        ...


class GenerationHandle(Protocol):
    """A request that the generator has admitted."""

    def cancel(self) -> None:
        """Ends the request at the next step boundary with ``GenerationFailed(RequestCancelled)``; idempotent, any
        thread."""
        ...


class Generator(Protocol):
    """Writes answers. All methods may be called from any thread."""

    def submit(self, request: GenerationRequest, listener: Callable[[GenerationEvent], None]) -> GenerationHandle:
        """Admits a request.

        Args:
            request: What to answer.
            listener: Called on the generator's thread for every event, in order; must return at once. The last event is
                ``Generated`` or ``GenerationFailed``, exactly one of them, exactly once.

        Raises:
            Overloaded: The waiting queue is full.
            NeverFits: Prompt and answer are longer than the model or the device allows.
            DeadlineExceeded: The deadline has passed.
            NotReady: The generator is shutting down.
        """
        ...


class DecisionSink(Protocol):
    """Keeps the trail of decisions."""

    def record(self, decision: Decision) -> None:
        """Takes a decision; must return at once and not raise."""
        ...


class DocumentLibrary(Protocol):
    """Keeps documents. All methods may be called from any thread."""

    def ingest(self, upload: Upload) -> IngestOutcome:
        """Takes one document; when this returns anything but REJECTED, the document is durable and can be found.

        Raises:
            StorageError: The data directory failed; the document was not taken.
        """
        ...

    def get(self, collection: str, document: str) -> tuple[DocumentInfo, str]:
        """Returns a document's record and stored text, by id or by name.

        Raises:
            CollectionNotFound, DocumentNotFound: There is none.
        """
        ...

    def list(self, collection: str, after: DocumentId | None, limit: int) -> tuple[DocumentInfo, ...]:
        """Returns up to ``limit`` records in order of id, after the given one.

        Raises:
            CollectionNotFound: There is none.
        """
        ...

    def delete(self, collection: str, document: str) -> DocumentInfo:
        """Removes a document, its text, full text and vectors; durable when this returns.

        Raises:
            CollectionNotFound, DocumentNotFound: There is none.
        """
        ...

    def collections(self) -> dict[str, int]:
        """Returns the number of documents of each collection, by name."""
        ...
