"""Documents on their way in, and the jobs that bring them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import BinaryIO

from edge_rag.api.v1 import documents_pb2
from edge_rag.client import job_replies, replies
from edge_rag.client.call_flow import Begin, Flow, Pause, Tell, Telling, Terms, received, repeated
from edge_rag.client.calls.upload import OutgoingDocument, upload
from edge_rag.client.failures import ClientError
from edge_rag.client.methods import CANCEL_JOB, INGEST, LIST_JOBS, START_INGEST, WATCH_JOB
from edge_rag.client.requests import sendable
from edge_rag.client.values import JobEntry, JobProgress
from edge_rag.core.documents.document import IngestOutcome
from edge_rag.core.documents.jobs import Job


def ingest(
    terms: Terms,
    name: str,
    open_content: Callable[[], BinaryIO],
    *,
    collection: str = "default",
    media_type: str = "",
    metadata: Mapping[str, object] | None = None,
) -> Flow[IngestOutcome]:
    """Hands one document over.

    Args:
        name: Name of the document, unique within its collection.
        open_content: Opens its bytes, seekable; called once an attempt, possibly on another thread.
        collection: Where it goes.
        media_type: What it is; empty to have it found out.
        metadata: Texts, numbers, truth values, dates and lists of texts by key; win over what the document says of
            itself.

    Returns:
        What became of it.

    Raises:
        ClientError: The call failed; the document was not taken.
        OSError: The content could not be opened or read to its end; the document was not taken.

    Example:
        >>> client.ingest("note.txt", lambda: io.BytesIO(b"The bilge pump is red."), metadata={"year": 2026})
    """
    one = OutgoingDocument(sendable("name", name), open_content, media_type, metadata or {})
    place = sendable("collection", collection)
    return replies.ingest_outcome((yield from repeated(INGEST, lambda: upload((one,), place), terms)))


def start_ingest(
    terms: Terms, documents: Iterable[OutgoingDocument], *, collection: str = "default"
) -> Telling[Job | JobEntry]:
    """Has documents accepted and stored afterwards, as a job.

    Args:
        documents: What to hand over; taken one by one on another thread, each opened when its turn comes and closed
            again.
        collection: Where they go.

    Yields:
        The job, then each document once it is accepted, which is for good, or rejected. Not repeated: what was
        accepted before a failure stands.

    Raises:
        ClientError: The call failed.
        OSError: A document could not be opened or read to its end; it and the rest were not handed over.

    Example:
        >>> for event in client.start_ingest(map(OutgoingDocument.of_file, Path("manuals").glob("*.md"))):
        ...     print(event)
    """
    yield Begin(START_INGEST, upload(documents, sendable("collection", collection)), terms.timeout_s)
    while (message := (yield from received(START_INGEST))) is not None:
        event = job_replies.ingest_event(message)
        if event is not None:
            yield Tell(event)


def watch_job(terms: Terms, job_id: str, cursor: int = 0) -> Telling[JobProgress]:
    """Tells what becomes of a job's documents, as it happens; ends with the job.

    A connection that is lost, or a daemon that is restarted, is waited for as the retry policy says, and the job
    followed on from where it was.

    Args:
        job_id: The job.
        cursor: Where to go on from; 0 begins at the beginning.

    Raises:
        ClientError: The call failed.

    Example:
        >>> for progress in client.watch_job(client.jobs(limit=1)[0].job_id):
        ...     print(progress.job.state, [entry.name for entry in progress.documents])
    """
    failures, waited_s, reached = 0, 0.0, False
    while True:
        request = documents_pb2.WatchJobRequest(job_id=sendable("job_id", job_id), cursor=cursor)
        try:
            yield Begin(WATCH_JOB, request, terms.timeout_s)
            while (message := (yield from received(WATCH_JOB))) is not None:
                failures, waited_s, reached, cursor = 0, 0.0, True, message.cursor
                yield Tell(job_replies.progress(message))
            return
        except ClientError as error:
            failures += 1
            delay_s = terms.retry.delay(error, failures, waited_s, terms.draw(), reached=reached)
            if delay_s is None:
                raise
        yield Pause(delay_s)
        waited_s += delay_s


def jobs(terms: Terms, limit: int | None = None) -> Flow[tuple[Job, ...]]:
    """Returns the latest jobs, the newest first.

    Raises:
        ClientError: The call failed.

    Example:
        >>> print([job.state for job in client.jobs(limit=5)])
    """
    request = documents_pb2.ListJobsRequest(limit=limit)
    reply = yield from repeated(LIST_JOBS, lambda: request, terms)
    return tuple(job_replies.job(message) for message in reply.jobs)


def cancel_job(terms: Terms, job_id: str) -> Flow[Job]:
    """Ends a job and returns it; what it has stored stays.

    Raises:
        ClientError: The call failed.

    Example:
        >>> client.cancel_job(client.jobs(limit=1)[0].job_id)
    """
    request = documents_pb2.CancelJobRequest(job_id=sendable("job_id", job_id))
    return job_replies.job((yield from repeated(CANCEL_JOB, lambda: request, terms)).job)
