"""Ingest jobs, to and from protobuf."""

from __future__ import annotations

from edge_rag.api.v1 import documents_pb2
from edge_rag.core.documents.document import IngestOutcome
from edge_rag.core.documents.jobs import IngestWork, Job, JobDocument, JobId, JobPage
from edge_rag.wire.codec import Codec
from edge_rag.wire.types import JobEntry, JobProgress

_JOB = Codec(Job, documents_pb2.Job, names={"job_id": "id"})
_ENTRY = Codec(JobEntry, documents_pb2.JobDocument)
_PROGRESS = Codec(JobProgress, documents_pb2.WatchJobResponse, omit=("work",))
_WORK = Codec(IngestWork, documents_pb2.WatchJobResponse.Work, omit=("job_id",))


def job_to_message(job: Job) -> documents_pb2.Job:
    return _JOB.to_message(job)


def job_from_message(message: documents_pb2.Job) -> Job:
    return _JOB.from_message(message)


def job_document_to_message(document: JobDocument) -> documents_pb2.JobDocument:
    return _ENTRY.to_message(document)


def rejected_to_message(outcome: IngestOutcome) -> documents_pb2.JobDocument:
    """Returns a document that was not accepted as a message."""
    rejected = documents_pb2.JOB_DOCUMENT_STATE_REJECTED
    return documents_pb2.JobDocument(name=outcome.name, state=rejected, reason=outcome.reason)


def job_page_to_message(page: JobPage) -> documents_pb2.WatchJobResponse:
    message = _PROGRESS.to_message(page)
    if page.work is not None:
        message.work.CopyFrom(_WORK.to_message(page.work))
    return message


def progress_from_message(message: documents_pb2.WatchJobResponse) -> JobProgress:
    job_id = JobId(message.job.id)
    work = _WORK.from_message(message.work, job_id=job_id) if message.HasField("work") else None
    return _PROGRESS.from_message(message, work=work)


def ingest_event_from_message(message: documents_pb2.StartIngestResponse) -> Job | JobEntry | None:
    """Returns one message of ``StartIngest``; None for a kind of event that this version does not know."""
    match message.WhichOneof("event"):
        case "job":
            return _JOB.from_message(message.job)
        case "document":
            return _ENTRY.from_message(message.document)
        case _:
            return None
