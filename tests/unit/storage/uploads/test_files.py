"""Files that are sent in pieces: offsets, expiry, room, and what a crash leaves."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge_rag.core.documents.document import Upload
from edge_rag.core.documents.files import KEPT_S, UNFINISHED_S, FileId, FileState, NewFile, StoredFile
from edge_rag.core.documents.jobs import JobDocumentState
from edge_rag.errors import FileIncomplete, FileNotFound, OffsetMismatch, StorageFull
from edge_rag.storage.database import Database
from edge_rag.storage.jobs import JobStore
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.uploads import files as storage
from edge_rag.storage.uploads.files import FileStore

_MOST = 100_000


class Clock:
    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.ms


class Box:
    """A data directory's files, opened as after a start."""

    def __init__(self, folder: Path, capacity: int = 1 << 20, clock: Clock | None = None) -> None:
        self.folder = folder
        self.clock = clock or Clock()
        self.database = Database(folder / "documents.sqlite3")
        self.spool = Spool(folder / "spool", 1 << 20)
        self.jobs = JobStore(self.database, self.spool)
        self.jobs.recover()
        self.files = FileStore(folder / "files", self.database, self.spool, capacity, self.clock)
        self.files.recover()

    def create(self, size: int | None = None, owner: str = "ada", name: str = "pump.txt") -> StoredFile:
        return self.files.create(NewFile(owner, name, "text/plain", "assistants", size), _MOST)

    def send(self, content: bytes, owner: str = "ada") -> StoredFile:
        created = self.create(len(content), owner)
        self.append(created.file_id, 0, content)
        return self.files.finish(created.file_id)

    def append(self, file_id: FileId, offset: int, *pieces: bytes) -> int:
        writer = self.files.writer(file_id, offset)
        for piece in pieces:
            writer.write(piece)
        return writer.end()

    def attach(self, file: StoredFile) -> None:
        job = self.jobs.start(file.about.owner)
        content = self.files.link(file)
        self.jobs.accept(job.job_id, Upload("a", file.file_id, "", content, owner="ada", file=file.file_id))

    def close(self) -> None:
        self.files.close()
        self.database.close()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with closing(Box(tmp_path)) as opened:
        yield opened


def test_a_file_is_sent_in_pieces_and_is_private(box: Box) -> None:
    created = box.create(11)
    assert (created.state, created.offset) == (FileState.RECEIVING, 0)

    assert box.append(created.file_id, 0, b"one ", b"two ") == 8
    with pytest.raises(FileIncomplete, match="8 of 11"):
        box.files.finish(created.file_id)
    assert box.append(created.file_id, 8, b"ten") == 11
    found = box.files.finish(created.file_id)

    content = box.files.content(found)
    assert (found.state, found.about.size_bytes, content.read()) == (FileState.COMPLETE, 11, b"one two ten")
    assert stat.S_IMODE(content.path.stat().st_mode) == 0o600


def test_a_piece_that_does_not_begin_at_the_offset_is_refused_and_told_where(box: Box) -> None:
    created = box.create(10)
    box.append(created.file_id, 0, b"abcd")
    for offset in (0, 3, 5):
        with pytest.raises(OffsetMismatch, match="byte 4") as refused:
            box.files.writer(created.file_id, offset)
        assert refused.value.offset == 4
    with pytest.raises(OffsetMismatch), closing(Ended(box, created.file_id)) as writer:
        writer.write(b"x" * 7)  # one byte more than announced
    assert box.files.get(created.file_id).offset == 4


class Ended:
    """A writer that is ended like any other closed thing."""

    def __init__(self, box: Box, file_id: FileId) -> None:
        self._writer = box.files.writer(file_id, 4)
        self.write = self._writer.write

    def close(self) -> None:
        self._writer.end()


def test_who_goes_on_with_a_file_ends_who_sent_it_before(box: Box) -> None:
    created = box.create(None)
    stale = box.files.writer(created.file_id, 0)
    stale.write(b"first")

    assert box.files.settle(created.file_id).offset == 5
    writer = box.files.writer(created.file_id, 5)
    with pytest.raises(OffsetMismatch, match="byte 5"):
        stale.write(b"late")
    writer.write(b" second")
    assert writer.end() == 12
    assert box.files.content(box.files.finish(created.file_id)).read() == b"first second"


