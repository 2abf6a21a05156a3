"""Files that are sent: expiry, room, and what a crash leaves."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from edge_rag.core.documents.document import Upload
from edge_rag.core.documents.files import KEPT_S, FileId, FileState, NewFile, StoredFile
from edge_rag.core.documents.jobs import JobDocumentState
from edge_rag.errors import FileIncomplete, FileNotFound, StorageFull
from edge_rag.storage.database import Database
from edge_rag.storage.jobs import JobStore
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.uploads.files import FileStore, IncomingFile
from tests.unit.conftest import document_store, new_document

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

    def begin(self, most: int = _MOST, owner: str = "ada") -> IncomingFile:
        return self.files.receive(NewFile(owner, "pump.txt", "text/plain"), most)

    def send(self, *pieces: bytes, owner: str = "ada") -> StoredFile:
        incoming = self.begin(sum(map(len, pieces)), owner)
        for piece in pieces:
            incoming.write(piece)
        return incoming.finish("assistants", KEPT_S)

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


def test_a_file_is_received_and_is_private(box: Box) -> None:
    found = box.send(b"one ", b"two ", b"ten")

    content = box.files.content(found)
    assert (found.state, found.size_bytes, content.read()) == (FileState.COMPLETE, 11, b"one two ten")
    assert stat.S_IMODE(content.path.stat().st_mode) == 0o600


def test_a_discarded_file_leaves_nothing(box: Box) -> None:
    incoming = box.begin()
    incoming.write(b"half")
    (path,) = (box.folder / "files").iterdir()
    with pytest.raises(FileNotFound):
        box.files.get(FileId(path.name))
    incoming.discard()
    assert list((box.folder / "files").iterdir()) == []


def test_a_crash_leaves_nothing_of_files_that_were_not_received_whole(tmp_path: Path) -> None:
    with closing(Box(tmp_path)) as box:
        incoming = box.begin()
        incoming.write(b"half")
        incoming._file.close()  # as when the process ends
        (tmp_path / "files" / "file-unknown").write_bytes(b"nobody's")
        whole, lost = box.send(b"whole"), box.send(b"lost")
        box.files.content(lost).path.unlink()
    with closing(Box(tmp_path)) as box:
        assert [path.name for path in (tmp_path / "files").iterdir()] == [whole.file_id]
        with pytest.raises(FileNotFound):
            box.files.get(lost.file_id)
        with box.database.reading() as connection:
            assert connection.execute("SELECT id FROM files").fetchall() == [(whole.file_id,)]


def test_files_go_after_a_week(box: Box) -> None:
    complete = box.send(b"whole")
    box.clock.ms += KEPT_S * 1000
    with pytest.raises(FileNotFound):
        box.files.get(complete.file_id)
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
        document = replace(new_document("n", collection="a"), sha256=first.sha256)
        stored = document_store(tmp_path, box.database).put(document).info
        box.jobs.complete(waiting.order, JobDocumentState.ADDED, "", stored.document_id)  # type: ignore[arg-type]
        box.send(b"y" * 15_000)
        assert box.files.get(first.file_id).state is FileState.RELEASED


def test_files_are_listed_in_pages_by_age(box: Box) -> None:
    sent = []
    for number in range(5):
        box.clock.ms += 1
        sent.append(box.send(b"x", owner="bob" if number == 2 else "ada").file_id)
    incoming = box.begin()  # not complete
    newest = box.files.list("ada", None, None, 2, newest_first=True)
    assert [file.file_id for file in newest] == [sent[4], sent[3]]
    rest = box.files.list("ada", None, newest[-1].file_id, 9, newest_first=True)
    assert [file.file_id for file in rest] == [sent[1], sent[0]]
    assert [file.file_id for file in box.files.list(None, None, None, 9, newest_first=False)] == sent
    assert box.files.list(None, "user_data", None, 9, newest_first=False) == ()
    incoming.discard()


def test_whenever_the_process_is_killed_what_was_acknowledged_is_there(tmp_path: Path) -> None:
    program = Path(__file__).with_name("dying.py")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) > 25
