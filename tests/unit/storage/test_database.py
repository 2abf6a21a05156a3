"""What a write leaves in the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_rag.storage.database import Database

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


def test_removed_text_is_in_no_file_after_the_acknowledgement(database: Database, tmp_path: Path) -> None:
    remove(database)
    assert files_with(SECRET, tmp_path) == []
