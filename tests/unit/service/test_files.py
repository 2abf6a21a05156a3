"""Files that become documents: names, states, who sees what, and what is deleted with what."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.document import Upload
from edge_rag.core.documents.files import KEPT_S, Attachment, FileState, StoredFile
from edge_rag.core.documents.jobs import JobDocumentState, JobState
from edge_rag.core.identity import Identity, Role
from edge_rag.errors import (
    CollectionNotFound,
    DocumentTooLarge,
    FileNotFound,
    InvalidRequest,
    JobNotFound,
)
from edge_rag.pipeline.ingest import Ingest, IngestObserver
from edge_rag.pipeline.ingest_policy import IngestLimits
from edge_rag.pipeline.yield_to_queries import IngestYield
from edge_rag.service import files
from edge_rag.service.call import Call
from edge_rag.service.files import FileToAttach, SameName
from edge_rag.storage.uploads.attachments import AttachmentPage
from tests.unit.conftest import Opener, ingest

ADA = Identity("ada", frozenset({Role.WRITER, Role.READER}))
PUMP = b"The bearings of the pump are greased every two thousand hours."
VALVE = b"The relief valve opens at seven bar since the overhaul."
ALL = AttachmentPage(None, 100, newest_first=False)


class Box:
    def __init__(self, directory: OpenDirectory) -> None:
        self.directory = directory
        observer = IngestObserver(lambda outcome: None, lambda owner, seconds: None)
        self.ingest = Ingest(
            directory.jobs, directory.library, observer, IngestYield().yield_to_queries, 8, IngestLimits()
        )

    def call(self, identity: Identity = ADA) -> Call:
        backend: Any = SimpleNamespace(
            files=self.directory.files,
            attachments=self.directory.attachments,
            ingest=self.ingest,
            library=self.directory.library,
            documents=self.directory.documents,
            spool=self.directory.spool,
            document_bytes=1 << 20,
        )

        def check(name: str) -> None:
            if not identity.can_see(name):
                raise CollectionNotFound(name, None)

        made: Any = SimpleNamespace(backend=backend, identity=identity, run=asyncio.to_thread, check_collection=check)
        return cast(Call, made)

    async def send(self, content: bytes, name: str = "pump.txt", identity: Identity = ADA) -> StoredFile:
        incoming = await files.receive(self.call(identity), name, "text/plain", pieces(content))
        return incoming.finish("assistants", KEPT_S)

    async def attach(
        self, *sent: StoredFile, same_name: SameName = SameName.KEEP, collection: str = "a"
    ) -> list[Attachment]:
        call = self.call()
        job, attached = await files.attach(
            call, collection, [FileToAttach(file.file_id, {"site": "north"}) for file in sent], same_name
        )
        assert {each.state for each in attached} <= {JobDocumentState.QUEUED, JobDocumentState.ADDED}
        async for page in self.ingest.follow(job.job_id, 0):
            last = page
        assert last.job.state is JobState.FINISHED
        return [await files.file_state(call, collection, file.file_id) for file in sent]

    def left_in_spool(self) -> list[Path]:
        """Ends the ingest first: what a job spooled goes after the job is recorded as finished."""
        self.ingest.close()
        return list((self.directory.files.folder.parent / "spool").iterdir())

    def names(self, collection: str = "a") -> list[str]:
        return [info.name for info in self.directory.documents.list(collection, None, 100)]


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for piece in content:
        yield piece


@pytest.fixture
def box(open_directory: Opener) -> Iterator[Box]:
    opened = Box(open_directory())
    yield opened
    opened.ingest.close()


async def test_a_file_becomes_a_document_with_its_metadata(box: Box) -> None:
    sent = await box.send(PUMP)
    assert (sent.state, sent.size_bytes) == (FileState.COMPLETE, len(PUMP))

    (attached,) = await box.attach(sent)

    assert (attached.state, attached.name, attached.reason) == (JobDocumentState.ADDED, "pump.txt", "")
    info = box.directory.documents.by_id(attached.document_id) if attached.document_id else None
    assert info is not None
    assert (info.sha256, info.metadata) == (sent.sha256, {"site": "north"})
    assert await files.files_of(box.call(), "a", [info.document_id]) == {info.document_id: sent.file_id}
    assert box.left_in_spool() == []


async def test_files_of_one_name_are_documents_side_by_side_or_replace_each_other(box: Box) -> None:
    pump, valve, same = await box.send(PUMP), await box.send(VALVE), await box.send(PUMP)
    first, second, third = await box.attach(pump, valve, same)
    assert second.name == f"pump ({valve.file_id[-12:]}).txt"
    assert (third.name, third.document_id) == ("pump.txt", first.document_id)
    assert sorted(box.names()) == sorted(["pump.txt", second.name])
    assert len((await files.list_attached(box.call(), "a", ALL))[0]) == 3

    later = await box.send(VALVE)
    (replaced,) = await box.attach(later, same_name=SameName.REPLACE)
    assert (replaced.name, replaced.document_id) == ("pump.txt", first.document_id)
    for gone in (pump, same):  # their document has other bytes now
        with pytest.raises(FileNotFound):
            await files.file_state(box.call(), "a", gone.file_id)


async def test_a_file_that_cannot_be_read_is_told_with_its_reason(box: Box) -> None:
    (rejected,) = await box.attach(await box.send(b"%PDF-1.7 nothing", "a.pdf"))
    assert (rejected.state, rejected.document_id) == (JobDocumentState.REJECTED, None)
    assert rejected.reason
    counts = await files.attached_counts(box.call(), "a", rejected.job_id)
    assert counts == {JobDocumentState.REJECTED: (1, rejected.size_bytes)}
    with pytest.raises(JobNotFound):
        await files.attached_counts(box.call(), "b", rejected.job_id)


async def test_documents_that_came_another_way_are_listed_and_found_by_their_id(box: Box) -> None:
    info = ingest(box.directory, "valve.txt", VALVE.decode(), "a").document
    assert info is not None
    sent = await box.send(PUMP)
    await box.attach(sent)
    listed, more = await files.list_attached(box.call(), "a", ALL)
    assert ([each.file_id for each in listed], more) == ([info.document_id, sent.file_id], False)
    page = AttachmentPage(None, 1, newest_first=True)
    (newest,), more = await files.list_attached(box.call(), "a", page)
    assert (newest.file_id, more) == (sent.file_id, True)
    (oldest,), more = await files.list_attached(box.call(), "a", replace(page, after=sent.file_id))
    assert (oldest.file_id, oldest.state, more) == (info.document_id, JobDocumentState.ADDED, False)
    assert await files.get(box.call(), info.document_id) == info
    await files.delete(box.call(), info.document_id)
    assert box.names() == ["pump.txt"]


async def test_a_deleted_file_takes_its_documents_along_unless_others_are_them(box: Box) -> None:
    pump, same, valve = await box.send(PUMP), await box.send(PUMP), await box.send(VALVE, "valve.txt")
    await box.attach(pump, same, valve)
    await files.delete(box.call(), pump.file_id)
    assert sorted(box.names()) == ["pump.txt", "valve.txt"]
    await files.detach(box.call(), "a", same.file_id)
    assert box.names() == ["valve.txt"]
    assert (await files.get(box.call(), same.file_id)) == same  # a detached file stays
    await files.delete(box.call(), valve.file_id)
    with pytest.raises(CollectionNotFound):
        box.names()
    with pytest.raises(FileNotFound):
        await files.get(box.call(), valve.file_id)


async def test_a_file_that_waits_to_be_stored_is_not_stored_once_it_is_detached(box: Box) -> None:
    box.ingest.drain()  # nothing is stored from now on
    sent = await box.send(PUMP)
    jobs = box.directory.jobs
    job = jobs.start("ada")
    content = box.directory.files.link(sent)
    jobs.accept(job.job_id, Upload("a", "pump.txt", "", content, owner="ada", file=sent.file_id))
    assert (await files.file_state(box.call(), "a", sent.file_id)).state is JobDocumentState.QUEUED
    await files.detach(box.call(), "a", sent.file_id)
    assert jobs.job(job.job_id).documents == {JobDocumentState.CANCELLED: 1}
    assert box.left_in_spool() == []


async def test_a_file_is_its_owners_and_its_document_everybodys_who_sees_the_collection(box: Box) -> None:
    sent = await box.send(PUMP)
    (attached,) = await box.attach(sent)
    bob = box.call(Identity("bob", frozenset({Role.WRITER, Role.READER}), frozenset({"a"})))
    writer = box.call(Identity("wim", frozenset({Role.WRITER}), frozenset({"a"})))
    stranger = box.call(Identity("eve", frozenset({Role.WRITER, Role.READER}), frozenset({"b"})))
    admin = box.call(Identity("root", frozenset({Role.ADMIN})))
    uses: list[Callable[[Call], Awaitable[object]]] = [
        lambda call: files.get(call, sent.file_id),
        lambda call: files.delete(call, sent.file_id),
        lambda call: files.attach(call, "a", [FileToAttach(sent.file_id, {})], SameName.KEEP),
    ]
    for use in uses:
        with pytest.raises(FileNotFound):
            await use(bob)
    assert (await files.file_state(bob, "a", sent.file_id)) == attached
    assert attached.document_id is not None
    assert await files.get(bob, attached.document_id) is not None
    for other in (writer, stranger):
        with pytest.raises(FileNotFound):
            await files.get(other, attached.document_id)
    with pytest.raises(CollectionNotFound):
        await files.file_state(stranger, "a", sent.file_id)
    assert (await files.list_page(bob, None, None, 10, newest_first=True))[0] == ()
    assert (await files.list_page(admin, None, None, 10, newest_first=True))[0] == (sent,)
    assert await files.get(admin, sent.file_id) == sent


async def test_a_file_whose_bytes_are_not_kept_is_read_and_attached_from_its_documents_original(box: Box) -> None:
    sent = await box.send(PUMP)
    (attached,) = await box.attach(sent)
    store = box.directory.files
    assert store._release_oldest()  # as when room is needed
    released = await files.get(box.call(), sent.file_id)
    assert isinstance(released, StoredFile)
    assert (released.state, list(store.folder.iterdir())) == (FileState.RELEASED, [])
    assert b"".join([piece async for piece in files.read(box.call(), released)]) == PUMP
    document = await files.get(box.call(), attached.document_id or "")
    assert b"".join([piece async for piece in files.read(box.call(), document)]) == PUMP

    (other,) = await box.attach(released, collection="b")
    assert (other.state, other.name) == (JobDocumentState.ADDED, "pump.txt")
    assert box.left_in_spool() == []


async def test_what_cannot_be_attached_is_refused_before_anything_is(box: Box) -> None:
    whole = await box.send(PUMP)
    call = box.call()
    for wanted, error in (
        ([], InvalidRequest),
        ([whole.file_id, "file-none"], FileNotFound),
        ([whole.file_id] * 501, InvalidRequest),
    ):
        with pytest.raises(error):
            await files.attach(call, "a", [FileToAttach(each, {}) for each in wanted], SameName.KEEP)
    assert box.directory.documents.document_counts() == {}


async def test_a_file_is_bounded_and_leaves_nothing_when_it_is_refused(box: Box) -> None:
    with pytest.raises(DocumentTooLarge, match=r"ingest\.document_mib"):
        await files.receive(box.call(), "b", "", pieces(b"x" * (1 << 19), b"x" * (1 << 20)))
    assert list(box.directory.files.folder.iterdir()) == []
