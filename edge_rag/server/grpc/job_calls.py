"""The calls of the Documents service that are about jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc
from edge_rag.core.documents.document import IngestOutcome, Upload
from edge_rag.core.documents.jobs import Job, JobId
from edge_rag.core.identity import Role
from edge_rag.errors import JobNotFound
from edge_rag.server.call import Call, Calls, ServicerContext
from edge_rag.wire import jobs as job_messages
from edge_rag.wire import requests as wire

Uploads = AsyncIterator[Upload | IngestOutcome]


class JobCalls(documents_pb2_grpc.DocumentsServicer):
    """Accepts documents, and tells what becomes of them.

    Args:
        calls: Lets calls in and sees them out.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def start_ingest(
        self, call: Call, uploads: Uploads
    ) -> AsyncGenerator[documents_pb2.StartIngestResponse, None]:
        """Answers ``StartIngest`` for the documents of its stream."""
        jobs = call.backend.jobs
        job = await asyncio.to_thread(jobs.start)
        try:
            yield documents_pb2.StartIngestResponse(job=job_messages.job(job))
            async for upload in uploads:
                if isinstance(upload, Upload):
                    await jobs.room_for(len(upload.content))
                    accepted = await asyncio.to_thread(jobs.accept, job.job_id, upload)
                    document = job_messages.document(accepted)
                else:
                    document = job_messages.refused(upload)
                yield documents_pb2.StartIngestResponse(document=document)
        finally:
            # Also where the client went away: what was accepted is to be stored, and the job to end with it.
            await asyncio.shield(asyncio.to_thread(jobs.hand_over, job.job_id))

    async def WatchJob(  # noqa: N802, D102 - named and described by the proto
        self, request: documents_pb2.WatchJobRequest, context: ServicerContext
    ) -> AsyncIterator[documents_pb2.WatchJobResponse]:
        async with self._calls.serve(Role.WRITER, "WatchJob", context) as call:
            job_id = await _visible_job(call, request.job_id)
            async with aclosing(call.backend.jobs.follow(job_id, request.cursor)) as pages:
                async for page in pages:
                    if not _sees(call, page.job):  # a job has no collections until its first document is accepted
                        raise JobNotFound(job_id)
                    yield job_messages.page(page)

    async def ListJobs(  # noqa: N802, D102 - named and described by the proto
        self, request: documents_pb2.ListJobsRequest, context: ServicerContext
    ) -> documents_pb2.ListJobsResponse:
        async with self._calls.serve(Role.WRITER, "ListJobs", context) as call:
            limit, seen = wire.job_limit(request), call.identity.seen
            jobs = await asyncio.to_thread(call.backend.jobs.jobs, limit, seen)
            return documents_pb2.ListJobsResponse(jobs=[job_messages.job(job) for job in jobs])

    async def CancelJob(  # noqa: N802, D102 - named and described by the proto
        self, request: documents_pb2.CancelJobRequest, context: ServicerContext
    ) -> documents_pb2.CancelJobResponse:
        async with self._calls.serve(Role.WRITER, "CancelJob", context) as call:
            job = await asyncio.to_thread(call.backend.jobs.cancel, await _visible_job(call, request.job_id))
            return documents_pb2.CancelJobResponse(job=job_messages.job(job))


async def _visible_job(call: Call, given: str) -> JobId:
    """Returns the id of a job that who calls may know of.

    Raises:
        InvalidRequest: It is no id.
        JobNotFound: There is no such job, or it brings documents into collections that do not exist for them.
    """
    job_id = wire.job_id(given)
    if not _sees(call, await asyncio.to_thread(call.backend.jobs.job, job_id)):
        raise JobNotFound(job_id)
    return job_id


def _sees(call: Call, job: Job) -> bool:
    return all(call.identity.sees(collection) for collection in job.collections)
