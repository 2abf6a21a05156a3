"""Ports that the rooms below the pipeline implement. Each has one contract suite in ``tests/contract/``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Generator as Steps
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from edge_rag.core.documents.collection import BackendKind, CollectionInfo, CollectionSettings
from edge_rag.core.documents.document import (
    ChunkPage,
    ChunkTerms,
    Content,
    DocumentInfo,
    DocumentPlace,
    IngestOutcome,
    RejectionCause,
    Upload,
)
from edge_rag.core.documents.jobs import (
    Job,
    JobBacklog,
    JobDocument,
    JobDocumentState,
    JobId,
    QueuedDocument,
    Ticket,
)
from edge_rag.core.documents.listing import EVERYTHING, DocumentSelection, ListCursor
from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.documents.parts import ChunkPlace
from edge_rag.core.generation import GenerationEvent, GenerationRequest
from edge_rag.core.ids import DocumentId
from edge_rag.core.monitoring.status import IndexInUse
from edge_rag.core.passage import Reranked, RerankRequest, RetrievalRequest, Retrieved
from edge_rag.core.ports import IngestTask
from edge_rag.errors import EdgeRagError


class Retriever(Protocol):
    """Finds passages. Called by one thread at a time."""

    def retrieve(self, requests: Sequence[RetrievalRequest]) -> list[Retrieved | Exception]:
        """Returns one entry per request, in order; a failed request has its exception as entry."""
        ...


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
            request: The request.
            listener: Called on the generator's thread with every event, in order; returns at once. The last event, and
                only the last, is ``Generated`` or ``GenerationFailed``.

        Raises:
            Overloaded: The waiting queue is full.
            RequestTooLarge: Prompt and answer are longer than the model or the device allows.
            DeadlineExceeded: The deadline has passed.
            NotReady: The generator is shutting down.
        """
        ...


class CollectionLibrary(Protocol):
    """Stores collections. Methods may be called from any thread and raise StorageError where the disk fails."""

    def create(self, name: str, settings: CollectionSettings) -> CollectionInfo:
        """Creates an empty collection, which exists until it is deleted.

        Raises:
            InvalidRequest: The name is not legal.
            CollectionExists: A collection has that name.
        """
        ...

    def get(self, name: str) -> CollectionInfo:
        """Returns a collection.

        Raises:
            CollectionNotFound: No collection has that name.
        """
        ...

    def list(self) -> tuple[CollectionInfo, ...]:
        """Returns all collections, by name."""
        ...

    def update(self, name: str, changes: dict[str, Any]) -> CollectionInfo:
        """Changes settings by field name of ``CollectionSettings``; the collection then exists until it is deleted.

        Raises:
            CollectionNotFound: No collection has that name.
        """
        ...

    def delete(self, name: str) -> CollectionInfo:
        """Removes a collection and its contents; durable on return.

        Raises:
            CollectionNotFound: No collection has that name.
        """
        ...


class OriginalContent(Protocol):
    """The bytes of a stored document, open for reading: they stay readable if it is removed meanwhile. Any thread."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Returns up to ``size`` bytes from a position on; fewer at the end.

        Raises:
            StorageError: They could not be read.
        """
        ...

    def close(self) -> None:
        """Closes it; idempotent."""
        ...


