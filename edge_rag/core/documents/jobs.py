"""Ingest as a job: documents that were accepted, what became of each, and how far the work is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NewType

from edge_rag.core.ids import DocumentId, Unrecognized

JobId = NewType("JobId", str)
"""Opaque, URL-safe."""

Ticket = NewType("Ticket", int)
"""An accepted document, over all jobs; in order of acceptance, never reused."""


class JobState(Enum):
    """Where a job is in its life."""

    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class JobDocumentState(Enum):
    """What became of an accepted document; all but QUEUED are final."""

    QUEUED = "queued"
    ADDED = "added"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"


class IngestPhase(Enum):
    """What is being done to the document in work."""

    PARSING = "parsing"
    EMBEDDING = "embedding"
    COMMITTING = "committing"


@dataclass(frozen=True, slots=True)
class JobDocument:
    """A document of a job.

    Attributes:
        ticket: Its place in the order of acceptance.
        collection: Where it goes.
        name: Its name there.
        size_bytes: Size of its bytes.
        state: What became of it.
        reason: Why it was rejected or superseded, or what was left out of it when it was stored; empty otherwise.
        document_id: Its id once it is stored; None before, and where it was not taken.
        change: Number of the job's change that brought it to this state; a reader goes on after the last one it saw.
        chunks: Number of chunks of the stored document; None where there is none, or it was replaced or deleted since.
        pages: Number of its pages; None also where its format has none.
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
    """A job as a whole.

    Attributes:
        job_id: Its id.
        state: Where it is; RUNNING also while documents are still being handed over.
        started_at: When it was begun, UTC.
        finished_at: When its last document was done with, UTC; None while it runs.
        collections: Names of the collections that its documents are for.
        documents: Number of documents by state; states without one are left out.
        size_bytes: Bytes of all documents.
        done_bytes: Bytes of those that are in a final state.
    """

    job_id: JobId
    state: JobState | Unrecognized
    started_at: datetime
    finished_at: datetime | None
    collections: frozenset[str]
    documents: dict[JobDocumentState | Unrecognized, int]
    size_bytes: int
    done_bytes: int


@dataclass(frozen=True, slots=True)
class IngestWork:
    """The document in work.

    Attributes:
        job_id: The job it belongs to.
        name: Its name.
        phase: What is being done.
        chunks_done: Chunks that are embedded.
        chunks: Chunks to embed; 0 until they are known.
        problem: What keeps the work from going on, for example a full disk; empty while it goes on.
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
