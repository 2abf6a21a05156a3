"""A backup put into a data directory."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from edge_rag.retriever.open_directory import RetrieverOptions, open_data_directory
from edge_rag.storage.database import Database
from edge_rag.storage.restore import restore
from edge_rag.storage.vectors import StoredVectors
from tests.unit.conftest import ingest
from tests.unit.retriever.hashed_words import HashedWords


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A backup of a data directory with one document."""
    directory = open_data_directory(tmp_path / "source", HashedWords(), RetrieverOptions())
    ingest(directory, "a.txt", "The bearing of the pump.")
    archive = tmp_path / "saved.edge-rag"
    archive.write_bytes(b"".join(directory.backups.make({})))
    directory.close()
    return archive


def directory_id(path: Path) -> str:
    with closing(Database(path / "documents.sqlite3")) as database:
        return StoredVectors(database).directory()


def test_every_directory_restored_from_a_backup_has_an_id_of_its_own(saved: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        restore(saved, tmp_path / name, replace=False)

    assert len({directory_id(tmp_path / name) for name in ("source", "one", "other")}) == 3


def test_a_directory_whose_documents_are_replaced_keeps_its_id(saved: Path, tmp_path: Path) -> None:
    open_data_directory(tmp_path / "data", HashedWords(), RetrieverOptions()).close()
    before = directory_id(tmp_path / "data")

    restore(saved, tmp_path / "data", replace=True)

    assert directory_id(tmp_path / "data") == before


def test_a_backup_of_more_than_the_cache_of_the_database_holds_is_whole(tmp_path: Path) -> None:
    """What spills from SQLite's cache while the copy is made has its checksums too."""
    text = "".join(
        f"Valve {number} of line {number % 17} is serviced in month {number % 12}.\n\n" for number in range(40_000)
    )
    directory = open_data_directory(tmp_path / "source", HashedWords(), RetrieverOptions())
    ingest(directory, "long.txt", text)
    archive = tmp_path / "saved.edge-rag"
    archive.write_bytes(b"".join(directory.backups.make({})))
    directory.close()
    assert archive.stat().st_size > 4 << 20

    restore(archive, tmp_path / "copy", replace=False)

    restored = open_data_directory(tmp_path / "copy", HashedWords(), RetrieverOptions())
    (info,) = restored.library.list("default", None, 10)
    assert restored.library.get("default", info.document_id)[1] == text.strip()
    restored.close()
