"""The bytes of stored documents: kept once for each content, as long as a document refers to them."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from edge_rag.bootstrap.open_directory import DirectoryOptions, OpenDirectory
from edge_rag.cli.health_checks import documents_check
from edge_rag.core.documents.document import IngestStatus, Upload
from edge_rag.core.documents.jobs import Ticket
from edge_rag.errors import NotReady, OriginalNotKept, StorageCorrupt, StorageFull
from edge_rag.ingest.library import DocumentLibrary
from edge_rag.storage.recovery.restore import restore
from edge_rag.storage.spool import originals
from tests.unit.conftest import Opener, ingest
from tests.unit.retriever.hashed_words import HashedWords

WITHOUT = DirectoryOptions(keep_originals=False)


def kept(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (directory / "originals").iterdir()}


def original(directory: OpenDirectory, name: str, collection: str = "default") -> bytes:
    info, file = directory.documents.open_original(collection, name)
    with closing(file):
        return file.read(0, info.size_bytes + 1)


def spooled(directory: OpenDirectory, name: str, text: str) -> Upload:
    incoming = directory.spool.receive("ada", len(text))
    incoming.write(text.encode())
    return Upload("default", name, "text/plain", incoming.finish())


def test_the_bytes_of_a_document_are_kept_privately_and_can_be_read_in_parts(
    open_directory: Opener, tmp_path: Path
) -> None:
    directory = open_directory()
    outcome = ingest(directory, "a.txt", "The bearing of the pump.")

    assert outcome.document is not None
    assert outcome.document.original
    assert kept(tmp_path / "data") == {outcome.document.sha256: b"The bearing of the pump."}
    (path,) = (tmp_path / "data" / "originals").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    info, file = directory.documents.open_original("default", "a.txt")
    with closing(file):
        assert (info.name, file.read(4, 7), file.read(20, 100)) == ("a.txt", b"bearing", b"ump.")
        directory.library.delete("default", "a.txt")
        assert file.read(0, 3) == b"The"  # until it is closed


def test_a_received_file_is_not_copied(open_directory: Opener, tmp_path: Path) -> None:
    directory = open_directory()
    upload = spooled(directory, "a.txt", "The bearing of the pump.")
    (arrived,) = (tmp_path / "data" / "spool").iterdir()
    number = arrived.stat().st_ino

    directory.library.ingest(upload)

    (path,) = (tmp_path / "data" / "originals").iterdir()
    assert path.stat().st_ino == number


def test_without_hard_links_a_received_file_is_copied(
    open_directory: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: Path) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    directory = open_directory()
    directory.library.ingest(spooled(directory, "a.txt", "The bearing of the pump."))

    assert list(kept(tmp_path / "data").values()) == [b"The bearing of the pump."]
    assert original(directory, "a.txt") == b"The bearing of the pump."


def test_equal_documents_share_a_file_which_goes_with_the_last_of_them(open_directory: Opener, tmp_path: Path) -> None:
    directory = open_directory()
    for name, collection in (("a.txt", "default"), ("b.txt", "default"), ("a.txt", "other")):
        ingest(directory, name, "The bearing of the pump.", collection)
    assert len(kept(tmp_path / "data")) == 1

    ingest(directory, "a.txt", "Another text.")
    directory.library.delete("other", "a.txt")
    assert sorted(kept(tmp_path / "data").values()) == [b"Another text.", b"The bearing of the pump."]

    directory.library.delete("default", "b.txt")
    assert list(kept(tmp_path / "data").values()) == [b"Another text."]
    directory.library.delete_collection("default")
    assert kept(tmp_path / "data") == {}


def test_a_document_stored_before_gets_its_original_when_it_comes_again(tmp_path: Path) -> None:
    with closing(OpenDirectory(tmp_path / "data", HashedWords(), WITHOUT)) as directory:
        ingest(directory, "a.txt", "The bearing of the pump.")
        with pytest.raises(OriginalNotKept, match=r"a\.txt.*ingest\.keep_originals"):
            directory.documents.open_original("default", "a.txt")
    assert kept(tmp_path / "data") == {}

    with closing(OpenDirectory(tmp_path / "data", HashedWords())) as directory:
        again = ingest(directory, "a.txt", "The bearing of the pump.")
        assert again.status is IngestStatus.UNCHANGED
        assert again.document is not None
        assert again.document.original
        assert original(directory, "a.txt") == b"The bearing of the pump."

    with closing(OpenDirectory(tmp_path / "data", HashedWords(), WITHOUT)) as directory:
        assert original(directory, "a.txt") == b"The bearing of the pump."  # until it is replaced
        ingest(directory, "a.txt", "Another text.")
        assert kept(tmp_path / "data") == {}


def test_a_document_that_is_not_stored_leaves_no_file(
    open_directory: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory()
    ingest(directory, "kept.txt", "The bearing of the pump.")
    before = kept(tmp_path / "data")

    class Ended:
        """A task that is ended after the original was added."""

        def __init__(self) -> None:
            self.ended = False

        def __getattr__(self, name: str) -> object:
            return getattr(library.UNSCHEDULED, name)

        def check(self) -> None:
            if len(kept(tmp_path / "data")) > len(before):
                raise NotReady("the daemon is shutting down")

    from edge_rag.ingest import library

    with pytest.raises(NotReady):
        directory.library.ingest(Upload.of_bytes("default", "b.txt", "", b"Never stored."), Ended())  # type: ignore[arg-type]
    assert kept(tmp_path / "data") == before
    monkeypatch.setattr(originals, "sync", _full)
    with pytest.raises(StorageFull):
        ingest(directory, "c.txt", "Never stored either.")
    assert kept(tmp_path / "data") == before


def _full(path: Path) -> None:
    raise OSError(28, "No space left on device")


def test_a_start_removes_what_no_document_refers_to_and_a_damaged_library_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with closing(OpenDirectory(data, HashedWords())) as directory:
        for number in range(8):
            ingest(directory, f"{number}.txt", f"Valve {number} is serviced in month {number}. " * 60)
    whole = kept(data)
    (data / "originals" / ("0" * 64)).write_bytes(b"left behind")
    (data / "originals" / "ffff.part").write_bytes(b"half")
    OpenDirectory(data, HashedWords()).close()
    assert kept(data) == whole

    database = bytearray((data / "documents.sqlite3").read_bytes())
    database[len(database) // 2 + 100] ^= 4
    (data / "documents.sqlite3").write_bytes(database)
    with closing(OpenDirectory(data, HashedWords())) as directory:
        assert directory.damage is not None
        assert kept(data) == whole
        assert b"serviced" in original(directory, "0.txt")


def test_a_backup_brings_originals_and_leaves_a_damaged_one_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with closing(OpenDirectory(data, HashedWords())) as directory:
        for name in ("a.txt", "b.txt", "same.txt"):
            ingest(directory, name, f"The bearing of pump {name[0]}.")
        made = directory.backups.make({})
        first = next(made)
        directory.library.delete("default", "b.txt")  # while it is made
        (tmp_path / "one").write_bytes(first + b"".join(made))
        assert len(kept(data)) == 2
        (file,) = [path for path in (data / "originals").iterdir() if b"pump a" in path.read_bytes()]
        file.write_bytes(b"The bearing of pump b.")
        (tmp_path / "two").write_bytes(b"".join(directory.backups.make({})))

    for archive, names in (("one", ["a.txt", "b.txt", "same.txt"]), ("two", ["same.txt"])):
        restore(tmp_path / archive, tmp_path / "restored", replace=True)
        with closing(OpenDirectory(tmp_path / "restored", HashedWords())) as directory:
            infos = directory.documents.list("default", None, 9)
            assert [info.name for info in infos if info.original] == names
            for name in names:
                assert original(directory, name) == f"The bearing of pump {name[0]}.".encode()
            assert len(kept(tmp_path / "restored")) == len(names)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"The bearing of the mill.")])
def test_a_missing_or_damaged_original_is_an_error_that_the_doctor_names(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    data = tmp_path / "data"
    with closing(OpenDirectory(data, HashedWords())) as directory:
        ingest(directory, "a.txt", "The bearing of the pump.")
        assert "1 originals" in documents_check(data).detail
        (path,) = (data / "originals").iterdir()
        damage(path)
        with pytest.raises(StorageCorrupt, match="ingest it again"):
            directory.documents.open_original("default", "a.txt")
        assert directory.documents.get("default", "a.txt")[1] == "The bearing of the pump."
        assert "1 of them missing or damaged" in documents_check(data).detail


_KILLED = """
import os, sys
from pathlib import Path
from edge_rag.storage.spool import originals
from edge_rag.storage.database import Database
from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.document import Upload
from tests.unit.retriever.hashed_words import HashedWords