class DocumentLibrary(Protocol):
    """Stores documents. Methods may be called from any thread."""

    def ingest(self, upload: Upload, task: IngestTask) -> IngestOutcome:
        """Stores one document. With any outcome but REJECTED it is durable and searchable on return.

        Raises:
            StorageError: The data directory failed; the document was not stored.
            NotReady, RequestCancelled: The task was ended; the document was not stored.
        """
        ...

    def take(self, upload: Upload, ticket: Ticket, task: IngestTask) -> IngestOutcome | None:
        """Stores a document that a job has accepted; otherwise like ``ingest``.

        The job's record changes in the same transaction. A direct ingest or delete of the same name after the document
        was accepted takes precedence.

        Returns:
            The outcome; None if the document is superseded or its job was cancelled.

        Raises:
            StorageError: The data directory failed; the document was not stored.
            NotReady, RequestCancelled: The task was ended; the document was not stored.
        """
        ...

    def get(
        self, collection: str, document: str, start: int = 0, end: int | None = None, max_bytes: int | None = None
    ) -> tuple[DocumentInfo, str]:
        """Returns a document's record and characters ``start`` to ``end`` of its stored text, by id or by name.

        The range ends earlier if it has more than ``max_bytes`` in UTF-8.

        Raises:
            CollectionNotFound, DocumentNotFound: It does not exist.
        """
        ...

    def list(
        self,
        collection: str,
        after: ListCursor | None,
        limit: int,
        max_bytes: int | None = None,
        *,
        selection: DocumentSelection = EVERYTHING,
        skip: int = 0,
    ) -> tuple[DocumentInfo, ...]:
        """Returns up to ``limit`` records of a selection; fewer if they have ``max_bytes``.

        They begin after a place in the list, and after ``skip`` more.

        Raises:
            CollectionNotFound: It does not exist.
        """
        ...

    def count(self, collection: str, selection: DocumentSelection) -> int:
        """Returns the number of documents of a selection.

        Raises:
            CollectionNotFound: It does not exist.
        """
        ...

    def by_id(self, document: DocumentId) -> DocumentInfo | None:
        """Returns the record of the document with this id in any collection; None if there is none."""
        ...

    def get_with_chunks(
        self, collection: str, document: str, start: int, end: int
    ) -> tuple[DocumentInfo, str, tuple[ChunkPlace, ...]]:
        """Returns a record, characters ``start`` to ``end`` of the text, and the chunks with text of it and the next.

        Raises:
            CollectionNotFound, DocumentNotFound: It does not exist.
        """
        ...

    def place(self, collection: str, document: str, position: int) -> DocumentPlace:
        """Returns where in a document a character of its text is, by id or by name of the document.

        Raises:
            CollectionNotFound, DocumentNotFound: It does not exist.
        """
        ...

    def chunks(self, collection: str, document: str, after: int | None, limit: int, max_bytes: int) -> ChunkPage:
        """Returns up to ``limit`` chunks of a document, by id or by name, after the one of a position, in order.

        The page ends with the chunk that brings the texts to ``max_bytes``.

        Raises:
            CollectionNotFound, DocumentNotFound: It does not exist.
        """
        ...

    def chunk_terms(self, collection: str, document: str, position: int) -> ChunkTerms:
        """Returns what the full text index holds of a chunk of a document, by id or by name.

        Raises:
            CollectionNotFound, DocumentNotFound: It does not exist.
            InvalidRequest: The document has no chunk of that position.
        """
        ...

    def open_original(self, collection: str, document: str) -> tuple[DocumentInfo, OriginalContent]:
        """Opens the bytes of a document as they were ingested, by id or by name; the caller closes them.

        Raises:
            CollectionNotFound, DocumentNotFound: It does not exist.
            OriginalNotKept: Its bytes are not kept.
            StorageCorrupt: They are missing or damaged.
        """
        ...

    def delete(self, collection: str, document: str) -> DocumentInfo:
        """Removes a document with its text, full-text entries and vectors; durable on return.

        Raises:
            CollectionNotFound, DocumentNotFound: It does not exist.
        """
        ...

    def update_metadata(self, collection: str, document: str, given: Metadata) -> DocumentInfo:
        """Replaces the metadata that a client gave with a document, without ingesting it again; durable on return.

        Raises:
            CollectionNotFound, DocumentNotFound: It does not exist.
            InvalidRequest: The metadata are not allowed.
        """
        ...

    def collections(self) -> dict[str, int]:
        """Returns the number of documents of each collection, by name."""
        ...

    def indexes(self) -> tuple[IndexInUse, ...]:
        """Returns the vector index of each collection, by name."""
        ...

    def move_index(self, collection: str, backend: BackendKind) -> IndexInUse:
        """Moves a collection's vectors to another index backend while searches continue. Returns the new index.

        Raises:
            CollectionNotFound: It does not exist.
            ConfigurationError: The backend is not configured.
            StorageError: The new index could not be filled or failed its check; nothing has changed.
        """
        ...


