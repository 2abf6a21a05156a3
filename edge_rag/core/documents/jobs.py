"""Ingest jobs: queued documents, their results, and progress."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NewType

from edge_rag.core.ids import DocumentId, Unrecognized

JobId = NewType("JobId", str)
"""Opaque, URL-safe."""

Ticket = NewType("Ticket", int)
"""Id of a queued document over all jobs; in order of acceptance, never reused."""


class JobState(Enum):
    """State of a job."""

    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class JobDocumentState(Enum):
    """State of a job's document; all but QUEUED are final."""

    QUEUED = "queued"
    ADDED = "added"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"


class IngestPhase(Enum):
    """The current step of the document in progress."""

    PARSING = "parsing"
    EMBEDDING = "embedding"
    COMMITTING = "committing"


@dataclass(frozen=True, slots=True)
class QueuedDocument:
    """A document that waits to be stored.

    Attributes:
        order: Its position in the order of acceptance: the ticket of a document of a job; negative for a document whose
            caller waits, which therefore takes precedence over the jobs of that caller.
        job_id: Id of its job; None for a document whose caller waits.
        size_bytes: Number of its bytes.
    """

    order: int
    job_id: JobId | None
    owner: str
    collection: str
    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class JobBacklog:
    """What waits of a job."""

    job_id: JobId
    owner: str
    documents: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class JobDocument:
    """A document of a job.

    Attributes:
        ticket: Its position in the order of acceptance.
        collection: Name of its collection.
        name: Name of the document.
        size_bytes: Number of its bytes.
        state: Its state.
        reason: Why it was rejected or superseded, or which parts were left out of a stored one; empty otherwise.
        document_id: Its id once it is stored; None before, and if it was not stored.
        change: Number of the change of the job that brought it to this state; readers continue after the last one seen.
        chunks: Number of chunks of the stored document; None if there is none, or it was replaced or deleted since.
        pages: Number of its pages; None also if its format has none.
    """

    ticket: Ticket
    collection: str
    name: str
    size_bytes: int
    state: JobDocumentState
    reason: str
    document_id: DocumentId | None
    change: int
    chunks: int | None
    pages: int | None


@dataclass(frozen=True, slots=True)
class Job:
    """A job.

    Attributes:
        job_id: Id.
        state: State; RUNNING also during the upload.
        started_at: Start, UTC.
        finished_at: End of its last document, UTC; None while it runs.
        collections: Names of the collections of its documents.
        documents: Number of documents by state; states without documents are left out.
        size_bytes: Bytes of all documents.
        done_bytes: Bytes of documents in a final state.
        documents_ahead: Documents of other jobs that are expected to be stored before its last one; 0 once it has
            ended.
        time_left_s: Expected time until its last accepted document is stored, seconds; None once it has ended, and
            until the daemon has stored a document since its start.
    """

    job_id: JobId
    state: JobState | Unrecognized
    started_at: datetime
    finished_at: datetime | None
    collections: frozenset[str]
    documents: dict[JobDocumentState | Unrecognized, int]
    size_bytes: int
    done_bytes: int
    documents_ahead: int = 0
    time_left_s: float | None = None


@dataclass(frozen=True, slots=True)
class IngestWork:
    """The document in progress.

    Attributes:
        job_id: Id of its job.
        name: Name of the document.
        phase: The current step.
        chunks_done: Chunks embedded so far.
        chunks: Chunks to embed; 0 until the number is known.
        problem: What blocks the work, for example a full disk; empty if nothing does.
    """

    job_id: JobId
    name: str
    phase: IngestPhase | Unrecognized
    chunks_done: int = 0
    chunks: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class JobPage:
    """A part of a job's history.

    Attributes:
        job: The job's current state.
        documents: The current state of documents that changed, in order of their changes.
        cursor: Number of the last change in this page; the next page begins after it.
        work: The document that is being stored, if it belongs to this job.
    """

    job: Job
    documents: tuple[JobDocument, ...]
    cursor: int
    work: IngestWork | None
