"""The Documents service over gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc
from edge_rag.core.documents.document import IngestOutcome
from edge_rag.core.documents.jobs import Job, JobDocument
from edge_rag.core.limits.request_fields import parse_collection, parse_document_name, parse_job_id
from edge_rag.errors import InvalidRequest
from edge_rag.server.grpc.call import GrpcCalls, ServicerContext, serves
from edge_rag.service import documents, jobs
from edge_rag.service.documents import UploadEnd, UploadHeader, UploadPart
from edge_rag.wire import answers as messages
from edge_rag.wire import jobs as job_messages
from edge_rag.wire import requests as wire
from edge_rag.wire.answers import MAX_RESPONSE_BYTES, fitting, size_of
from edge_rag.wire.metadata import parse_metadata


class DocumentsService(documents_pb2_grpc.DocumentsServicer):
    """Ingests, reads and removes documents, directly or as jobs."""

    def __init__(self, calls: GrpcCalls) -> None:
        self._calls = calls

    @serves(documents.INGEST)
    async def Ingest(  # noqa: N802 - named and described by the proto
        self, request_iterator: AsyncIterator[documents_pb2.IngestRequest], context: ServicerContext
    ) -> documents_pb2.IngestResponse:
        async with self._calls.handle(context) as call:
            taken: list[documents_pb2.IngestResponse.Outcome] = []
            left = MAX_RESPONSE_BYTES
            async with aclosing(documents.ingest(call, documents.receive(call, _parts(request_iterator)))) as outcomes:
                async for outcome in outcomes:
                    taken.append(messages.outcome_to_message(outcome))
                    if taken[-1].HasField("document") and size_of(taken[-1]) > left:
                        taken[-1].document.ClearField("metadata")
                    left -= size_of(taken[-1])
                    if left < 0:
                        reason = f"are too many for one call; the first {len(taken):,} are done, send the rest as a job"
                        raise InvalidRequest("documents", reason)
            return documents_pb2.IngestResponse(outcomes=taken)

    @serves(jobs.START_INGEST)
    async def StartIngest(  # noqa: N802 - named and described by the proto
        self, request_iterator: AsyncIterator[documents_pb2.IngestRequest], context: ServicerContext
    ) -> AsyncIterator[documents_pb2.StartIngestResponse]:
        async with self._calls.handle(context) as call:
            uploads = documents.receive(call, _parts(request_iterator))
            async with aclosing(jobs.start_ingest(call, uploads)) as events:
                async for event in events:
                    yield _start_response(event)

    @serves(jobs.WATCH_JOB)
    async def WatchJob(  # noqa: N802 - named and described by the proto
        self, request: documents_pb2.WatchJobRequest, context: ServicerContext
    ) -> AsyncIterator[documents_pb2.WatchJobResponse]:
        async with self._calls.handle(context) as call:
            async with aclosing(jobs.watch(call, parse_job_id(request.job_id), request.cursor)) as pages:
                async for page in pages:
                    yield job_messages.job_page_to_message(page)

    @serves(jobs.LIST_JOBS)
    async def ListJobs(  # noqa: N802 - named and described by the proto
        self, request: documents_pb2.ListJobsRequest, context: ServicerContext
    ) -> documents_pb2.ListJobsResponse:
        async with self._calls.handle(context) as call:
            latest = await jobs.list_latest(call, wire.parse_job_limit(request))
            return documents_pb2.ListJobsResponse(jobs=fitting(map(job_messages.job_to_message, latest), size_of))

    @serves(jobs.CANCEL_JOB)
    async def CancelJob(  # noqa: N802 - named and described by the proto
        self, request: documents_pb2.CancelJobRequest, context: ServicerContext
    ) -> documents_pb2.CancelJobResponse:
        async with self._calls.handle(context) as call:
            job = await jobs.cancel(call, parse_job_id(request.job_id))
            return documents_pb2.CancelJobResponse(job=job_messages.job_to_message(job))

    @serves(documents.GET_DOCUMENT)
    async def Get(  # noqa: N802 - named and described by the proto
        self, request: documents_pb2.GetDocumentRequest, context: ServicerContext
    ) -> documents_pb2.GetDocumentResponse:
        async with self._calls.handle(context) as call:
            collection = parse_collection(request.collection)
            name = parse_document_name("document", request.document)
            start, end = wire.parse_text_range(request)
            found = await documents.get(call, collection, name, start, end)
            return documents_pb2.GetDocumentResponse(
                document=messages.document_to_message(found.info), text=found.text, end=found.end
            )

    @serves(documents.LIST_DOCUMENTS)
    async def List(  # noqa: N802 - named and described by the proto
        self, request: documents_pb2.ListDocumentsRequest, context: ServicerContext
    ) -> documents_pb2.ListDocumentsResponse:
        async with self._calls.handle(context) as call:
            size, after = wire.parse_page_size(request), documents.parse_page_token(request.page_token)
            page, last = await documents.list_page(call, parse_collection(request.collection), after, size)
            sent = fitting(map(messages.document_to_message, page), size_of)
            if len(sent) < len(page):
                last = page[len(sent) - 1].document_id
            return documents_pb2.ListDocumentsResponse(documents=sent, next_page_token=documents.page_token(last))

    @serves(documents.DELETE_DOCUMENT)
    async def Delete(  # noqa: N802 - named and described by the proto
        self, request: documents_pb2.DeleteDocumentRequest, context: ServicerContext
    ) -> documents_pb2.DeleteDocumentResponse:
        async with self._calls.handle(context) as call:
            collection = parse_collection(request.collection)
            info = await documents.delete(call, collection, parse_document_name("document", request.document))
            return documents_pb2.DeleteDocumentResponse(document=messages.document_to_message(info))


async def _parts(requests: AsyncIterator[documents_pb2.IngestRequest]) -> AsyncGenerator[UploadPart, None]:
    started = False
    async for request in requests:
        if not request.HasField("header"):
            yield request.content
            continue
        if started:
            yield UploadEnd()
        started = True
        yield _parse_header(request.header)
    if started:
        yield UploadEnd()


def _parse_header(header: documents_pb2.IngestRequest.Header) -> UploadHeader:
    return UploadHeader(
        parse_collection(header.collection),
        parse_document_name("name", header.name),
        header.media_type,
        parse_metadata(header.metadata),
        header.size_bytes if header.HasField("size_bytes") else None,
    )


def _start_response(event: Job | JobDocument | IngestOutcome) -> documents_pb2.StartIngestResponse:
    match event:
        case Job():
            return documents_pb2.StartIngestResponse(job=job_messages.job_to_message(event))
        case JobDocument():
            return documents_pb2.StartIngestResponse(document=job_messages.job_document_to_message(event))
        case _:
            return documents_pb2.StartIngestResponse(document=job_messages.rejected_to_message(event))
