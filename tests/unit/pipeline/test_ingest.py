"""Ingest of several owners at once: nobody is held up by another, and what is ended leaves nothing half done."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from edge_rag.core.documents.document import IngestOutcome, IngestStatus, RejectionCause, Upload
from edge_rag.core.documents.jobs import IngestPhase, JobDocumentState, JobId, JobState, Ticket
from edge_rag.core.ports import IngestTask
from edge_rag.errors import (
    BrokenDocument,
    InferenceFailed,
    InvalidRequest,
    NotReady,
    Overloaded,
    RequestCancelled,
    StorageError,
    UnsupportedFormat,
)
from edge_rag.ingest.library import DocumentLibrary
from edge_rag.pipeline.ingest import Ingest, IngestObserver
from edge_rag.pipeline.ingest_policy import IngestLimits
from edge_rag.storage.database import Database
from edge_rag.storage.jobs import JobStore
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.uploads.attachments import AttachmentStore

_SECONDS = 60.0


def wait_until(condition: Callable[[], object]) -> None:
    """Waits for something that the test cannot be told of; the test's time limit ends it."""
    while not condition():
        threading.Event().wait(0.001)


def upload(name: str, owner: str) -> Upload:
    return replace(Upload.of_bytes("manuals", name, "", b"text"), owner=owner)


class Library:
    """A library whose documents are parsed until the test lets them, and then take turns at the embedder."""

    def __init__(self) -> None:
        self.finish = {name: threading.Event() for name in ("slow", "slower")}
        self.begun: dict[str, threading.Event] = {}
        self.order: list[str] = []
        self.failures: list[Exception] = []
        self.turns: list[str] = []
        self.embeds = 1
        self.hold_turn: Callable[[], None] = lambda: None
        self.gate = threading.Event()
        self.gate.set()
        self._lock = threading.Lock()

    def has_begun(self, name: str) -> threading.Event:
        with self._lock:
            return self.begun.setdefault(name, threading.Event())

    def ingest(self, upload: Upload, task: IngestTask) -> IngestOutcome:
        if self.failures:
            raise self.failures.pop()
        ended = threading.Event()
        task.report(IngestPhase.PARSING, 0, 0)
        with task.parsing(ended.set):
            self.has_begun(upload.name).set()
            finish = self.finish.get(upload.name, self.gate)
            while not finish.wait(0.01) and not ended.is_set():
                pass
        task.check()
        for _ in range(self.embeds):
            with task.embedding():
                self.turns.append(upload.name)
                task.charge(1.0)
                self.hold_turn()
        task.check()
        self.order.append(upload.name)
        return IngestOutcome(upload.name, IngestStatus.ADDED)

    def take(self, upload: Upload, ticket: Ticket, task: IngestTask) -> IngestOutcome | None:
        return self.ingest(upload, task)


class Box:
    """An ingest over a store on disk, with clients on threads."""

    def __init__(self, folder: Path, limits: IngestLimits | None = None) -> None:
        self.folder = folder
        self.database = Database(folder / "documents.sqlite3")
        self.store = JobStore(self.database, Spool(folder / "spool", 1 << 30))
        self.library = Library()
        self.charged: list[tuple[str, float]] = []
        observer = IngestObserver(lambda outcome: None, lambda owner, seconds: self.charged.append((owner, seconds)))
        library = cast(DocumentLibrary, self.library)
        self.ingest = Ingest(self.store, library, observer, lambda seconds, ended: None, 8, limits or IngestLimits())
        self.clients = ThreadPoolExecutor(16)

    def direct(self, owner: str, name: str) -> Future[IngestOutcome]:
        document = upload(name, owner)
        return self.clients.submit(lambda: asyncio.run(self.ingest.ingest(document)))

    def job(self, owner: str, *names: str) -> JobId:
        job_id = self.ingest.start(owner).job_id
        for name in names:
            self.ingest.accept(job_id, upload(name, owner))
        self.ingest.finish_uploads(job_id)
        return job_id

    def await_end(self, job_id: JobId) -> None:
        async def follow() -> None:
            async for _ in self.ingest.follow(job_id, 0):
                pass

        asyncio.run(asyncio.wait_for(follow(), _SECONDS))

    def close(self) -> None:
        for finish in self.library.finish.values():
            finish.set()
        self.library.gate.set()
        self.ingest.close()
        self.clients.shutdown()
        self.database.close()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with closing(Box(tmp_path)) as opened:
        yield opened


def test_a_document_that_is_parsed_for_long_holds_up_no_other_owner(box: Box) -> None:
    slow = box.job("eve", "slow", "slower", "third")
    assert box.library.has_begun("slow").wait(_SECONDS)

    assert box.direct("ada", "page").result(_SECONDS).status is IngestStatus.ADDED
    box.await_end(box.job("bob", "note"))

    assert not box.library.has_begun("slower").is_set()
    assert box.ingest.job(slow).documents == {JobDocumentState.QUEUED: 3}


def test_what_two_owners_embed_takes_turns(box: Box) -> None:
    box.library.gate.clear()
    box.library.embeds = 8
    scheduler = box.ingest._scheduler
    # A turn ends once the other owner waits for the next one, or has had all of its own.
    box.library.hold_turn = lambda: wait_until(lambda: scheduler._turns or len(scheduler.tasks) == 1)
    clients = [box.direct("eve", "long"), box.direct("ada", "short")]
    for name in ("long", "short"):
        assert box.library.has_begun(name).wait(_SECONDS)
    with scheduler.turn(scheduler.tasks[0]):
        box.library.gate.set()
        wait_until(lambda: len(scheduler._turns) == 2)
    for client in clients:
        client.result(_SECONDS)

    assert all(set(box.library.turns[place : place + 2]) == {"long", "short"} for place in range(0, 16, 2))


