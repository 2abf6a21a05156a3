"""What the pipeline needs of the rooms below it. Each port has one contract suite in ``tests/contract/``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from edge_rag.core.documents.collection import BackendKind, CollectionInfo, CollectionSettings
from edge_rag.core.documents.document import DocumentInfo, IngestOutcome, Upload
from edge_rag.core.documents.jobs import IngestPhase, Job, JobDocument, JobDocumentState, JobId, Ticket
from edge_rag.core.generation import GenerationEvent, GenerationRequest
from edge_rag.core.ids import DocumentId
from edge_rag.core.monitoring.status import IndexInUse
from edge_rag.core.passage import Reranked, RerankRequest, RetrievalRequest, Retrieved
from edge_rag.errors import EdgeRagError


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
    """A request that the generator has admitted. All methods may be called from any thread, also when it is over."""

    def cancel(self, why: EdgeRagError | None = None) -> None:
        """Ends the request at the next step boundary with ``GenerationFailed(why)``; idempotent.

        Args:
            why: What it ends with; None stands for RequestCancelled.
        """
        ...

    def pause(self) -> None:
        """Takes the request out of the steps, at the next boundary, until ``resume``.

        A paused request holds neither slot nor pages. After too long it ends with ``GenerationFailed(SlowConsumer)``.
        """
        ...

    def resume(self) -> None:
        """Lets a paused request go on; it waits for a slot like others."""
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
            RequestTooLarge: Prompt and answer are longer than the model or the device allows.
            DeadlineExceeded: The deadline has passed.
            NotReady: The generator is shutting down.
        """
        ...


IngestProgress = Callable[[IngestPhase, int, int], None]
"""Told what is being done to a document, and of how many of its chunks so far; must return at once and not raise."""


class CollectionLibrary(Protocol):
    """Keeps collections. All methods may be called from any thread, and raise StorageError where the disk failed."""

    def create(self, name: str, settings: CollectionSettings) -> CollectionInfo:
        """Makes an empty collection that stays until it is deleted.

        Raises:
            InvalidRequest: No collection may be called so.
            CollectionExists: There is one of that name.
        """
        ...

    def get(self, name: str) -> CollectionInfo:
        """Returns a collection.

        Raises:
            CollectionNotFound: There is none of that name.
        """
        ...

    def list(self) -> tuple[CollectionInfo, ...]:
        """Returns all collections, by name."""
        ...

    def update(self, name: str, changes: dict[str, Any]) -> CollectionInfo:
        """Changes settings, given by field of ``CollectionSettings``; the collection stays until it is deleted.

        Raises:
            CollectionNotFound: There is none of that name.
        """
        ...

    def delete(self, name: str) -> CollectionInfo:
        """Removes a collection with all that is in it; durable when this returns.

        Raises:
            CollectionNotFound: There is none of that name.
        """
        ...


class DocumentLibrary(Protocol):
    """Keeps documents. All methods may be called from any thread."""

    def ingest(self, upload: Upload) -> IngestOutcome:
        """Takes one document; when this returns anything but REJECTED, the document is durable and can be found.

        Raises:
            StorageError: The data directory failed; the document was not taken.
        """
        ...

    def take(self, upload: Upload, ticket: Ticket, progress: IngestProgress) -> IngestOutcome | None:
        """Takes a document that was accepted before; ``ingest`` otherwise.

        Where it is stored, the ledger of jobs says so in the same transaction. What was ingested or deleted directly
        since it was accepted stays as it is.

        Returns:
            What became of it; None where something newer came meanwhile or its job was cancelled.

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

    def indexes(self) -> tuple[IndexInUse, ...]:
        """Returns how the vectors of each collection are searched, by name."""
        ...

    def move_index(self, collection: str, home: BackendKind) -> IndexInUse:
        """Has a collection's vectors indexed elsewhere; searches go on meanwhile. Returns how it is searched then.

        Raises:
            CollectionNotFound: There is none.
            ConfigurationError: There is no such place.
            StorageError: It could not be filled, or does not find what it should; nothing has changed.
        """
        ...


class AcceptedDocument(Protocol):
    """An accepted document whose turn it is."""

    @property
    def job_id(self) -> JobId:
        """Its job."""
        ...

    @property
    def ticket(self) -> Ticket:
        """Its ticket."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...


class JobStore(Protocol):
    """Keeps jobs and the documents accepted for them. Any thread; every change is durable on return.

    Every method raises StorageError where the data directory failed, and those that are given a job JobNotFound.
    """

    def start(self) -> Job:
        """Begins a job."""
        ...

    def accept(self, job_id: JobId, upload: Upload) -> JobDocument:
        """Takes a document into custody.

        Raises:
            StorageFull: The spool or the disk is full; the document was not taken.
        """
        ...

    def has_room(self, size_bytes: int) -> bool:
        """Whether a document of that size would be accepted now."""
        ...

    def hand_over(self, job_id: JobId) -> None:
        """Notes that a job gets no further documents."""
        ...

    def next(self) -> AcceptedDocument | None:
        """Returns the document that was accepted first of those that wait; None if none does."""
        ...

    def upload(self, ticket: Ticket) -> Upload:
        """Returns an accepted document with its bytes.

        Raises:
            StorageCorrupt: The bytes are missing or damaged.
        """
        ...

    def settle(
        self, ticket: Ticket, state: JobDocumentState, reason: str = "", document_id: DocumentId | None = None
    ) -> None:
        """Brings an accepted document to its final state, unless it is in one already."""
        ...

    def cancel(self, job_id: JobId) -> Job:
        """Ends a job: what is not stored yet will not be."""
        ...

    def job(self, job_id: JobId) -> Job:
        """Returns a job."""
        ...

    def jobs(self, limit: int, within: frozenset[str] | None = None) -> tuple[Job, ...]:
        """Returns the latest jobs, the newest first.

        Args:
            limit: Most jobs.
            within: Only jobs that have documents, all of them for these collections; None for all jobs.
        """
        ...

    def changes(self, job_id: JobId, after: int, limit: int) -> tuple[Job, tuple[JobDocument, ...]]:
        """Returns a job and those of its documents that changed after a change, in order of their changes."""
        ...
