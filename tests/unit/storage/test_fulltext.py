"""Full text tables follow the analysis of this version, also after an interruption, and need it only for words."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from edge_rag.analysis.terms import ANALYSIS
from edge_rag.storage import migrations
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
    """Returns of each collection whether its full text table is of this analysis."""
    rows = connection.execute(
        "SELECT collection, sql FROM collections JOIN sqlite_schema s ON s.name = 'fulltext_' || collection"
    ).fetchall()
    return {collection: ANALYSIS in sql for collection, sql in rows}


def require_whole(connection: apsw.Connection) -> None:
    """Compares every full text table with the chunks that it was made from."""
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


def test_an_interruption_keeps_what_was_filled_and_the_next_start_does_the_rest(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = migrations.fill_fulltext
    filled: list[int] = []

    def fill_one(connection: apsw.Connection, collection: int) -> None:
        if filled:
            raise KeyboardInterrupt
        filled.append(collection)
        fill(connection, collection)

    monkeypatch.setattr(migrations, "fill_fulltext", fill_one)
    with pytest.raises(KeyboardInterrupt):
        Database(old)
    load_page_checksums()
    with closing(connect(old)) as connection:
        assert tables(connection) == {collection: collection in filled for collection in tables(connection)}
        assert len(tables(connection)) > len(filled) == 1
    monkeypatch.undo()

    with closing(Database(old)) as database, database.reading() as connection:
        assert connection.pragma("user_version") == NEWEST_SCHEMA
        assert set(tables(connection).values()) == {True}
        require_whole(connection)


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
