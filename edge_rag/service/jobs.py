"""Ingest jobs: documents that are accepted now and stored in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from edge_rag.core.documents.document import IngestOutcome, Upload
from edge_rag.core.documents.jobs import Job, JobDocument, JobId, JobPage
from edge_rag.core.identity import Role
from edge_rag.errors import DocumentTooLarge, JobNotFound
from edge_rag.pipeline.ingest import Ingest
from edge_rag.service.call import Call, Operation
from edge_rag.service.documents import Uploads

START_INGEST: Final = Operation("StartIngest", Role.WRITER, long=True)
WATCH_JOB: Final = Operation("WatchJob", Role.WRITER, long=True)
LIST_JOBS: Final = Operation("ListJobs", Role.WRITER)
GET_JOB: Final = Operation("GetJob", Role.WRITER)
CANCEL_JOB: Final = Operation("CancelJob", Role.WRITER)


async def start_ingest(call: Call, uploads: Uploads) -> AsyncGenerator[Job | JobDocument | IngestOutcome, None]:
    """Creates a job for documents; yields the job, then each document as accepted or its rejection."""
    jobs = call.backend.ingest
    job = jobs.start(call.identity.name)
    try:
        yield job
        async with aclosing(uploads):
            async for upload in uploads:
                if isinstance(upload, Upload):
                    yield await asyncio.to_thread(jobs.accept, job.job_id, upload)
                else:
                    yield upload
    finally:
        # Also if the client disconnects: the accepted documents are stored, and the job ends with the last one.
        await asyncio.shield(asyncio.to_thread(jobs.finish_uploads, job.job_id))


async def queue(call: Call, uploads: Uploads) -> Job:
    """Creates a job for the one document of ``uploads``; returns it when the document is accepted."""
    jobs = call.backend.ingest
    async with aclosing(uploads):
        upload = await anext(uploads)
        if not isinstance(upload, Upload):
            raise DocumentTooLarge(f"{upload.name}: {upload.reason}")
        return await asyncio.shield(asyncio.to_thread(_accept_one, jobs, call.identity.name, upload))


def _accept_one(jobs: Ingest, owner: str, upload: Upload) -> Job:
    job = jobs.start(owner)
    try:
        jobs.accept(job.job_id, upload)
    finally:
        job = jobs.finish_uploads(job.job_id)
    return job


async def watch(call: Call, job_id: JobId, cursor: int) -> AsyncGenerator[JobPage, None]:
    """Yields a job's history from a change number on, as it happens; ends with the job."""
    await get(call, job_id)
    async with aclosing(call.backend.ingest.follow(job_id, cursor)) as pages:
        async for page in pages:
            if not _sees(call, page.job):  # a job has no collections until its first document is accepted
                raise JobNotFound(job_id)
            yield page


async def list_latest(call: Call, limit: int) -> tuple[Job, ...]:
    """Returns the latest jobs that exist for the caller, the newest first."""
    return await call.run(call.backend.ingest.jobs, limit, call.identity.visible_collections)


async def get(call: Call, job_id: JobId) -> Job:
    """Returns a job."""
    job = await call.run(call.backend.ingest.job, job_id)
    if not _sees(call, job):
        raise JobNotFound(job_id)
    return job


async def cancel(call: Call, job_id: JobId) -> Job:
    """Cancels a job: its waiting documents are not stored."""
    await get(call, job_id)
    return await call.run(call.backend.ingest.cancel, job_id)


def _sees(call: Call, job: Job) -> bool:
    return all(call.identity.can_see(collection) for collection in job.collections)
