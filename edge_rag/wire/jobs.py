"""Jobs to protobuf."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.api.v1 import documents_pb2
from edge_rag.core.documents.document import IngestOutcome
from edge_rag.core.documents.jobs import IngestPhase, IngestWork, Job, JobDocument, JobDocumentState, JobState
from edge_rag.core.ids import recognized
from edge_rag.pipeline.ingest import JobPage

_STATES: Final = {
    JobState.RUNNING: documents_pb2.JOB_STATE_RUNNING,
    JobState.FINISHED: documents_pb2.JOB_STATE_FINISHED,
    JobState.CANCELLED: documents_pb2.JOB_STATE_CANCELLED,
}
_DOCUMENT_STATES: Final = {
    JobDocumentState.QUEUED: documents_pb2.JOB_DOCUMENT_STATE_QUEUED,
    JobDocumentState.ADDED: documents_pb2.JOB_DOCUMENT_STATE_ADDED,
    JobDocumentState.REPLACED: documents_pb2.JOB_DOCUMENT_STATE_REPLACED,
    JobDocumentState.UNCHANGED: documents_pb2.JOB_DOCUMENT_STATE_UNCHANGED,
    JobDocumentState.REJECTED: documents_pb2.JOB_DOCUMENT_STATE_REJECTED,
    JobDocumentState.SUPERSEDED: documents_pb2.JOB_DOCUMENT_STATE_SUPERSEDED,
    JobDocumentState.CANCELLED: documents_pb2.JOB_DOCUMENT_STATE_CANCELLED,
}
_PHASES: Final = {
    IngestPhase.PARSING: documents_pb2.INGEST_PHASE_PARSING,
    IngestPhase.EMBEDDING: documents_pb2.INGEST_PHASE_EMBEDDING,
    IngestPhase.COMMITTING: documents_pb2.INGEST_PHASE_COMMITTING,
}


def job_to_message(given: Job) -> documents_pb2.Job:
    """Returns a job."""
    return documents_pb2.Job(
        id=given.job_id,
        state=_STATES[recognized(given.state)],
        started_at=_timestamp(given.started_at),
        finished_at=None if given.finished_at is None else _timestamp(given.finished_at),
        documents=[
            documents_pb2.Job.Count(state=_DOCUMENT_STATES[recognized(state)], count=count)
            for state, count in given.documents.items()
        ],
        size_bytes=given.size_bytes,
        done_bytes=given.done_bytes,
        collections=sorted(given.collections),
    )


def job_document_to_message(given: JobDocument) -> documents_pb2.JobDocument:
    """Returns a document of a job."""
    return documents_pb2.JobDocument(
        collection=given.collection,
        name=given.name,
        size_bytes=given.size_bytes,
        state=_DOCUMENT_STATES[given.state],
        reason=given.reason,
        document_id=given.document_id,
        chunks=given.chunks,
        pages=given.pages,
    )


def rejected_to_message(outcome: IngestOutcome) -> documents_pb2.JobDocument:
    """Returns a document that was not accepted."""
    rejected = documents_pb2.JOB_DOCUMENT_STATE_REJECTED
    return documents_pb2.JobDocument(name=outcome.name, state=rejected, reason=outcome.reason)


def job_page_to_message(given: JobPage) -> documents_pb2.WatchJobResponse:
    """Returns a part of a job's history."""
    return documents_pb2.WatchJobResponse(
        job=job_to_message(given.job),
        documents=[job_document_to_message(each) for each in given.documents],
        cursor=given.cursor,
        work=None if given.work is None else _work(given.work),
    )


def _work(given: IngestWork) -> documents_pb2.WatchJobResponse.Work:
    return documents_pb2.WatchJobResponse.Work(
        name=given.name,
        phase=_PHASES[recognized(given.phase)],
        chunks_done=given.chunks_done,
        chunks=given.chunks,
        problem=given.problem,
    )


def _timestamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
