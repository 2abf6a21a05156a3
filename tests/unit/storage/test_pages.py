"""Pages of stored records end by their size, and together they have all records."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edge_rag.core.documents.document import Upload
from edge_rag.core.documents.listing import ListCursor, ListOrder
from edge_rag.errors import InvalidRequest
from edge_rag.storage import statements
from edge_rag.storage.backup import Manifest, pack
from edge_rag.storage.database import Database
from edge_rag.storage.jobs import MAX_PAGE_BYTES, JobStore
from edge_rag.storage.spool.files import Spool
from tests.unit.conftest import document_store, new_document


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(tmp_path / "documents.sqlite3")) as opened:
        yield opened


def test_a_page_of_records_ends_with_the_record_that_fills_it(database: Database, tmp_path: Path) -> None:
    store = document_store(tmp_path, database)
    for number in range(10):
        store.put(new_document(f"{number}", "text", {"note": "x" * 3000}))
    pages = []
    after = None
    while page := store.list("default", after, 100, 10_000):
        pages.append([info.name for info in page])
        after = ListCursor.after(page[-1], ListOrder.ADDED)

    assert [len(page) for page in pages] == [4, 4, 2]
    assert [name for page in pages for name in page] == [f"{number}" for number in range(10)]
    assert len(store.list("default", None, 100)) == 10


def test_a_page_of_a_job_ends_by_the_size_of_its_names(database: Database, tmp_path: Path) -> None:
    jobs = JobStore(database, Spool(tmp_path / "spool", 1 << 30))
    job = jobs.start("ada").job_id
    names = [f"{number:01000}" for number in range(300)]
    for name in names:
        jobs.accept(job, Upload.of_bytes("default", name, "", b"x"))

    _, first = jobs.changes(job, 0, 500)
    _, second = jobs.changes(job, first[-1].change, 500)

    assert sum(len(document.name) for document in first) < MAX_PAGE_BYTES + 1000
    assert [document.name for document in first + second] == names


def test_there_is_a_largest_number_of_collections(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "MAX_COLLECTIONS", 2)
    store = document_store(tmp_path, database)
    for name in ("a", "b", "a"):
        store.put(new_document("1", collection=name))

    with pytest.raises(InvalidRequest, match="collection"):
        store.put(new_document("1", collection="c"))

    assert store.document_counts() == {"a": 1, "b": 1}


def test_no_part_of_a_backup_is_larger_than_a_message(tmp_path: Path) -> None:
    models = {f"generator {number}": "0" * 64 for number in range(30_000)}
    manifest = Manifest("1", datetime.now(UTC).isoformat(), 1, 0, models, {})

    sizes = [len(part) for part in pack(tmp_path, {}, manifest)]

    assert sum(sizes) > 2 << 20
    assert max(sizes) <= 1 << 20
