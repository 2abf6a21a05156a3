"""Ingest: a direct stage for documents whose outcome the caller waits for, and a background worker for jobs.

The worker stores accepted documents one at a time, in the order of acceptance. Its queue is the job store, so the next
process continues after a crash.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import structlog

from edge_rag.core.documents.document import IngestOutcome, IngestStatus, Upload
from edge_rag.core.documents.jobs import (
    IngestPhase,
    IngestWork,
    Job,
    JobDocument,
    JobDocumentState,
    JobId,
    JobPage,
    JobState,
    Ticket,
)
from edge_rag.core.ids import require_recognized
from edge_rag.core.monitoring.status import StageSnapshot
from edge_rag.errors import EdgeRagError, NotReady, StorageError
from edge_rag.pipeline.ports import AcceptedDocument, DocumentLibrary, JobStore
from edge_rag.pipeline.stage import Stage
from edge_rag.telemetry.tracing import UNTRACED, CallTrace, times

log = structlog.get_logger(__name__)

_FIRST_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 30.0
_PAGE_CHANGES: Final = 500
_STATES: Final = {
    IngestStatus.ADDED: JobDocumentState.ADDED,
    IngestStatus.REPLACED: JobDocumentState.REPLACED,
    IngestStatus.UNCHANGED: JobDocumentState.UNCHANGED,
    IngestStatus.REJECTED: JobDocumentState.REJECTED,
}


class IngestStage:
    """Stores documents one at a time behind a bounded queue.

    Args:
        library: Stores the documents.
        capacity: Capacity of the queue, documents.
        on_outcome: Called with every outcome, on the stage's thread.
    """

    def __init__(self, library: DocumentLibrary, capacity: int, on_outcome: Callable[[IngestOutcome], None]) -> None:
        self._library = library
        self._on_outcome = on_outcome
        self._stage: Stage[Upload, IngestOutcome] = Stage("ingest", self._ingest, capacity, max_batch=1)

    async def ingest(self, upload: Upload, trace: CallTrace = UNTRACED) -> IngestOutcome:
        """Stores one document. With any outcome but REJECTED it is durable on return.

        Args:
            upload: The document.
            trace: Gets the span of the stage.

        Raises:
            Overloaded: The queue is full.
            StorageError: The data directory failed.
            NotReady: The daemon is shutting down.
        """
        with trace.stage("ingest") as span:
            timed = await asyncio.wrap_future(self._stage.submit(upload, deadline=None))
            span.note(times(timed.queue_s, timed.compute_s))
            span.note({"edge_rag.outcome": timed.value.status.value, "edge_rag.bytes": upload.content.size_bytes})
            return timed.value

    def snapshot(self) -> StageSnapshot:
        """Returns the stage's counts."""
        return self._stage.snapshot()

    def close(self) -> None:
        """Completes the current document and fails queued ones with NotReady."""
        self._stage.close()

    def _ingest(self, uploads: Sequence[Upload]) -> list[IngestOutcome | Exception]:
        results: list[IngestOutcome | Exception] = []
        for upload in uploads:
            try:
                outcome = self._library.ingest(upload)
            except EdgeRagError as error:
                results.append(error)
            else:
                self._on_outcome(outcome)
                results.append(outcome)
        return results


