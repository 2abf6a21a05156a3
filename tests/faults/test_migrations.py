"""A process killed while it brings an old database up to date leaves what can be opened, with all that is in it."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from edge_rag.storage.database import Database, load_page_checksums
from edge_rag.storage.migrations import NEWEST_SCHEMA, register_terms
from tests.support.old_data import unpack

_ROOT = Path(__file__).parents[2]
_ARCHIVES = _ROOT / "tests" / "fixtures" / "data-directories"
_STEP = "1" if "EDGE_RAG_SOAK_SECONDS" in os.environ else "7"


def held(path: Path) -> tuple[int, dict[str, list[Any]]]:
    """Returns a database's schema and the rows that matter, read without bringing it up to date."""
    load_page_checksums()
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        version = connection.pragma("user_version")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        asked = {
            "documents": "SELECT id, collection, name, sha256, text FROM documents ORDER BY document",
            "chunks": "SELECT chunk, document, first, past, context, text, embedding FROM chunks ORDER BY chunk",
            "collections": "SELECT collection, name, generation FROM collections ORDER BY collection",
            "jobs": "SELECT id, state FROM jobs ORDER BY job",
            "job_documents": "SELECT job, collection, name, spooled, state FROM job_documents ORDER BY ticket",
        }
        register_terms(connection)
        rows = {table: connection.execute(sql).fetchall() for table, sql in asked.items() if table in tables}
        words = [
            connection.execute(f"SELECT count(*) FROM {table} WHERE {table} MATCH 'bearings OR monday'").fetchone()
            for table in sorted(table for table in tables if table.removeprefix("fulltext_").isdecimal())
        ]
        return version, rows | {"words": words}


@pytest.mark.soak
@pytest.mark.parametrize("schema", sorted(int(path.name[7:].split(".")[0]) for path in _ARCHIVES.glob("schema-*")))
def test_a_migration_that_is_killed_leaves_the_old_form_or_a_newer_one_whole(
    shim: Path, tmp_path: Path, schema: int
) -> None:
    unpack(_ARCHIVES / f"schema-{schema}.tar.xz", tmp_path)
    (tmp_path / "left").mkdir()
    command = [sys.executable, str(Path(__file__).with_name("migrating.py")), str(tmp_path / "data")]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "LD_PRELOAD": str(shim)}
    done = subprocess.run([*command, str(tmp_path / "left"), _STEP], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]

    before = held(tmp_path / "data" / "documents.sqlite3")
    assert before[0] == schema
    reached = set()
    for folder in (tmp_path / "left").iterdir():
        database = folder / "documents.sqlite3"
        version, rows = held(database)
        reached.add(version)
        assert schema <= version <= NEWEST_SCHEMA
        told = before[1].keys() - ({"words"} if schema < version < NEWEST_SCHEMA else set())
        assert {table: rows[table] for table in told} == {table: before[1][table] for table in told}

        Database(database).close()

        version, rows = held(database)
        assert version == NEWEST_SCHEMA
        assert {table: rows[table] for table in before[1]} == before[1]
    assert {schema, NEWEST_SCHEMA} <= reached
