"""What a write leaves in the files."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from edge_rag.errors import StorageFull
from edge_rag.storage.database import Database
from edge_rag.storage.reserve import LEAST_BYTES

SECRET = "bilgewater-4711"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "documents.sqlite3")
    with opened.writing() as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
        connection.execute("INSERT INTO notes VALUES (?)", (SECRET,))
    yield opened
    opened.close()


def files_with(secret: str, folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if secret.encode() in file.read_bytes()]


def remove(database: Database) -> None:
    with database.writing() as connection:
        connection.execute("DELETE FROM notes")


def log_bytes(folder: Path) -> int:
    return (folder / "documents.sqlite3-wal").stat().st_size


def test_what_a_reader_kept_in_the_log_is_removed_when_it_has_finished(database: Database, tmp_path: Path) -> None:
    """No further write is needed for it."""
    with database.snapshot() as reader:
        assert reader.execute("SELECT text FROM notes").fetchall() == [(SECRET,)]
        worker = threading.Thread(target=remove, args=(database,))
        worker.start()
        worker.join()
        assert log_bytes(tmp_path) > 0
        assert files_with(SECRET, tmp_path) != []

    assert log_bytes(tmp_path) == 0
    assert files_with(SECRET, tmp_path) == []


def test_what_the_reader_of_another_process_kept_in_the_log_is_removed_later(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next read does it, and without one it is tried again after a while."""
    monkeypatch.setattr("edge_rag.storage.database._CHECKPOINT_RETRY_S", 0.01)
    truncated = threading.Event()
    catch_up = Database._catch_up

    def observed(opened: Database) -> None:
        catch_up(opened)
        if log_bytes(tmp_path) == 0:
            truncated.set()

    monkeypatch.setattr(Database, "_catch_up", observed)
    with closing(apsw.Connection(str(tmp_path / "documents.sqlite3"))) as other:
        other.execute("BEGIN")
        other.execute("SELECT text FROM notes").fetchall()
        remove(database)
        assert log_bytes(tmp_path) > 0

    assert truncated.wait(60)
    assert files_with(SECRET, tmp_path) == []


def test_what_a_reader_kept_in_the_log_is_removed_at_the_end(database: Database, tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "documents.sqlite3"))) as other:
        other.execute("BEGIN")
        other.execute("SELECT text FROM notes").fetchall()
        remove(database)

    database.close()

    assert files_with(SECRET, tmp_path) == []


def test_a_removal_takes_the_reserve_and_gives_it_back(database: Database, tmp_path: Path) -> None:
    """The first attempt finds the disk full; nothing of it is left, and the second one has what the reserve held."""
    reserve = tmp_path / "reserve"
    before = reserve.stat().st_size
    attempts = []

    def work(connection: apsw.Connection) -> str:
        attempts.append(reserve.stat().st_size)
        connection.execute("DELETE FROM notes")
        if len(attempts) == 1:
            raise apsw.FullError("database or disk is full")
        return "done"

    assert database.remove(work) == "done"

    assert attempts == [before, 0]
    assert reserve.stat().st_size == before >= LEAST_BYTES
    with database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM notes").fetchall() == [(0,)]


def test_a_removal_fails_where_the_reserve_is_used_up(database: Database, tmp_path: Path) -> None:
    (tmp_path / "reserve").unlink()

    def work(connection: apsw.Connection) -> None:
        (tmp_path / "reserve").unlink(missing_ok=True)
        raise apsw.FullError("database or disk is full")

    with pytest.raises(StorageFull, match="free some space"):
        database.remove(work)


def test_the_reserve_is_twice_the_largest_write(database: Database, tmp_path: Path) -> None:
    with database.writing() as connection:
        connection.execute("INSERT INTO notes VALUES (?)", ("long " * 400_000,))

    assert (tmp_path / "reserve").stat().st_size >= 2 * 2_000_000
