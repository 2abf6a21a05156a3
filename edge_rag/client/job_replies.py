"""Jobs from protobuf."""

from __future__ import annotations

from datetime import UTC
from typing import Final

from edge_rag.api.v1 import documents_pb2
from edge_rag.client.recognizing import read_word
from edge_rag.client.values import JobEntry, JobProgress
from edge_rag.core.documents.jobs import IngestPhase, IngestWork, Job, JobDocumentState, JobId, JobState
from edge_rag.core.ids import DocumentId

_STATES: Final = {
    documents_pb2.JOB_STATE_RUNNING: JobState.RUNNING,
    documents_pb2.JOB_STATE_FINISHED: JobState.FINISHED,
    documents_pb2.JOB_STATE_CANCELLED: JobState.CANCELLED,
}
_DOCUMENT_STATES: Final = {
    documents_pb2.JOB_DOCUMENT_STATE_QUEUED: JobDocumentState.QUEUED,
    documents_pb2.JOB_DOCUMENT_STATE_ADDED: JobDocumentState.ADDED,
    documents_pb2.JOB_DOCUMENT_STATE_REPLACED: JobDocumentState.REPLACED,
    documents_pb2.JOB_DOCUMENT_STATE_UNCHANGED: JobDocumentState.UNCHANGED,
    documents_pb2.JOB_DOCUMENT_STATE_REJECTED: JobDocumentState.REJECTED,
    documents_pb2.JOB_DOCUMENT_STATE_SUPERSEDED: JobDocumentState.SUPERSEDED,
    documents_pb2.JOB_DOCUMENT_STATE_CANCELLED: JobDocumentState.CANCELLED,
}
_PHASES: Final = {
    documents_pb2.INGEST_PHASE_PARSING: IngestPhase.PARSING,
    documents_pb2.INGEST_PHASE_EMBEDDING: IngestPhase.EMBEDDING,
    documents_pb2.INGEST_PHASE_COMMITTING: IngestPhase.COMMITTING,
}


def ingest_event(message: documents_pb2.StartIngestResponse) -> Job | JobEntry | None:
    """Reads one message of ``StartIngest``; None for a kind of event that this client does not know."""
    match message.WhichOneof("event"):
        case "job":
            return job(message.job)
        case "document":
            return _document(message.document)
        case _:
            return None


def progress(message: documents_pb2.WatchJobResponse) -> JobProgress:
    """Reads one message of ``WatchJob``."""
    documents = tuple(_document(document) for document in message.documents)
    job_id = JobId(message.job.id)
    work = _work(message.work, job_id) if message.HasField("work") else None
    return JobProgress(job(message.job), documents, message.cursor, work)


def job(message: documents_pb2.Job) -> Job:
    """Reads a job."""
    return Job(
        job_id=JobId(message.id),
        state=read_word(_STATES, message.state),
        started_at=message.started_at.ToDatetime(tzinfo=UTC),
        finished_at=message.finished_at.ToDatetime(tzinfo=UTC) if message.HasField("finished_at") else None,
        collections=frozenset(message.collections),
        documents={read_word(_DOCUMENT_STATES, count.state): count.count for count in message.documents},
        size_bytes=message.size_bytes,
        done_bytes=message.done_bytes,
    )


def _document(message: documents_pb2.JobDocument) -> JobEntry:
    return JobEntry(
        collection=message.collection,
        name=message.name,
        size_bytes=message.size_bytes,
        state=read_word(_DOCUMENT_STATES, message.state),
        reason=message.reason,
        document_id=DocumentId(message.document_id) if message.HasField("document_id") else None,
        chunks=message.chunks if message.HasField("chunks") else None,
        pages=message.pages if message.HasField("pages") else None,
    )


def _work(message: documents_pb2.WatchJobResponse.Work, job_id: JobId) -> IngestWork:
    phase = read_word(_PHASES, message.phase)
    return IngestWork(job_id, message.name, phase, message.chunks_done, message.chunks, message.problem)
