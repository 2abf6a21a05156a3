"""Ingest: documents whose outcome the caller waits for, and documents that jobs accept and store later.

Both are chosen and run by one scheduler. The queue of the jobs is the job store, so the next process continues after a
crash; the queue of waiting callers is in memory and bounded.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import structlog

from edge_rag.core.documents.document import IngestOutcome, IngestStatus, RejectionCause, Upload
from edge_rag.core.documents.jobs import (
    Job,
    JobBacklog,
    JobDocument,
    JobDocumentState,
    JobId,
    JobPage,
    JobState,
    QueuedDocument,
    Ticket,
)
from edge_rag.core.ids import require_recognized
from edge_rag.core.limits.fair_share import may_hold_more
from edge_rag.core.monitoring.followers import Followers
from edge_rag.core.monitoring.status import StageSnapshot
from edge_rag.errors import EdgeRagError, NotReady, Overloaded, RequestCancelled, StorageError
from edge_rag.ingest.library import DocumentLibrary
from edge_rag.pipeline.ingest_forecast import forecast
from edge_rag.pipeline.ingest_policy import IngestLimits
from edge_rag.pipeline.ingest_scheduler import IngestScheduler, Pause, ScheduledTask
from edge_rag.pipeline.stage import Timed
from edge_rag.storage.jobs import JobStore
from edge_rag.telemetry.metrics.calls import UNTRACED, CallTrace, times

log = structlog.get_logger(__name__)

DIRECT_DOCUMENTS: Final = 64
"""Documents of callers that may wait for their turn; documents of jobs wait in the spool."""

_BACKLOG_AGE_S: Final = 1.0
_PAGE_CHANGES: Final = 500
_RETRY_S: Final = 1.0
_DIRECT_FIRST: Final = -(1 << 62)
_STATES: Final = {
    IngestStatus.ADDED: JobDocumentState.ADDED,
    IngestStatus.REPLACED: JobDocumentState.REPLACED,
    IngestStatus.UNCHANGED: JobDocumentState.UNCHANGED,
    IngestStatus.REJECTED: JobDocumentState.REJECTED,
}


@dataclass(frozen=True, slots=True)
class IngestObserver:
    """The events of ingested documents.

    Attributes:
        on_charged: Called with an owner and the seconds of parsing, chunking and embedding of a document.
    """

    on_outcome: Callable[[IngestOutcome], None]
    on_charged: Callable[[str, float], None]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A document whose caller waits."""

    queued: QueuedDocument
    upload: Upload
    since: float
    future: Future[Timed[IngestOutcome]] = field(default_factory=Future)
    context: Context = field(default_factory=copy_context)
    task: ScheduledTask | None = None


