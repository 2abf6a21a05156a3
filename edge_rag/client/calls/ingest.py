"""Uploads, and the jobs that store them."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import BinaryIO

from edge_rag.api.v1 import documents_pb2
from edge_rag.client.connection import AsyncConnection
from edge_rag.client.errors import ClientError, invalid_argument, unreadable_reply
from edge_rag.client.upload import OutgoingDocument, upload_requests
from edge_rag.core.documents.document import IngestOutcome
from edge_rag.core.documents.jobs import Job
from edge_rag.wire.answers import outcome_from_message
from edge_rag.wire.jobs import ingest_event_from_message, job_from_message, progress_from_message
from edge_rag.wire.requests import sendable
from edge_rag.wire.types import JobEntry, JobProgress


class AsyncIngestCalls(AsyncConnection):
    """Calls of the ``Documents`` service that bring documents in."""

    async def ingest(
        self,
        name: str,
        open_content: Callable[[], BinaryIO],
        *,
        collection: str = "default",
        media_type: str = "",
        metadata: Mapping[str, object] | None = None,
    ) -> IngestOutcome:
        """Uploads one document and waits until it is stored.

        Args:
            name: Name of the document, unique within its collection. A document of that name is replaced.
            open_content: Opens its content, seekable; called once an attempt, possibly on another thread.
            collection: The collection; made if it does not exist.
            media_type: IANA media type; empty to let the daemon detect it.
            metadata: Texts, numbers, booleans, dates and lists of texts, by key. They replace what the document itself
                states under the same key.

        Returns:
            The outcome; a document that cannot be read is REJECTED, with the reason.

        Raises:
            ClientError: The call failed; the document was not stored.
            OSError: The content could not be opened or read to its end; the document was not stored.

        Example:
            >>> text = b"The bilge pump is red."
            >>> await client.ingest("note.txt", lambda: io.BytesIO(text), metadata={"year": 2026})
        """
        with invalid_argument():
            document = OutgoingDocument(sendable("name", name), open_content, media_type, metadata or {})
            sendable("collection", collection)
        reply = await self._upload(
            self._transport.stubs.documents.Ingest, lambda: upload_requests((document,), collection)
        )
        if len(reply.outcomes) != 1:
            raise unreadable_reply(f"one document was sent, {len(reply.outcomes)} outcomes came back")
        return outcome_from_message(reply.outcomes[0])

    async def start_ingest(
        self, documents: Iterable[OutgoingDocument], *, collection: str = "default"
    ) -> AsyncGenerator[Job | JobEntry, None]:
        """Uploads documents that the daemon stores afterwards, as a job. The call is not repeated.

        Args:
            documents: The documents; iterated on another thread, each opened when its turn comes and closed again.
            collection: The collection; made if it does not exist.

        Yields:
            The job, then each document once it is durably accepted, or rejected.

        Raises:
            ClientError: The call failed otherwise. Documents that were accepted before stay accepted.
            OSError: A document could not be opened or read to its end; it and the rest were not uploaded.

        Example:
            >>> manuals = map(OutgoingDocument.of_file, Path("manuals").glob("*.md"))
            >>> async for event in client.start_ingest(manuals):
            ...     print(event)
        """
        with invalid_argument():
            requests = upload_requests(documents, sendable("collection", collection))
        rpc = self._transport.stubs.documents.StartIngest
        async with self._transport.upload_stream(rpc, requests, self._timeout_s) as replies:
            async for message in replies:
                event = ingest_event_from_message(message)
                if event is not None:
                    yield event

    async def watch_job(self, job_id: str, cursor: int = 0) -> AsyncGenerator[JobProgress, None]:
        """Follows a job to its end.

        When the connection is lost or the daemon restarts, the client reconnects as the retry policy says and continues
        where it was.

        Args:
            cursor: ``JobProgress.cursor`` to continue after; 0 for the beginning.

        Yields:
            The job and the documents that changed, as it happens.

        Example:
            >>> newest = (await client.jobs(limit=1))[0]
            >>> async for progress in client.watch_job(newest.job_id):
            ...     print(progress.job.state, [entry.name for entry in progress.documents])
        """
        with invalid_argument():
            request = documents_pb2.WatchJobRequest(job_id=sendable("job_id", job_id), cursor=cursor)
        rpc = self._transport.stubs.documents.WatchJob
        failures, waited_s, reached = 0, 0.0, False
        while True:
            try:
                async with self._transport.stream(rpc, request, self._timeout_s) as replies:
                    async for message in replies:
                        failures, waited_s, reached, request.cursor = 0, 0.0, True, message.cursor
                        yield progress_from_message(message)
                return
            except ClientError as error:
                failures += 1
                delay_s = self._retry.delay(error, failures, waited_s, random.random(), reached=reached)
                if delay_s is None:
                    raise
            await self._transport.sleep(delay_s)
            waited_s += delay_s

    async def jobs(self, limit: int | None = None) -> tuple[Job, ...]:
        """Returns the latest jobs, the newest first.

        Args:
            limit: Most jobs, 1 to 1,000; None for the daemon's default, 20.

        Example:
            >>> print([job.state for job in await client.jobs(limit=5)])
        """
        request = documents_pb2.ListJobsRequest(limit=limit)
        reply = await self._call(self._transport.stubs.documents.ListJobs, request)
        return tuple(map(job_from_message, reply.jobs))

    async def cancel_job(self, job_id: str) -> Job:
        """Cancels a job and returns it. Documents that are stored stay.

        Example:
            >>> newest = (await client.jobs(limit=1))[0]
            >>> await client.cancel_job(newest.job_id)
        """
        with invalid_argument():
            request = documents_pb2.CancelJobRequest(job_id=sendable("job_id", job_id))
        reply = await self._call(self._transport.stubs.documents.CancelJob, request)
        return job_from_message(reply.job)
