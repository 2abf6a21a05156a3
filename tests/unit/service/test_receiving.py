"""Documents that are received: each is a file until it is stored, and none stays behind."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_rag.core.documents.document import IngestOutcome, IngestStatus, Upload
from edge_rag.core.identity import Identity, Role
from edge_rag.errors import InvalidRequest, StorageFull
from edge_rag.service import documents
from edge_rag.service.call import Call
from edge_rag.service.documents import UploadEnd, UploadHeader, UploadPart
from edge_rag.storage.spool.files import Spool

_MOST = 1000


class Library:
    """Takes documents, and looks into the spool while it does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.taken: list[tuple[str, bytes, str]] = []
        self.files: list[int] = []
        self.waiting = asyncio.Event()
        self.proceed = asyncio.Event()
        self.proceed.set()

    async def ingest(self, upload: Upload, trace: object) -> IngestOutcome:
        self.waiting.set()
        await self.proceed.wait()
        self.taken.append((upload.name, upload.content.read(), upload.owner))
        self.files.append(len(list(self.folder.iterdir())))
        return IngestOutcome(upload.name, IngestStatus.ADDED)


def make(folder: Path) -> tuple[Call, Library, Spool]:
    spool = Spool(folder / "spool", 1 << 20)
    library = Library(folder / "spool")
    backend: Any = SimpleNamespace(spool=spool, document_bytes=_MOST, ingest=library)
    identity = Identity("ada", frozenset({Role.WRITER}))
    call: Any = SimpleNamespace(backend=backend, identity=identity, trace=None, check_collection=lambda name: None)
    return cast(Call, call), library, spool


def header(name: str, size: int | None = None) -> UploadHeader:
    return UploadHeader("default", name, "", {}, size)


async def stream(*parts: UploadPart) -> AsyncIterator[UploadPart]:
    for part in parts:
        yield part


async def committed(spool: Spool, uploads: documents.Uploads) -> AsyncIterator[str]:
    async for upload in uploads:
        assert isinstance(upload, Upload)
        yield spool.commit(cast(Any, upload.content))


async def outcomes(call: Call, *parts: UploadPart) -> list[tuple[str, IngestStatus]]:
    found = documents.ingest(call, documents.receive(call, stream(*parts)))
    return [(outcome.name, cast(IngestStatus, outcome.status)) async for outcome in found]


async def test_each_document_is_a_file_until_it_is_stored(tmp_path: Path) -> None:
    call, library, spool = make(tmp_path)

    got = await outcomes(call, header("a", 6), b"one ", b"at", UploadEnd(), header("b"), b"two", UploadEnd())

    assert got == [("a", IngestStatus.ADDED), ("b", IngestStatus.ADDED)]
    assert library.taken == [("a", b"one at", "ada"), ("b", b"two", "ada")]
    assert library.files == [1, 1]
    assert (list((tmp_path / "spool").iterdir()), spool.used_bytes) == ([], 0)


async def test_a_rejected_document_leaves_no_file_and_the_next_is_stored(tmp_path: Path) -> None:
    call, library, spool = make(tmp_path)

    got = await outcomes(
        call,
        *(header("announced", _MOST + 1), b"x", UploadEnd()),
        *(header("grown"), b"x" * _MOST, b"x", b"x", UploadEnd()),
        *(header("short", 10), b"x", UploadEnd()),
        *(header("long", 1), b"x", b"x", UploadEnd()),
        *(header("good", 1), b"x", UploadEnd()),
    )

    rejected = [(name, IngestStatus.REJECTED) for name in ("announced", "grown", "short", "long")]
    assert got == [*rejected, ("good", IngestStatus.ADDED)]
    assert library.files == [1]
    assert (list((tmp_path / "spool").iterdir()), spool.used_bytes) == ([], 0)


async def test_a_client_that_goes_takes_its_document_along(tmp_path: Path) -> None:
    call, library, spool = make(tmp_path)
    library.proceed.clear()
    task = asyncio.create_task(outcomes(call, header("a", 1), b"x", UploadEnd()))
    await library.waiting.wait()
    assert len(list((tmp_path / "spool").iterdir())) == 1

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert library.taken == []
    assert (list((tmp_path / "spool").iterdir()), spool.used_bytes) == ([], 0)


async def test_a_client_that_goes_while_it_waits_for_room_gives_its_place_up(tmp_path: Path) -> None:
    call, _, spool = make(tmp_path)
    full = spool.receive("bo", 1 << 20)
    reached = asyncio.Event()

    async def parts() -> AsyncIterator[UploadPart]:
        reached.set()  # the next step waits for room
        yield header("a", 1)

    uploads = documents.receive(call, parts())
    task = asyncio.ensure_future(anext(uploads))
    await reached.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    full.discard()

    assert spool.used_bytes == 0


async def test_a_document_that_a_job_has_accepted_stays(tmp_path: Path) -> None:
    call, _, spool = make(tmp_path)
    names = [
        spool.commit(cast(Any, upload.content))
        async for upload in documents.receive(
            call, stream(header("a", 1), b"x", UploadEnd(), header("b", 0), UploadEnd())
        )
        if isinstance(upload, Upload)
    ]

    assert sorted(path.name for path in (tmp_path / "spool").iterdir()) == sorted(names)
    assert len(names) == 2


async def test_content_before_a_header_is_refused(tmp_path: Path) -> None:
    call, _, _ = make(tmp_path)

    with pytest.raises(InvalidRequest, match="header"):
        await outcomes(call, b"x")


async def test_a_disk_without_room_ends_the_call_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, library, spool = make(tmp_path)
    spool_file = type(spool.receive("ada", 0))

    def full(*_: object) -> None:
        raise StorageFull("no space is left")

    with monkeypatch.context() as patched:
        patched.setattr(spool_file, "finish", full)
        with pytest.raises(StorageFull):
            await outcomes(call, header("a", 1), b"x", UploadEnd())

    assert list((tmp_path / "spool").iterdir()) == []
    assert await outcomes(call, header("b", 1), b"x", UploadEnd()) == [("b", IngestStatus.ADDED)]
    assert library.files == [1]
