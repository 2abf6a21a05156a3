"""Documents on their way in, and the jobs that bring them.

Documents on their way to the server, piece by piece.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from edge_rag.api.v1 import documents_pb2
from edge_rag.client import job_replies, replies
from edge_rag.client.call_flow import (
    CANCEL_JOB,
    INGEST,
    LIST_JOBS,
    START_INGEST,
    WATCH_JOB,
    Begin,
    CallOptions,
    Flow,
    Pause,
    Streaming,
    Tell,
    received,
    repeated,
)
from edge_rag.client.failures import ClientError
from edge_rag.client.metadata_messages import write_metadata
from edge_rag.client.requests import sendable
from edge_rag.client.values import JobEntry, JobProgress
from edge_rag.core.documents.document import IngestOutcome
from edge_rag.core.documents.jobs import Job

PIECE_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class OutgoingDocument:
    """A document to hand over.

    Attributes:
        name: Its name, unique within its collection.
        open_content: Opens its bytes, seekable.
        media_type: What it is; empty to have it found out.
        metadata: What is known of it, as for ``Client.ingest``.
    """

    name: str
    open_content: Callable[[], BinaryIO]
    media_type: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)

    @classmethod
    def of_file(cls, path: Path, name: str | None = None) -> OutgoingDocument:
        """Returns the document in a file, under the file's name unless another is given."""

        def open_file() -> BinaryIO:
            return path.open("rb")

        return cls(path.name if name is None else name, open_file)


def upload(documents: Iterable[OutgoingDocument], collection: str) -> Iterator[documents_pb2.IngestRequest]:
    """Yields the requests that carry documents.

    The size is announced first, so that a call that breaks off can never leave half a document. A file that grows
    meanwhile is taken as it was.

    Args:
        documents: What to hand over, each opened when its turn comes and closed after it.
        collection: Where they go.

    Raises:
        ClientError: INVALID_ARGUMENT, a name or metadata could not be sent.
        OSError: A document could not be opened, or not be read to the end that was announced.
    """
    for document in documents:
        header = documents_pb2.IngestRequest.Header(
            collection=collection,
            name=sendable("name", document.name),
            media_type=document.media_type,
            metadata=write_metadata(document.metadata),
        )
        with closing(document.open_content()) as content:
            left = header.size_bytes = content.seek(0, os.SEEK_END)
            content.seek(0)
            yield documents_pb2.IngestRequest(header=header)
            while left:
                piece = content.read(min(left, PIECE_BYTES))
                if not piece:
                    raise OSError(errno.EIO, f"became shorter while it was read, by {left:,} bytes")
                left -= len(piece)
                yield documents_pb2.IngestRequest(content=piece)


def ingest(
    terms: CallOptions,
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
    terms: CallOptions, documents: Iterable[OutgoingDocument], *, collection: str = "default"
) -> Streaming[Job | JobEntry]:
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


def watch_job(terms: CallOptions, job_id: str, cursor: int = 0) -> Streaming[JobProgress]:
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


def jobs(terms: CallOptions, limit: int | None = None) -> Flow[tuple[Job, ...]]:
    """Returns the latest jobs, the newest first.

    Raises:
        ClientError: The call failed.

    Example:
        >>> print([job.state for job in client.jobs(limit=5)])
    """
    request = documents_pb2.ListJobsRequest(limit=limit)
    reply = yield from repeated(LIST_JOBS, lambda: request, terms)
    return tuple(job_replies.job(message) for message in reply.jobs)


def cancel_job(terms: CallOptions, job_id: str) -> Flow[Job]:
    """Ends a job and returns it; what it has stored stays.

    Raises:
        ClientError: The call failed.

    Example:
        >>> client.cancel_job(client.jobs(limit=1)[0].job_id)
    """
    request = documents_pb2.CancelJobRequest(job_id=sendable("job_id", job_id))
    return job_replies.job((yield from repeated(CANCEL_JOB, lambda: request, terms)).job)