def test_an_offset_is_recorded_while_a_long_piece_arrives(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "SYNC_BYTES", 1000)
    created = box.create(5000)
    writer = box.files.writer(created.file_id, 0)
    writer.write(b"x" * 900)
    assert box.files.get(created.file_id).offset == 0
    writer.write(b"x" * 900)
    assert box.files.get(created.file_id).offset == 1800


def test_after_a_crash_a_file_is_cut_to_its_offset_and_goes_on(tmp_path: Path) -> None:
    with closing(Box(tmp_path)) as box:
        created = box.create(8)
        box.append(created.file_id, 0, b"abcd")
        with (tmp_path / "files" / created.file_id).open("ab") as file:
            file.write(b"torn")
        (tmp_path / "files" / "file-unknown").write_bytes(b"nobody's")
        lost = box.send(b"whole")
        box.files.content(lost).path.unlink()
    with closing(Box(tmp_path)) as box:
        assert box.files.get(created.file_id).offset == 4
        box.append(created.file_id, 4, b"efgh")
        assert box.files.content(box.files.finish(created.file_id)).read() == b"abcdefgh"
        with pytest.raises(FileNotFound):
            box.files.get(lost.file_id)
        assert not (tmp_path / "files" / "file-unknown").exists()


def test_unfinished_files_go_after_a_day_and_complete_ones_after_a_week(box: Box) -> None:
    unfinished, complete = box.create(8), box.send(b"whole")
    box.clock.ms += UNFINISHED_S * 1000
    with pytest.raises(FileNotFound):
        box.files.get(unfinished.file_id)
    box.files.sweep()
    assert [path.name for path in (box.folder / "files").iterdir()] == [complete.file_id]
    box.clock.ms += KEPT_S * 1000
    box.files.sweep()
    assert list((box.folder / "files").iterdir()) == []
    assert box.files.list(None, None, None, 9, newest_first=True) == ()


def test_the_bytes_of_a_file_that_waits_to_be_a_document_may_go_and_its_record_stays(box: Box) -> None:
    file = box.send(b"whole")
    box.attach(file)
    box.clock.ms += KEPT_S * 1000
    box.files.sweep()

    assert box.files.get(file.file_id).state is FileState.RELEASED
    with pytest.raises(FileIncomplete, match="not kept"):
        box.files.link(box.files.get(file.file_id))
    (waiting,) = box.jobs.waiting("ada", "")
    assert box.jobs.upload(waiting.order).content.read() == b"whole"  # type: ignore[arg-type]


def test_nothing_is_copied_into_the_spool(box: Box) -> None:
    file = box.send(b"x" * 50_000)
    box.attach(file)
    (spooled,) = (box.folder / "spool").iterdir()
    assert spooled.stat().st_ino == box.files.content(file).path.stat().st_ino
    assert box.spool.used_bytes == 4096


def test_owners_share_the_room_and_one_cannot_take_all(tmp_path: Path) -> None:
    with closing(Box(tmp_path, capacity=100_000)) as box:
        sent = [box.send(b"x" * 10_000) for _ in range(7)]  # three quarters
        with pytest.raises(StorageFull, match=r"ingest\.files_mib"):
            box.send(b"x" * 10_000)
        box.send(b"x" * 10_000, owner="bob")
        box.files.delete(sent[0].file_id)
        box.send(b"x" * 5_000)


def test_room_is_made_of_files_that_are_documents_already(tmp_path: Path) -> None:
    with closing(Box(tmp_path, capacity=20_000)) as box:
        first = box.send(b"x" * 10_000)
        box.attach(first)
        with pytest.raises(StorageFull):
            box.send(b"y" * 15_000)
        (waiting,) = box.jobs.waiting("ada", "")
        with box.database.writing() as connection:  # as if its document was stored
            _store(connection, first)
        box.jobs.complete(waiting.order, JobDocumentState.ADDED, "", "d1")  # type: ignore[arg-type]
        box.send(b"y" * 15_000)
        assert box.files.get(first.file_id).state is FileState.RELEASED


