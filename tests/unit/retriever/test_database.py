"""What a write leaves in the files, whoever reads meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge_rag.retriever.database import Database

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


@contextmanager
def reader(database: Database) -> Iterator[None]:
    """Holds a snapshot on a thread of its own until the end of the block."""
    began, done = threading.Event(), threading.Event()

    def read() -> None:
        with database.snapshot() as connection:
            assert connection.execute("SELECT count(*) FROM notes").fetchone() is not None
            began.set()
            assert done.wait(60)

    thread = threading.Thread(target=read)
    thread.start()
    assert began.wait(60)
    try:
        yield
    finally:
        done.set()
        thread.join(60)


def test_what_was_removed_is_in_no_file_once_that_is_said(database: Database, tmp_path: Path) -> None:
    remove(database)
    assert files_with(SECRET, tmp_path) == []


def test_the_last_reader_that_was_in_the_way_takes_out_of_the_files_what_was_removed(
    database: Database, tmp_path: Path
) -> None:
    with reader(database):
        with reader(database):
            remove(database)
            assert files_with(SECRET, tmp_path) != []  # the readers still see it
        assert files_with(SECRET, tmp_path) != []
    assert files_with(SECRET, tmp_path) == []
    assert (tmp_path / "documents.sqlite3-wal").stat().st_size == 0


def test_opening_takes_out_what_a_killed_process_had_removed_and_left_in_the_log(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    copy.mkdir()
    database = Database(source / "documents.sqlite3")
    with database.writing() as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
        connection.execute("INSERT INTO notes VALUES (?)", (SECRET,))
    with reader(database):
        remove(database)
        for name in ("documents.sqlite3", "documents.sqlite3-wal"):
            (copy / name).write_bytes((source / name).read_bytes())
    database.close()
    assert files_with(SECRET, copy) != []
    Database(copy / "documents.sqlite3").close()
    assert files_with(SECRET, copy) == []