def dying(function):
    def call(*arguments, **named):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return function(*arguments, **named)
    return call

def run(data):
    def acknowledge(what):
        with open(f"{data}.acknowledged", "a") as file:
            print(what, file=file)
    directory = OpenDirectory(data, HashedWords())
    for owner, name in (
        (originals, "sync"), (os, "link"), (Path, "rename"), (Path, "unlink"), (Database, "_checkpoint")
    ):
        setattr(owner, name, dying(getattr(owner, name)))
    for number in range(3):
        incoming = directory.spool.receive("ada", 100)
        incoming.write(f"The bearing of pump {number % 2}.".encode())
        directory.library.ingest(Upload("default", f"{number}.txt", "text/plain", incoming.finish()))
        incoming.discard()
        acknowledge(f"stored {number}.txt")
    for number in (0, 2):
        directory.library.delete("default", f"{number}.txt")
        acknowledge(f"deleted {number}.txt")

for left in map(int, sys.argv[2:]):
    child = os.fork()
    if not child:
        try:
            run(Path(sys.argv[1]) / str(left))
        finally:
            os._exit(8)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_killed_at_any_step_loses_no_original_and_keeps_none_too_many(tmp_path: Path) -> None:
    steps = [str(step) for step in (*range(0, 25, 4 if "EDGE_RAG_SOAK_SECONDS" not in os.environ else 1), 30)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _KILLED, str(tmp_path), *steps]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    codes = done.stdout.split()
    assert codes[0] == "9", done.stderr
    assert codes[-1] == "8", "the last steps come after the end"
    for step in steps:
        log = tmp_path / f"{step}.acknowledged"
        acknowledged = log.read_text().splitlines() if log.exists() else []
        with closing(OpenDirectory(tmp_path / step, HashedWords())) as directory:
            infos = directory.documents.list("default", None, 9) if directory.documents.document_counts() else ()
            for info in infos:
                assert original(directory, info.name) == directory.documents.get("default", info.name)[1].encode()
        names = {info.name for info in infos}
        stored = {line.removeprefix("stored ") for line in acknowledged if line.startswith("stored")}
        deleted = {line.removeprefix("deleted ") for line in acknowledged if line.startswith("deleted")}
        begun = {"0.txt", "2.txt"} if len(stored) == 3 else set()  # a deletion that nobody heard of may have happened
        assert stored - deleted - begun <= names
        assert not names & deleted
        assert kept(tmp_path / step).keys() == {info.sha256 for info in infos}


def test_a_job_keeps_the_original_of_the_document_that_it_stores(open_directory: Opener, tmp_path: Path) -> None:
    directory = open_directory()
    job = directory.jobs.start("ada")
    directory.jobs.accept(job.job_id, spooled(directory, "a.txt", "The bearing of the pump."))
    (queued,) = directory.jobs.waiting("ada", "")
    ticket = Ticket(queued.order)

    directory.library.take(directory.jobs.upload(ticket), ticket)

    assert original(directory, "a.txt") == b"The bearing of the pump."
    assert isinstance(directory.library, DocumentLibrary)