def _store(connection: object, file: StoredFile) -> None:
    run = connection.execute  # type: ignore[attr-defined]
    run("INSERT INTO collections (name, generation) VALUES ('a', '')")
    run(
        "INSERT INTO documents (id, collection, name, title, media_type, sha256, size_bytes, characters, chunks, "
        "ingested_at, text) VALUES ('d1', 1, 'n', '', '', ?, 1, 1, 0, '2026-01-01T00:00:00+00:00', '')",
        (file.sha256,),
    )


def test_files_are_listed_in_pages_by_age(box: Box) -> None:
    sent = []
    for number in range(5):
        box.clock.ms += 1
        sent.append(box.send(b"x", owner="bob" if number == 2 else "ada").file_id)
    box.create(8)  # not complete
    newest = box.files.list("ada", None, None, 2, newest_first=True)
    assert [file.file_id for file in newest] == [sent[4], sent[3]]
    rest = box.files.list("ada", None, newest[-1].file_id, 9, newest_first=True)
    assert [file.file_id for file in rest] == [sent[1], sent[0]]
    assert [file.file_id for file in box.files.list(None, None, None, 9, newest_first=False)] == sent
    assert box.files.list(None, "user_data", None, 9, newest_first=False) == ()


class Uploads(RuleBasedStateMachine):
    """One file against a model of it, through pieces, stale senders, and crashes that leave torn bytes."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.folder = Path(tempfile.mkdtemp())
        self.durable = b""
        self.complete = False

    @initialize(size=st.one_of(st.none(), st.integers(0, 40)))
    def begin(self, size: int | None) -> None:
        self.size = size
        self.box = Box(self.folder)
        self.id = self.box.create(size).file_id

    @rule(offset=st.integers(0, 50), pieces=st.lists(st.binary(max_size=20), max_size=3), ends=st.booleans())
    def send(self, offset: int, pieces: list[bytes], ends: bool) -> None:
        try:
            writer = self.box.files.writer(self.id, offset)
        except OffsetMismatch as refused:
            assert refused.offset == len(self.durable)
            assert self.complete or offset != len(self.durable)
            return
        assert offset == len(self.durable)
        sent = self.durable
        for piece in pieces:
            try:
                writer.write(piece)
            except OffsetMismatch:
                assert self.size is not None
                assert len(sent) + len(piece) > self.size
                break
            sent += piece
        if ends:
            assert writer.end() == len(sent)
        else:
            assert self.box.files.settle(self.id).offset == len(sent)
        self.durable = sent

    @rule()
    def finish(self) -> None:
        try:
            found = self.box.files.finish(self.id)
        except FileIncomplete:
            assert self.size is not None
            assert len(self.durable) < self.size
            return
        self.complete = True
        assert found.sha256 == hashlib.sha256(self.durable).hexdigest()

    @rule(torn=st.binary(max_size=30))
    def crash(self, torn: bytes) -> None:
        self.box.close()
        if not self.complete:
            with (self.folder / "files" / self.id).open("ab") as file:
                file.write(torn)
        self.box = Box(self.folder)

    @precondition(lambda self: self.complete)
    @rule()
    def read(self) -> None:
        assert self.box.files.content(self.box.files.get(self.id)).read() == self.durable

    @invariant()
    def the_offset_is_what_is_on_disk(self) -> None:
        if hasattr(self, "id"):
            found = self.box.files.get(self.id)
            assert found.offset == len(self.durable)
            assert found.state is (FileState.COMPLETE if self.complete else FileState.RECEIVING)
            assert (self.folder / "files" / self.id).read_bytes()[: found.offset] == self.durable

    def teardown(self) -> None:
        import shutil

        if hasattr(self, "box"):
            self.box.close()
        shutil.rmtree(self.folder)


TestUploads = Uploads.TestCase
TestUploads.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)


def test_whenever_the_process_is_killed_what_was_acknowledged_is_there(tmp_path: Path) -> None:
    program = Path(__file__).with_name("dying.py")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) > 40
