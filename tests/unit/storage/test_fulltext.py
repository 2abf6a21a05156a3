"""Full text tables follow the analysis of this version, also after an interruption, and need it only for words."""

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from edge_rag.analysis.terms import ANALYSIS
from edge_rag.storage.database import Database, connect, load_page_checksums
from edge_rag.storage.migrations import NEWEST_SCHEMA, fulltext_table
from tests.support.old_data import unpack

_ARCHIVES = Path(__file__).parents[2] / "fixtures" / "data-directories"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The database of the last version whose words FTS5 found itself, with two collections."""
    unpack(_ARCHIVES / "schema-11.tar.xz", tmp_path)
    return tmp_path / "data" / "documents.sqlite3"


def tables(connection: apsw.Connection) -> dict[int, bool]:
    rows = connection.execute(
        "SELECT collection, sql FROM collections JOIN sqlite_schema s ON s.name = 'fulltext_' || collection"
    ).fetchall()
    return {collection: ANALYSIS in sql for collection, sql in rows}


def connect_as_is(path: Path) -> apsw.Connection:
    """Opens a database without bringing it up to date."""
    load_page_checksums()
    return connect(path)


def require_whole(connection: apsw.Connection) -> None:
    for collection in tables(connection):
        table = fulltext_table(collection)
        connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 0)")
        counts = f"SELECT (SELECT count(*) FROM {table}_docsize), count(*) FROM chunks WHERE collection = ?"
        indexed, chunks = connection.execute(counts, (collection,)).get
        assert indexed == chunks > 0


def test_tables_of_another_analysis_are_filled_anew(old: Path) -> None:
    with closing(Database(old)) as database, database.reading() as connection:
        assert set(tables(connection).values()) == {True}
        require_whole(connection)
        for word in ('"ODEGARD"', '"2000" OR "2 000"'):
            found = [
                connection.execute(f"SELECT count(*) FROM {table} WHERE {table} MATCH ?", (word,)).get
                for table in map(fulltext_table, tables(connection))
            ]
            assert sorted(found) == [0, 1], word


_KILLED_AFTER = """
import os, signal, sys
from pathlib import Path
from edge_rag.storage import migrations
from edge_rag.storage.database import Database

migrations._FILL_CHUNKS = 1
batches = 0

def kill(done, total):
    global batches
    batches += 1
    if batches > int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

Database(Path(sys.argv[1]), kill)
"""


def filling(path: Path) -> dict[str, int]:
    with closing(connect_as_is(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE name GLOB 'filling_*_docsize'").fetchall()
        return {name: connection.execute(f"SELECT count(*) FROM {name}").get for (name,) in names}


def kill_while_filling(path: Path, batches: int) -> None:
    """Opens a database in a process that is killed by SIGKILL when it has added some chunks, one at a time."""
    killed = subprocess.run([sys.executable, "-c", _KILLED_AFTER, str(path), str(batches)], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


@pytest.fixture
def larger(old: Path) -> Path:
    """The old database with four times the passages."""
    columns = "document, collection, first, past, page, context, text, embedder, embedding"
    with closing(connect_as_is(old)) as connection:
        for copy in (1, 2, 3):
            connection.execute(
                f"INSERT INTO chunks (ordinal, {columns}) SELECT ordinal + 1000 * ?, {columns} FROM chunks "
                "WHERE ordinal < 1000",
                (copy,),
            )
    return old


def test_a_kill_keeps_what_was_filled_and_the_next_start_goes_on_there(larger: Path) -> None:
    with closing(connect_as_is(larger)) as connection:
        chunks = dict(connection.execute("SELECT collection, count(*) FROM chunks GROUP BY collection").fetchall())
    first, second = sorted(chunks)
    kill_while_filling(larger, 2)
    assert filling(larger) == {f"filling_{first}_docsize": 2}
    kill_while_filling(larger, chunks[first])  # the rest, the end, and one of the other
    assert filling(larger) == {f"filling_{second}_docsize": 1}
    with closing(connect_as_is(larger)) as connection:
        assert tables(connection) == {first: True, second: False}  # the old table stays until the new one is whole

    told: list[tuple[int, int]] = []
    with (
        closing(Database(larger, lambda done, total: told.append((done, total)))) as database,
        database.reading() as now,
    ):
        assert now.pragma("user_version") == NEWEST_SCHEMA
        assert set(tables(now).values()) == {True}
        require_whole(now)
    assert told[0] == (1, chunks[second])
    assert told[-1] == (chunks[second], chunks[second])
    assert filling(larger) == {}


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM chunks WHERE chunk = (SELECT min(chunk) FROM chunks WHERE collection = ?)",
        "DELETE FROM filling_{0}_docsize WHERE id = (SELECT min(chunk) FROM chunks WHERE collection = ?)",
    ],
)
def test_what_was_filled_of_other_documents_is_filled_again(larger: Path, change: str) -> None:
    kill_while_filling(larger, 2)
    with closing(connect_as_is(larger)) as connection:
        collection = connection.execute("SELECT min(collection) FROM collections").get
        connection.execute(change.format(collection), (collection,))

    told: list[int] = []
    with closing(Database(larger, lambda done, total: told.append(done))) as database, database.reading() as now:
        require_whole(now)
    assert told[0] == 0


def test_sqlite_alone_reads_checks_and_copies_a_database(old: Path, tmp_path: Path) -> None:
    Database(old).close()
    load_page_checksums()
    with closing(apsw.Connection(str(old))) as alone:
        assert alone.execute("PRAGMA integrity_check").get == "ok"
        assert alone.execute("SELECT count(*) FROM chunks").get > 0
        alone.execute("VACUUM INTO ?", (str(tmp_path / "copy"),))
        table = fulltext_table(min(tables(alone)))
        with pytest.raises(apsw.SQLError, match="no such tokenizer: terms"):
            alone.execute(f"SELECT count(*) FROM {table} WHERE {table} MATCH 'bearings'").fetchall()
    with closing(connect(tmp_path / "copy")) as copy:
        require_whole(copy)