def test_a_client_that_goes_takes_its_document_along(box: Box) -> None:
    async def give_up(name: str, until: Callable[[], bool]) -> None:
        call = asyncio.ensure_future(box.ingest.ingest(upload(name, "eve")))
        await asyncio.to_thread(wait_until, until)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(give_up("slow", box.library.has_begun("slow").is_set))
    wait_until(lambda: not box.ingest._scheduler.tasks)
    box.library.gate.clear()
    blocking = [box.direct("eve", name) for name in ("slower", "other")]
    wait_until(lambda: box.ingest.snapshot().running == 2 or box.ingest.snapshot().waiting == 1)
    asyncio.run(give_up("queued", lambda: box.ingest.snapshot().waiting == 2))
    assert box.ingest.snapshot().waiting == 1
    box.library.finish["slower"].set()
    box.library.gate.set()
    for each in blocking:
        each.result(_SECONDS)

    assert set(box.library.order) == {"slower", "other"}
    assert not box.library.has_begun("queued").is_set()


def test_a_cancelled_job_ends_the_document_in_work(box: Box) -> None:
    job_id = box.job("eve", "slow")
    assert box.library.has_begun("slow").wait(_SECONDS)

    assert box.ingest.cancel(job_id).state is JobState.CANCELLED
    wait_until(lambda: not box.ingest._scheduler.tasks)

    assert box.library.order == []


def test_a_daemon_that_stops_leaves_the_document_queued_and_the_next_one_stores_it(tmp_path: Path) -> None:
    with closing(Box(tmp_path)) as first:
        job_id = first.job("eve", "slow", "other")
        waiting = first.direct("ada", "slower")
        for name in ("slow", "slower"):
            assert first.library.has_begun(name).wait(_SECONDS)
        first.ingest.drain()
        with pytest.raises(NotReady):
            first.ingest.accept(job_id, upload("late", "eve"))
        first.ingest.close()
        with pytest.raises(NotReady):
            waiting.result(_SECONDS)
        assert first.store.job(job_id).documents == {JobDocumentState.QUEUED: 2}
    with closing(Box(tmp_path)) as second:
        second.library.finish["slow"].set()
        second.await_end(job_id)
        assert set(second.library.order) == {"slow", "other"}


def test_one_caller_leaves_places_in_the_queue_to_others(box: Box) -> None:
    box.library.gate.clear()
    box.direct("eve", "slow")
    assert box.library.has_begun("slow").wait(_SECONDS)
    waiting = [box.direct("eve", f"{number}") for number in range(8)]
    wait_until(lambda: box.ingest.snapshot().waiting + box.ingest.snapshot().refused == 8)
    snapshot = box.ingest.snapshot()
    assert (snapshot.waiting, snapshot.refused) == (6, 2)

    other = box.direct("ada", "page")
    assert box.library.has_begun("page").wait(_SECONDS)
    assert not other.done()
    box.library.gate.set()
    box.library.finish["slow"].set()
    assert sum(isinstance(each.exception(_SECONDS), Overloaded) for each in waiting) == 2


def test_a_disk_that_fails_for_a_moment_loses_nothing(box: Box) -> None:
    box.library.failures.append(StorageError("the disk failed"))
    box.await_end(box.job("ada", "page"))

    assert box.library.order == ["page"]


def test_work_is_charged_to_who_caused_it(box: Box) -> None:
    box.await_end(box.job("ada", "a", "b"))
    box.direct("bob", "c").result(_SECONDS)
    wait_until(lambda: len(box.charged) == 3)

    assert sorted(box.charged) == [("ada", 1.0), ("ada", 1.0), ("bob", 1.0)]


def test_an_error_of_the_library_rejects_the_document_only(box: Box) -> None:
    box.library.failures.append(ValueError("a defect"))
    job_id = box.job("ada", "bad")
    box.await_end(job_id)
    box.library.failures.append(RequestCancelled("of its own"))
    with pytest.raises(RequestCancelled):
        box.direct("ada", "x").result(_SECONDS)

    assert box.ingest.job(job_id).documents == {JobDocumentState.REJECTED: 1}
    assert box.direct("ada", "good").result(_SECONDS).status is IngestStatus.ADDED


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (UnsupportedFormat("it is a film"), RejectionCause.UNSUPPORTED),
        (BrokenDocument("it is damaged"), RejectionCause.UNUSABLE),
        (InvalidRequest("metadata", "is too long"), RejectionCause.UNUSABLE),
        (InferenceFailed("the embedder"), RejectionCause.INTERNAL),
        (ZeroDivisionError("oh"), RejectionCause.INTERNAL),
    ],
)
def test_why_a_file_is_rejected_is_kept_with_it(box: Box, error: Exception, cause: RejectionCause) -> None:
    box.library.failures.append(error)
    job_id = box.ingest.start("ada").job_id
    box.ingest.accept(job_id, replace(upload("note", "ada"), file="file-1"))
    box.ingest.finish_uploads(job_id)
    box.await_end(job_id)
    kept = AttachmentStore(box.database, Spool(box.folder / "unused", 1)).get("manuals", "file-1")
    assert (kept.state, kept.cause) == (JobDocumentState.REJECTED, cause)
    assert str(error) in kept.reason