class IncomingDocument(Protocol):
    """A document that is being received. Any thread."""

    @property
    def granted(self) -> Future[None]:
        """Done when there is room for the document, which may not be written before.

        Its exception is NotReady if the daemon is shutting down.
        """
        ...

    def write(self, piece: bytes) -> None:
        """Writes the next bytes.

        Raises:
            StorageFull: The disk is full.
            StorageError: The disk failed.
        """
        ...

    def finish(self) -> Content:
        """Ends the document and returns its bytes, which can be read until ``discard``.

        Raises:
            StorageFull: The disk is full.
            StorageError: The disk failed.
        """
        ...

    def discard(self) -> None:
        """Deletes the document, unless a job has accepted it; idempotent."""
        ...


class UploadSpool(Protocol):
    """Receives documents to disk within a bound that those who upload share. Any thread."""

    def receive(self, owner: str, size_bytes: int) -> IncomingDocument:
        """Begins a document, which ``discard`` must end.

        Args:
            owner: Name of the identity that uploads it.
            size_bytes: Its size, or the largest that it may have.
        """
        ...

    def drain(self) -> None:
        """Refuses documents that wait for room, now and later; those that are being received go on."""
        ...


class JobStore(Protocol):
    """Stores jobs and the documents accepted for them. Any thread; every change is durable on return.

    Every method raises StorageError where the data directory fails, and methods with a job id raise JobNotFound.
    """

    def start(self, owner: str) -> Job:
        """Creates a job of an identity, given by name; it is durable from its first document on."""
        ...

    def accept(self, job_id: JobId, upload: Upload) -> JobDocument:
        """Keeps a document's bytes until it is ingested.

        Raises:
            StorageFull: The spool or the disk is full; the document was not accepted.
        """
        ...

    def finish_uploads(self, job_id: JobId) -> None:
        """Closes a job for further documents."""
        ...

    def owners(self) -> Sequence[str]:
        """Returns the names of those who have documents waiting."""
        ...

    def waiting(self, owner: str, after: str) -> Sequence[QueuedDocument]:
        """Returns a bounded number of waiting documents of an owner, the oldest of each collection.

        A document is left out while an older one of that name in its collection waits.

        Args:
            owner: Name of the owner.
            after: Name of a collection; where there are too many, those that follow it by name come first.
        """
        ...

    def is_queued(self, ticket: Ticket) -> bool:
        """Returns whether a document waits."""
        ...

    def backlog(self) -> Sequence[JobBacklog]:
        """Returns what waits of each job, in order of their start."""
        ...

    def upload(self, ticket: Ticket) -> Upload:
        """Returns an accepted document; its bytes are read on use."""
        ...

    def complete(
        self,
        ticket: Ticket,
        state: JobDocumentState,
        reason: str = "",
        document_id: DocumentId | None = None,
        cause: RejectionCause | None = None,
    ) -> None:
        """Sets the final state of an accepted document; does nothing if it has one."""
        ...

    def cancel(self, job_id: JobId) -> Job:
        """Cancels a job: its waiting documents are not stored."""
        ...

    def job(self, job_id: JobId) -> Job:
        """Returns a job."""
        ...

    def jobs(self, limit: int, within: frozenset[str] | None = None) -> tuple[Job, ...]:
        """Returns the latest jobs that have documents, the newest first.

        Args:
            limit: Maximum number of jobs.
            within: Only jobs whose documents are all in these collections; None for all jobs.
        """
        ...

    def changes(self, job_id: JobId, after: int, limit: int) -> tuple[Job, tuple[JobDocument, ...]]:
        """Returns a job and its documents that changed after change number ``after``, in order of their changes."""
        ...