class Ingest:
    """Ingests documents, directly and as jobs. May be used from any thread.

    Args:
        pause: Waits while queries are answered.
        capacity: Most documents of callers that may wait.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        store: JobStore,
        library: DocumentLibrary,
        observer: IngestObserver,
        pause: Pause,
        capacity: int,
        limits: IngestLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._library = library
        self._observer = observer
        self._capacity = capacity
        self._clock = clock
        self._lock = threading.Lock()
        self._orders = itertools.count(_DIRECT_FIRST)
        self._direct: dict[int, _Waiting] = {}
        self._running = self._completed = self._refused = 0
        self._last_collection: dict[str, str] = {}
        self._backlog: tuple[float, tuple[JobBacklog, ...]] | None = None
        self._draining = self._closed = False
        self._followers = Followers()
        self._scheduler = IngestScheduler(limits, pause, self._followers.wake, observer.on_charged, clock)
        self._scheduler.start(self)

    async def ingest(self, upload: Upload, trace: CallTrace = UNTRACED) -> IngestOutcome:
        """Stores one document. With any outcome but REJECTED it is durable on return.

        A caller that is cancelled takes its document along: it is removed from the queue, or its ingest is ended.
        """
        with trace.stage("ingest") as span:
            waiting = self._submit(upload)
            try:
                timed = await asyncio.wrap_future(waiting.future)
            except asyncio.CancelledError:
                self._abandon(waiting)
                raise
            span.note(times(timed.queue_s, timed.compute_s))
            span.note({"edge_rag.outcome": timed.value.status.value, "edge_rag.bytes": upload.content.size_bytes})
            return timed.value

    def snapshot(self) -> StageSnapshot:
        with self._lock:
            waiting = len(self._direct)
            return StageSnapshot("ingest", waiting, self._capacity, self._running, self._completed, self._refused)

    def start(self, owner: str) -> Job:
        return self._store.start(owner)

    def accept(self, job_id: JobId, upload: Upload) -> JobDocument:
        """Accepts a document for later ingest; durable on return.

        Raises:
            NotReady: The daemon is shutting down.
        """
        if self._draining:
            raise NotReady("the daemon is shutting down")
        document = self._store.accept(job_id, upload)
        self._notify()
        return document

    def finish_uploads(self, job_id: JobId) -> Job:
        self._store.finish_uploads(job_id)
        self._notify()
        return self.job(job_id)

    def cancel(self, job_id: JobId) -> Job:
        """Cancels a job: its waiting documents are not stored, and one in work is ended."""
        job = self._store.cancel(job_id)
        for task in self._scheduler.tasks:
            if task.document.job_id == job_id:
                task.end(RequestCancelled("the job was cancelled"))
        self._notify()
        return job

    def job(self, job_id: JobId) -> Job:
        return self._with_forecast(self._store.job(job_id))

    def jobs(self, limit: int, within: frozenset[str] | None) -> tuple[Job, ...]:
        """Returns the latest jobs, the newest first; see ``JobStore.jobs`` for ``within``."""
        return tuple(map(self._with_forecast, self._store.jobs(limit, within)))

    async def follow(self, job_id: JobId, cursor: int) -> AsyncGenerator[JobPage, None]:
        """Yields a job's history as it happens; ends with the job.

        Args:
            cursor: Number of the change to begin after; 0 for all changes.

        Raises:
            NotReady: The daemon is shutting down.
        """
        with self._followers.follow() as woken:
            last: JobPage | None = None
            while True:
                woken.clear()
                if self._draining:
                    raise NotReady("the daemon is shutting down; the job continues after its next start")
                page = await asyncio.to_thread(self._page, job_id, cursor)
                if last is None or page.documents or page.work != last.work or page.job != last.job:
                    yield page
                last, cursor = page, page.cursor
                if page.documents:  # a page may be shorter than its limit
                    continue
                if page.job.state is not JobState.RUNNING:
                    return
                await woken.wait()

    def drain(self) -> None:
        self._draining = True
        for task in self._scheduler.tasks:
            if task.document.job_id is not None:
                task.end(NotReady("the daemon is shutting down"))
        self._notify()

    def close(self) -> None:
        """Ends all documents and stops; those of jobs wait for the daemon's next start."""
        self._draining = True
        reason = NotReady("the daemon is shutting down")
        with self._lock:
            self._closed = True
            waiting = list(self._direct.values())
            self._direct.clear()
        for each in waiting:
            if each.future.set_running_or_notify_cancel():
                each.future.set_exception(reason)
        self._scheduler.close(reason)

    # The source of the scheduler.

    def owners(self) -> list[str]:
        with self._lock:
            owners = {each.queued.owner for each in self._direct.values()}
        return sorted(owners.union(() if self._draining else self._store.owners()))

    def waiting(self, owner: str) -> list[QueuedDocument]:
        """Returns documents of an owner that may begin; see ``TaskSource``."""
        found: list[QueuedDocument] = []
        with self._lock:
            names: set[tuple[str, str]] = set()
            for each in self._direct.values():
                name = each.queued.collection, each.queued.name
                if each.queued.owner == owner and name not in names:
                    found.append(each.queued)
                names.add(name)
            after = self._last_collection.get(owner, "")
        if not self._draining:
            # A direct ingest replaces the document of its name, so that documents of jobs wait for it.
            accepted = self._store.waiting(owner, after)
            found += [each for each in accepted if (each.collection, each.name) not in names]
        return found

    def begin(self, document: QueuedDocument) -> ScheduledTask | None:
        """Returns the task of a document; see ``TaskSource``."""
        with self._lock:
            self._last_collection[document.owner] = document.collection
        if document.job_id is not None:
            ticket = Ticket(document.order)
            if self._draining or not self._store.is_queued(ticket):
                return None
            return ScheduledTask(self._scheduler, document, partial(self._run_accepted, ticket))
        with self._lock:
            waiting = self._direct.pop(document.order, None)
            if waiting is None or not waiting.future.set_running_or_notify_cancel():
                return None
            waiting.task = ScheduledTask(self._scheduler, document, partial(self._run_direct, waiting))
            self._running += 1
            return waiting.task

    def _submit(self, upload: Upload) -> _Waiting:
        owner = upload.owner
        with self._lock:
            if self._closed:
                raise NotReady("the ingest stage is shutting down")
            held = sum(each.queued.owner == owner for each in self._direct.values())
            if not may_hold_more(held, self._capacity - len(self._direct)):
                self._refused += 1
                raise Overloaded("ingest", _RETRY_S)
            order = next(self._orders)
            queued = QueuedDocument(order, None, owner, upload.collection, upload.name, upload.content.size_bytes)
            self._direct[order] = waiting = _Waiting(queued, upload, self._clock())
        self._scheduler.wake()
        return waiting

    def _abandon(self, waiting: _Waiting) -> None:
        with self._lock:
            self._direct.pop(waiting.queued.order, None)
            task = waiting.task
        if task is not None:
            task.end(RequestCancelled("the client has gone"))

    def _run_direct(self, waiting: _Waiting, task: ScheduledTask) -> None:
        began = self._clock()
        try:
            outcome = waiting.context.run(self._library.ingest, waiting.upload, task)
        except Exception as error:  # noqa: BLE001 - the result of the call
            waiting.future.set_exception(error)
        else:
            self._observer.on_outcome(outcome)
            waiting.future.set_result(Timed(outcome, began - waiting.since, self._clock() - began))
        finally:
            with self._lock:
                self._running -= 1
                self._completed += 1

    def _run_accepted(self, ticket: Ticket, task: ScheduledTask) -> None:
        """Stores a document of a job, or completes it as rejected."""
        name = task.document.name
        outcome: IngestOutcome | None
        try:
            outcome = self._library.take(self._store.upload(ticket), ticket, task)
        except StorageError:
            raise
        except EdgeRagError as error:
            if task.is_ended:
                raise
            outcome = IngestOutcome(name, IngestStatus.REJECTED, None, str(error), RejectionCause.of(error))
        except Exception as error:
            log.exception("document ingest failed", document=name)
            reason = f"internal error ({error!r}); see the daemon's log"
            outcome = IngestOutcome(name, IngestStatus.REJECTED, None, reason, RejectionCause.INTERNAL)
        self._complete(ticket, outcome)

    def _complete(self, ticket: Ticket, outcome: IngestOutcome | None) -> None:
        if outcome is None:
            self._store.complete(ticket, JobDocumentState.SUPERSEDED, "superseded by a newer version")
            return
        document_id = None if outcome.document is None else outcome.document.document_id
        state = _STATES[require_recognized(outcome.status)]
        self._store.complete(ticket, state, outcome.reason, document_id, outcome.cause)
        self._observer.on_outcome(outcome)

    def _page(self, job_id: JobId, cursor: int) -> JobPage:
        job, documents = self._store.changes(job_id, cursor, _PAGE_CHANGES)
        work = next((task.work for task in self._scheduler.tasks if task.document.job_id == job_id), None)
        return JobPage(
            job=self._with_forecast(job),
            documents=documents,
            cursor=documents[-1].change if documents else cursor,
            work=work,
        )

    def _with_forecast(self, job: Job) -> Job:
        if job.state is not JobState.RUNNING or not job.documents.get(JobDocumentState.QUEUED):
            return job
        now, read = self._clock(), self._backlog
        known = read is not None and any(each.job_id == job.job_id for each in read[1])
        if read is None or not known or now - read[0] > _BACKLOG_AGE_S:
            self._backlog = read = now, tuple(self._store.backlog())
        expected = forecast(job.job_id, read[1], *self._scheduler.costs())
        return replace(job, documents_ahead=expected.documents_ahead, time_left_s=expected.time_left_s)

    def _notify(self) -> None:
        self._scheduler.wake()
        self._followers.wake()