class IngestWorker:
    """Accepts documents into jobs and stores them on a thread of its own. May be used from any thread.

    Args:
        store: Stores jobs and accepted documents.
        library: Stores ingested documents.
        on_outcome: Called with every outcome, on the worker's thread.
    """

    def __init__(self, store: JobStore, library: DocumentLibrary, on_outcome: Callable[[IngestOutcome], None]) -> None:
        self._store = store
        self._library = library
        self._on_outcome = on_outcome
        self._changed = threading.Condition()
        self._work: IngestWork | None = None
        self._idle = False
        self._draining = self._closed = False
        self._wakers: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, name="ingest-jobs", daemon=True)
        self._thread.start()

    def start(self, owner: str) -> Job:
        """Creates a job of an identity, given by name; it is written with its first document."""
        return self._store.start(owner)

    def accept(self, job_id: JobId, upload: Upload) -> JobDocument:
        """Accepts a document for later ingest; durable on return.

        Raises:
            StorageFull: The spool or the disk is full.
            JobClosed: The job was cancelled.
            StorageError: The data directory failed; the document was not accepted.
            NotReady: The daemon is shutting down.
        """
        if self._draining:
            raise NotReady("the daemon is shutting down")
        document = self._store.accept(job_id, upload)
        self._notify()
        return document

    def finish_uploads(self, job_id: JobId) -> Job:
        """Closes a job for further documents and returns it."""
        self._store.finish_uploads(job_id)
        self._notify()
        return self._store.job(job_id)

    def cancel(self, job_id: JobId) -> Job:
        """Cancels a job: its waiting documents are not stored.

        Raises:
            JobNotFound: There is no such job.
        """
        job = self._store.cancel(job_id)
        self._notify()
        return job

    def job(self, job_id: JobId) -> Job:
        """Returns a job.

        Raises:
            JobNotFound: There is no such job.
        """
        return self._store.job(job_id)

    def jobs(self, limit: int, within: frozenset[str] | None) -> tuple[Job, ...]:
        """Returns the latest jobs, the newest first; see ``JobStore.jobs`` for ``within``."""
        return self._store.jobs(limit, within)

    async def follow(self, job_id: JobId, cursor: int) -> AsyncGenerator[JobPage, None]:
        """Yields a job's history as it happens; ends with the job.

        Args:
            job_id: The job.
            cursor: Number of the change to begin after; 0 for all changes.

        Raises:
            JobNotFound: There is no such job.
            NotReady: The daemon is shutting down.
        """
        with self._wakeup() as woken:
            last: JobPage | None = None
            while True:
                woken.clear()
                if self._draining:
                    raise NotReady("the daemon is shutting down; the job continues after its next start")
                page = await asyncio.to_thread(self._page, job_id, cursor)
                if last is None or page.documents or page.work != last.work or page.job != last.job:
                    yield page
                last, cursor = page, page.cursor
                if len(page.documents) == _PAGE_CHANGES:
                    continue
                if page.job.state is not JobState.RUNNING:
                    return
                await woken.wait()

    def drain(self) -> None:
        """Ends all ``follow`` streams and refuses further documents; the worker continues."""
        self._draining = True
        self._notify()

    def close(self) -> None:
        """Completes the current document and stops; the others wait for the daemon's next start."""
        with self._changed:
            self._draining = self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _page(self, job_id: JobId, cursor: int) -> JobPage:
        job, documents = self._store.changes(job_id, cursor, _PAGE_CHANGES)
        work = self._work
        return JobPage(
            job=job,
            documents=documents,
            cursor=documents[-1].change if documents else cursor,
            work=work if work is not None and work.job_id == job_id else None,
        )

    def _notify(self) -> None:
        with self._changed:
            self._idle = False
            self._changed.notify_all()
            wakers = tuple(self._wakers)
        for wake in wakers:
            wake()

    def _run(self) -> None:
        retry_s = _FIRST_RETRY_S
        while not self._closed:
            with self._changed:
                self._idle = True
            try:
                accepted = self._store.next()
                if accepted is not None:
                    self._ingest(accepted)
                retry_s = _FIRST_RETRY_S
            except StorageError as error:
                log.error("ingest waits for storage", error=str(error), seconds=retry_s)
                if self._work is not None:
                    self._set_work(replace(self._work, problem=str(error)))
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, retry_s)
                retry_s = min(_MAX_RETRY_S, 2 * retry_s)
                continue
            self._set_work(None)
            if accepted is None:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or not self._idle)

    def _ingest(self, accepted: AcceptedDocument) -> None:
        """Stores one document, or completes it as rejected.

        Raises:
            StorageError: The data directory failed; the document keeps waiting.
        """
        work = IngestWork(accepted.job_id, accepted.name, IngestPhase.PARSING)
        self._set_work(work)
        upload = self._store.upload(accepted.ticket)

        def progress(phase: IngestPhase, done: int, total: int) -> None:
            self._set_work(replace(work, phase=phase, chunks_done=done, chunks=total))

        try:
            outcome = self._library.take(upload, accepted.ticket, progress)
        except StorageError:
            raise
        except EdgeRagError as error:
            outcome = IngestOutcome(accepted.name, IngestStatus.REJECTED, reason=str(error))
        except Exception as error:
            log.exception("document ingest failed", document=accepted.name)
            reason = f"internal error ({error!r}); see the daemon's log"
            outcome = IngestOutcome(accepted.name, IngestStatus.REJECTED, reason=reason)
        self._complete(accepted.ticket, outcome)

    def _complete(self, ticket: Ticket, outcome: IngestOutcome | None) -> None:
        if outcome is None:
            self._store.complete(ticket, JobDocumentState.SUPERSEDED, "superseded by a newer version")
            return
        document_id = None if outcome.document is None else outcome.document.document_id
        self._store.complete(ticket, _STATES[require_recognized(outcome.status)], outcome.reason, document_id)
        self._on_outcome(outcome)

    def _set_work(self, work: IngestWork | None) -> None:
        if work != self._work:
            self._work = work
            with self._changed:
                wakers = tuple(self._wakers)
            for wake in wakers:
                wake()

    @contextmanager
    def _wakeup(self) -> Iterator[asyncio.Event]:
        """Yields an event of the running loop that is set at every change."""
        woken = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the follower's event loop is gone
                loop.call_soon_threadsafe(woken.set)

        with self._changed:
            self._wakers.append(wake)
        try:
            yield woken
        finally:
            with self._changed:
                self._wakers.remove(wake)
