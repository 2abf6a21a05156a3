"""Documents on their way in, and the jobs that bring them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import BinaryIO, cast

import grpc

from edge_rag.api.v1 import (
    documents_pb2,
)
from edge_rag.client import job_replies, replies
from edge_rag.client.channel import (
    IngestCall,
    WatchCall,
)
from edge_rag.client.connection import Connection
from edge_rag.client.failures import client_error
from edge_rag.client.metadata_messages import write_metadata
from edge_rag.client.requests import sendable
from edge_rag.client.upload import Cancellable, OutgoingDocument, Upload, Uploads
from edge_rag.client.values import (
    JobEntry,
    JobProgress,
)
from edge_rag.core.document import IngestOutcome
from edge_rag.core.jobs import Job


class IngestCalls(Connection):
    """Hands documents over."""

    def ingest(
        self,
        name: str,
        open_content: Callable[[], BinaryIO],
        *,
        collection: str = "default",
        media_type: str = "",
        metadata: Mapping[str, object] | None = None,
    ) -> IngestOutcome:
        """Hands one document over.

        Args:
            name: Name of the document, unique within its collection.
            open_content: Opens its bytes, seekable; called once an attempt.
            collection: Where it goes.
            media_type: What it is; empty to have it found out.
            metadata: Texts, numbers, truth values, dates and lists of texts by key; win over what the document says of
                itself.

        Returns:
            What became of it.

        Raises:
            ClientError: The call failed; the document was not taken.
            OSError: The content could not be opened or read to its end; the document was not taken.
        """
        header = documents_pb2.IngestRequest.Header(
            collection=sendable("collection", collection),
            name=sendable("name", name),
            media_type=media_type,
            metadata=write_metadata(metadata or {}),
        )

        def attempt(timeout_s: float | None) -> documents_pb2.IngestResponse:
            with closing(open_content()) as content:
                upload = Upload(header, content)
                call = self._documents.Ingest.future(iter(upload), timeout=timeout_s)
                upload.bind(call)
                try:
                    return call.result()
                except (grpc.RpcError, grpc.FutureCancelledError):
                    if upload.error is not None:
                        raise upload.error from None
                    raise
                finally:
                    cast(Cancellable, call).cancel()

        return replies.ingest_outcome(self._repeat(attempt))

    def start_ingest(
        self, documents: Iterable[OutgoingDocument], *, collection: str = "default"
    ) -> Iterator[Job | JobEntry]:
        """Has documents accepted and stored afterwards, as a job.

        Args:
            documents: What to hand over; taken one by one, each opened when its turn comes and closed again.
            collection: Where they go.

        Yields:
            The job, then each document once it is accepted, which is for good, or rejected. Not repeated: what was
            accepted before a failure stands.

        Raises:
            ClientError: The call failed.
            OSError: A document could not be opened or read to its end; it and the rest were not handed over.
        """
        sending = Uploads(documents, sendable("collection", collection))
        call = cast(IngestCall, self._documents.StartIngest(iter(sending), timeout=self._timeout_s))
        sending.bind(call)
        try:
            for message in call:
                event = job_replies.ingest_event(message)
                if event is not None:
                    yield event
        except grpc.RpcError as failure:
            if sending.error is not None:
                raise sending.error from None
            raise client_error(failure, self.address) from failure
        finally:
            call.cancel()

    def watch_job(self, job_id: str, cursor: int = 0) -> Iterator[JobProgress]:
        """Tells what becomes of a job's documents, as it happens; ends with the job.

        A connection that is lost, or a daemon that is restarted, is waited for as the retry policy says, and the job
        followed on from where it was.

        Args:
            job_id: The job.
            cursor: Where to go on from; 0 begins at the beginning.

        Raises:
            ClientError: The call failed.
        """
        failures, waited_s, reached = 0, 0.0, False
        while True:
            request = documents_pb2.WatchJobRequest(job_id=sendable("job_id", job_id), cursor=cursor)
            call = cast(WatchCall, self._documents.WatchJob(request, timeout=self._timeout_s))
            try:
                for message in call:
                    failures, waited_s, reached, cursor = 0, 0.0, True, message.cursor
                    yield job_replies.progress(message)
                return
            except grpc.RpcError as failure:
                error = client_error(failure, self.address)
                failures += 1
                delay_s = self._retry.delay(error, failures, waited_s, random.random(), reached=reached)
                if delay_s is None:
                    raise error from failure
            finally:
                call.cancel()
            time.sleep(delay_s)
            waited_s += delay_s

    def jobs(self, limit: int | None = None) -> tuple[Job, ...]:
        """Returns the latest jobs, the newest first.

        Raises:
            ClientError: The call failed.
        """
        request = documents_pb2.ListJobsRequest(limit=limit)
        reply = self._repeat(lambda timeout_s: self._documents.ListJobs(request, timeout=timeout_s))
        return tuple(job_replies.job(job) for job in reply.jobs)

    def cancel_job(self, job_id: str) -> Job:
        """Ends a job and returns it; what it has stored stays.

        Raises:
            ClientError: The call failed.
        """
        request = documents_pb2.CancelJobRequest(job_id=sendable("job_id", job_id))
        reply = self._repeat(lambda timeout_s: self._documents.CancelJob(request, timeout=timeout_s))
        return job_replies.job(reply.job)
