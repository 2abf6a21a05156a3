"""Jobs at work: one thread stores accepted documents, one after the other, in the order in which they were accepted.

What is to be done is in the ledger, not here: a process that is killed loses nothing of it, and the next one goes on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
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
    JobState,
    Ticket,
)
from edge_rag.core.ids import recognized
from edge_rag.errors import EdgeRagError, NotReady, StorageCorrupt, StorageError
from edge_rag.pipeline.ports import AcceptedDocument, DocumentLibrary, JobStore

_log = structlog.get_logger(__name__)
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_CHANGES_AT_ONCE: Final = 500
_STATES: Final = {
    IngestStatus.ADDED: JobDocumentState.ADDED,
    IngestStatus.REPLACED: JobDocumentState.REPLACED,
    IngestStatus.UNCHANGED: JobDocumentState.UNCHANGED,
    IngestStatus.REJECTED: JobDocumentState.REJECTED,
}


@dataclass(frozen=True, slots=True)
class JobPage:
    """A part of a job's history.

    Attributes:
        job: The job as it is now.
        documents: Documents that changed, in order of their changes, each as it is now.
        cursor: Change that the next part begins after.
        work: The document in work, where it is one of this job's.
    """

    job: Job
    documents: tuple[JobDocument, ...]
    cursor: int
    work: IngestWork | None


class IngestJobs:
    """Accepts documents and sees to it that they are stored. May be used from any thread.

    Args:
        ledger: Keeps what was accepted.
        library: Stores documents.
        observe: Told of every outcome, on the thread that works.
    """

    def __init__(self, ledger: JobStore, library: DocumentLibrary, observe: Callable[[IngestOutcome], None]) -> None:
        self._ledger = ledger
        self._library = library
        self._observe = observe
        self._changed = threading.Condition()
        self._work: IngestWork | None = None
        self._idle = False
        self._draining = self._closed = False
        self._wakers: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, name="ingest-jobs", daemon=True)
        self._thread.start()

    def start(self) -> Job:
        """Begins a job.

        Raises:
            StorageError: The data directory failed.
        """
        return self._ledger.start()

    def accept(self, job_id: JobId, upload: Upload) -> JobDocument:
        """Takes a document into custody; durable on return.

        Raises:
            StorageFull: The spool or the disk is full.
            JobClosed: The job was cancelled.
            StorageError: The data directory failed; the document was not taken.
            NotReady: The daemon is shutting down.
        """
        if self._draining:
            raise NotReady("the daemon is shutting down")
        document = self._ledger.accept(job_id, upload)
        self._announce()
        return document

    def hand_over(self, job_id: JobId) -> Job:
        """Notes that a job gets no further documents and returns it."""
        self._ledger.hand_over(job_id)
        self._announce()
        return self._ledger.job(job_id)

    def cancel(self, job_id: JobId) -> Job:
        """Ends a job: what is not stored yet will not be.

        Raises:
            JobNotFound: There is no such job.
        """
        job = self._ledger.cancel(job_id)
        self._announce()
        return job

    def job(self, job_id: JobId) -> Job:
        """Returns a job.

        Raises:
            JobNotFound: There is no such job.
        """
        return self._ledger.job(job_id)

    def jobs(self, limit: int, within: frozenset[str] | None) -> tuple[Job, ...]:
        """Returns the latest jobs, the newest first; ``within`` as ``JobStore.jobs`` has it."""
        return self._ledger.jobs(limit, within)

    async def can_admit(self, size_bytes: int) -> None:
        """Waits until a document of that size would be accepted."""
        with self._woken() as woken:
            while not await asyncio.to_thread(self._ledger.has_room, size_bytes) and not self._draining:
                await woken.wait()
                woken.clear()

    async def follow(self, job_id: JobId, cursor: int) -> AsyncGenerator[JobPage, None]:
        """Yields what became of a job's documents, as it happens; ends with the job.

        Args:
            job_id: The job.
            cursor: Change to begin after; 0 begins with the first.

        Raises:
            JobNotFound: There is no such job.
            NotReady: The daemon is shutting down.
        """
        with self._woken() as woken:
            shown: JobPage | None = None
            while True:
                woken.clear()
                if self._draining:
                    raise NotReady("the daemon is shutting down; the job goes on when it is back")
                page = await asyncio.to_thread(self._page, job_id, cursor)
                if shown is None or page.documents or page.work != shown.work or page.job != shown.job:
                    yield page
                shown, cursor = page, page.cursor
                if len(page.documents) == _CHANGES_AT_ONCE:
                    continue
                if page.job.state is not JobState.RUNNING:
                    return
                await woken.wait()

    def drain(self) -> None:
        """Ends whoever follows and refuses further documents; the work goes on."""
        self._draining = True
        self._announce()

    def close(self) -> None:
        """Lets the document in work finish; the others wait for the next start."""
        with self._changed:
            self._draining = self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _page(self, job_id: JobId, cursor: int) -> JobPage:
        job, documents = self._ledger.changes(job_id, cursor, _CHANGES_AT_ONCE)
        work = self._work
        return JobPage(
            job=job,
            documents=documents,
            cursor=documents[-1].change if documents else cursor,
            work=work if work is not None and work.job_id == job_id else None,
        )

    def _announce(self) -> None:
        with self._changed:
            self._idle = False
            self._changed.notify_all()
            wakers = tuple(self._wakers)
        for wake in wakers:
            wake()

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._closed:
            with self._changed:
                self._idle = True
            try:
                accepted = self._ledger.next()
                if accepted is not None:
                    self._store(accepted)
                pause_s = _FIRST_PAUSE_S
            except StorageError as error:
                _log.error("ingest waits for the storage", error=str(error), seconds=pause_s)
                if self._work is not None:
                    self._show(replace(self._work, problem=str(error)))
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, pause_s)
                pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
                continue
            self._show(None)
            if accepted is None:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or not self._idle)

    def _store(self, accepted: AcceptedDocument) -> None:
        """Stores one document, or settles that it cannot be.

        Raises:
            StorageError: The data directory failed; the document waits on.
        """
        work = IngestWork(accepted.job_id, accepted.name, IngestPhase.PARSING)
        self._show(work)
        try:
            upload = self._ledger.upload(accepted.ticket)
        except StorageCorrupt as error:
            self._settle(accepted.ticket, IngestOutcome(accepted.name, IngestStatus.REJECTED, reason=str(error)))
            return

        def progress(phase: IngestPhase, done: int, total: int) -> None:
            self._show(replace(work, phase=phase, chunks_done=done, chunks=total))

        try:
            outcome = self._library.take(upload, accepted.ticket, progress)
        except StorageError:
            raise
        except EdgeRagError as error:
            outcome = IngestOutcome(accepted.name, IngestStatus.REJECTED, reason=str(error))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the other documents go on
            _log.exception("a document could not be ingested", document=accepted.name)
            reason = f"internal error ({error!r}); the daemon's log says more"
            outcome = IngestOutcome(accepted.name, IngestStatus.REJECTED, reason=reason)
        self._settle(accepted.ticket, outcome)

    def _settle(self, ticket: Ticket, outcome: IngestOutcome | None) -> None:
        if outcome is None:
            self._ledger.settle(ticket, JobDocumentState.SUPERSEDED, "something newer came meanwhile")
            return
        document_id = None if outcome.document is None else outcome.document.document_id
        self._ledger.settle(ticket, _STATES[recognized(outcome.status)], outcome.reason, document_id)
        self._observe(outcome)

    def _show(self, work: IngestWork | None) -> None:
        if work != self._work:
            self._work = work
            with self._changed:
                wakers = tuple(self._wakers)
            for wake in wakers:
                wake()

    @contextmanager
    def _woken(self) -> Iterator[asyncio.Event]:
        """An event of the running loop that is set whenever something changes."""
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
