"""Pages of stored records end by their size, and together they have all records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from edge_rag.core.documents.document import ParsedDocument, Upload
from edge_rag.core.documents.listing import ListCursor, ListOrder
from edge_rag.errors import InvalidRequest
from edge_rag.storage import statements
from edge_rag.storage.backup import Manifest, pack
from edge_rag.storage.database import Database
from edge_rag.storage.documents import DocumentStore
from edge_rag.storage.jobs import MAX_PAGE_BYTES, JobStore
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.spool.originals import Originals
from edge_rag.storage.statements import NewDocument


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(tmp_path / "documents.sqlite3")) as opened:
        yield opened


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", 1 << 30)


def document(name: str, metadata: str = "", collection: str = "default") -> NewDocument:
    vectors = np.empty((0, 8), np.float32)
    parsed = ParsedDocument("", "text", ())
    note = {"note": metadata}
    return NewDocument(collection, name, "text/plain", "0" * 64, 4, parsed, (), "none", vectors, note, note, 120)


def test_a_page_of_records_ends_with_the_record_that_fills_it(database: Database, spool: Spool, tmp_path: Path) -> None:
    store = DocumentStore(database, spool, Originals(tmp_path / "originals", database, keep=False))
    for number in range(10):
        store.put(document(f"{number}", "x" * 3000))
    pages = []
    after = None
    while page := store.list("default", after, 100, 10_000):
        pages.append([info.name for info in page])
        after = ListCursor.after(page[-1], ListOrder.ADDED)

    assert [len(page) for page in pages] == [4, 4, 2]
    assert [name for page in pages for name in page] == [f"{number}" for number in range(10)]
    assert len(store.list("default", None, 100)) == 10


def test_a_page_of_a_job_ends_by_the_size_of_its_names(database: Database, spool: Spool) -> None:
    jobs = JobStore(database, spool)
    job = jobs.start("ada").job_id
    names = [f"{number:01000}" for number in range(300)]
    for name in names:
        jobs.accept(job, Upload.of_bytes("default", name, "", b"x"))

    _, first = jobs.changes(job, 0, 500)
    _, second = jobs.changes(job, first[-1].change, 500)

    assert sum(len(document.name) for document in first) < MAX_PAGE_BYTES + 1000
    assert [document.name for document in first + second] == names


def test_there_is_a_largest_number_of_collections(
    database: Database, spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "MAX_COLLECTIONS", 2)
    store = DocumentStore(database, spool, Originals(tmp_path / "originals", database, keep=False))
    for name in ("a", "b", "a"):
        store.put(document("1", collection=name))

    with pytest.raises(InvalidRequest, match="collection"):
        store.put(document("1", collection="c"))

    assert store.document_counts() == {"a": 1, "b": 1}


def test_no_part_of_a_backup_is_larger_than_a_message(tmp_path: Path) -> None:
    models = {f"generator {number}": "0" * 64 for number in range(30_000)}
    manifest = Manifest("1", datetime.now(UTC).isoformat(), 1, 0, models, {})

    sizes = [len(part) for part in pack(tmp_path, {}, manifest)]

    assert sum(sizes) > 2 << 20
    assert max(sizes) <= 1 << 20
