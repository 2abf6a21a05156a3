"""The Documents service.

The calls of the Documents service that are about jobs.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc
from edge_rag.core.documents.document import IngestOutcome, IngestStatus, Upload
from edge_rag.core.documents.jobs import Job, JobId
from edge_rag.core.identity import Role
from edge_rag.core.ids import DocumentId
from edge_rag.errors import InvalidRequest, JobNotFound
from edge_rag.server.call import Call, CallContext, ServicerContext
from edge_rag.wire import answers as messages
from edge_rag.wire import jobs as job_messages
from edge_rag.wire import requests as wire
from edge_rag.wire.metadata import parse_metadata

Uploads = AsyncIterator[Upload | IngestOutcome]


class JobCalls(documents_pb2_grpc.DocumentsServicer):
    """Accepts documents, and tells what becomes of them.

    Args:
        calls: Lets calls in and sees them out.
    """

    def __init__(self, calls: CallContext) -> None:
        self._calls = calls

    async def start_ingest(
        self, call: Call, uploads: Uploads
    ) -> AsyncGenerator[documents_pb2.StartIngestResponse, None]:
        """Answers ``StartIngest`` for the documents of its stream."""
        jobs = call.backend.jobs
        job = await asyncio.to_thread(jobs.start)
        try:
            yield documents_pb2.StartIngestResponse(job=job_messages.job_to_message(job))
            async for upload in uploads:
                if isinstance(upload, Upload):
                    await jobs.wait_for_space(len(upload.content))
                    accepted = await asyncio.to_thread(jobs.accept, job.job_id, upload)
                    document = job_messages.job_document_to_message(accepted)
                else:
                    document = job_messages.rejected_to_message(upload)
                yield documents_pb2.StartIngestResponse(document=document)
        finally:
            # Also where the client went away: what was accepted is to be stored, and the job to end with it.
            await asyncio.shield(asyncio.to_thread(jobs.finish_uploads, job.job_id))

    async def WatchJob(  # noqa: N802, D102 - named and described by the proto
        self, request: documents_pb2.WatchJobRequest, context: ServicerContext
    ) -> AsyncIterator[documents_pb2.WatchJobResponse]:
        async with self._calls.serve(Role.WRITER, "WatchJob", context) as call:
            job_id = await _visible_job(call, request.job_id)
            async with aclosing(call.backend.jobs.follow(job_id, request.cursor)) as pages:
                async for page in pages:
                    if not _sees(call, page.job):  # a job has no collections until its first document is accepted
                        raise JobNotFound(job_id)
                    yield job_messages.job_page_to_message(page)

    async def ListJobs(  # noqa: N802, D102 - named and described by the proto
        self, request: documents_pb2.ListJobsRequest, context: ServicerContext
    ) -> documents_pb2.ListJobsResponse:
        async with self._calls.serve(Role.WRITER, "ListJobs", context) as call:
            limit, seen = wire.parse_job_limit(request), call.identity.seen
            jobs = await asyncio.to_thread(call.backend.jobs.jobs, limit, seen)
            return documents_pb2.ListJobsResponse(jobs=[job_messages.job_to_message(job) for job in jobs])

    async def CancelJob(  # noqa: N802, D102 - named and described by the proto
        self, request: documents_pb2.CancelJobRequest, context: ServicerContext
    ) -> documents_pb2.CancelJobResponse:
        async with self._calls.serve(Role.WRITER, "CancelJob", context) as call:
            job = await asyncio.to_thread(call.backend.jobs.cancel, await _visible_job(call, request.job_id))
            return documents_pb2.CancelJobResponse(job=job_messages.job_to_message(job))


async def _visible_job(call: Call, given: str) -> JobId:
    """Returns the id of a job that who calls may know of.

    Raises:
        InvalidRequest: It is no id.
        JobNotFound: There is no such job, or it brings documents into collections that do not exist for them.
    """
    job_id = wire.parse_job_id(given)
    if not _sees(call, await asyncio.to_thread(call.backend.jobs.job, job_id)):
        raise JobNotFound(job_id)
    return job_id


def _sees(call: Call, job: Job) -> bool:
    return all(call.identity.sees(collection) for collection in job.collections)


class DocumentsService(JobCalls):
    """Keeps documents.

    Args:
        calls: Lets calls in and sees them out.
        document_bytes: Largest document.
    """

    def __init__(self, calls: CallContext, document_bytes: int) -> None:
        super().__init__(calls)
        self._document_bytes = document_bytes

    async def Ingest(  # noqa: N802, D102 - named and described by the proto
        self, request_iterator: AsyncIterator[documents_pb2.IngestRequest], context: ServicerContext
    ) -> documents_pb2.IngestResponse:
        async with self._calls.serve(Role.WRITER, "Ingest", context) as call:
            outcomes = []
            async for upload in self._uploads(call, request_iterator):
                if isinstance(upload, Upload):
                    outcomes.append(
                        messages.outcome_to_message(await call.backend.ingesting.ingest(upload, call.trace))
                    )
                else:
                    outcomes.append(messages.outcome_to_message(upload))
            return documents_pb2.IngestResponse(outcomes=outcomes)

    async def StartIngest(  # noqa: N802, D102 - named and described by the proto
        self, request_iterator: AsyncIterator[documents_pb2.IngestRequest], context: ServicerContext
    ) -> AsyncIterator[documents_pb2.StartIngestResponse]:
        async with self._calls.serve(Role.WRITER, "StartIngest", context) as call:
            async with aclosing(self.start_ingest(call, self._uploads(call, request_iterator))) as responses:
                async for response in responses:
                    yield response

    async def Get(  # noqa: N802, D102 - named and described by the proto
        self, request: documents_pb2.GetDocumentRequest, context: ServicerContext
    ) -> documents_pb2.GetDocumentResponse:
        async with self._calls.serve(Role.READER, "Get", context) as call:
            place, name = call.collection(request.collection), wire.parse_document_name("document", request.document)
            info, text = await asyncio.to_thread(call.backend.library.get, place, name)
            return documents_pb2.GetDocumentResponse(document=messages.document_to_message(info), text=text)

    async def List(  # noqa: N802, D102 - named and described by the proto
        self, request: documents_pb2.ListDocumentsRequest, context: ServicerContext
    ) -> documents_pb2.ListDocumentsResponse:
        async with self._calls.serve(Role.READER, "List", context) as call:
            size, after = wire.parse_page_size(request), _after(request.page_token)
            place = call.collection(request.collection)
            found = await asyncio.to_thread(call.backend.library.list, place, after, size + 1)
            token = _page_token(found[size - 1].document_id) if len(found) > size else ""
            return documents_pb2.ListDocumentsResponse(
                documents=[messages.document_to_message(info) for info in found[:size]], next_page_token=token
            )

    async def Delete(  # noqa: N802, D102 - named and described by the proto
        self, request: documents_pb2.DeleteDocumentRequest, context: ServicerContext
    ) -> documents_pb2.DeleteDocumentResponse:
        async with self._calls.serve(Role.WRITER, "Delete", context) as call:
            place, name = call.collection(request.collection), wire.parse_document_name("document", request.document)
            info = await asyncio.to_thread(call.backend.library.delete, place, name)
            return documents_pb2.DeleteDocumentResponse(document=messages.document_to_message(info))

    async def _uploads(
        self, call: Call, parts: AsyncIterator[documents_pb2.IngestRequest]
    ) -> AsyncIterator[Upload | IngestOutcome]:
        header: documents_pb2.IngestRequest.Header | None = None
        content = bytearray()
        size = 0
        refused = False
        async for part in parts:
            if part.HasField("header"):
                if header is not None and not refused:
                    yield self._upload(call, header, content, size)
                header, content, size = part.header, bytearray(), 0
                call.collection(header.collection)
                wire.parse_document_name("name", header.name)
                parse_metadata(header.metadata)
                refused = header.size_bytes > self._document_bytes
                if refused:
                    yield self._too_large(header, f"{header.size_bytes:,} bytes")
            elif header is None:
                raise InvalidRequest("header", "must come before the content of a document")
            elif not refused:
                size += len(part.content)
                if size <= self._document_bytes:
                    content += part.content
                else:
                    yield self._too_large(header, "more")
                    refused = True
                    content = bytearray()
        if header is not None and not refused:
            yield self._upload(call, header, content, size)

    def _too_large(self, header: documents_pb2.IngestRequest.Header, size: str) -> IngestOutcome:
        """Refuses a document as soon as it is known to be over the limit; what comes of its content is passed over."""
        reason = f"has {size}, at most {self._document_bytes:,} bytes are allowed (ingest.document_mib)"
        return IngestOutcome(header.name, IngestStatus.REJECTED, reason=reason)

    def _upload(
        self, call: Call, header: documents_pb2.IngestRequest.Header, content: bytearray, size: int
    ) -> Upload | IngestOutcome:
        if header.HasField("size_bytes") and size != header.size_bytes:
            reason = f"{size:,} bytes came, {header.size_bytes:,} were announced; send it again"
            return IngestOutcome(header.name, IngestStatus.REJECTED, reason=reason)
        metadata = parse_metadata(header.metadata)
        return Upload(call.collection(header.collection), header.name, header.media_type, bytes(content), metadata)


def _page_token(last: DocumentId) -> str:
    return base64.urlsafe_b64encode(b"after:" + last.encode()).decode()


def _after(token: str) -> DocumentId | None:
    if not token:
        return None
    try:
        text = base64.urlsafe_b64decode(token).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith("after:"):
        raise InvalidRequest("page_token", "is not one that this server gave")
    return DocumentId(text.removeprefix("after:"))
