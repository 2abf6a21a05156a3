"""The database schema as numbered migrations; ``PRAGMA user_version`` holds the number of migrations applied.

A released migration is never changed; new ones are appended.

Each collection has a full text table of its own (``fulltext_<collection>``). BM25 then weighs words by their frequency
in that collection only, scores reveal nothing of other collections, and queries do not read other collections' words.

FTS5 takes the terms of a full text table from ``edge_rag.analysis``, by a tokenizer registered on each connection. Its
argument in the table's definition is the analysis that filled the table: a table of another one is filled
anew, into a table ``filling_<collection>`` that takes the place of the old one when it is complete. Its rows are added
in batches, a transaction each, so that a process that is killed loses one batch, and the next start goes on. A
connection without the tokenizer, such as one of SQLite's own shell, can read, check and copy the database, and
drop such a table; only searches, additions and removals fail, with "no such tokenizer".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import apsw
import structlog

from edge_rag.analysis.terms import ANALYSIS, terms_of, utf8_offsets
from edge_rag.errors import StorageError
from edge_rag.storage.words.vocabulary import count_words

_log = structlog.get_logger(__name__)

APPLICATION_ID: Final = 0x65524147
"""``PRAGMA application_id`` of the database, "eRAG": no other program's database is taken for one of a library."""

CHECKSUMS_SINCE: Final = 2
"""Number of the migration after which every page has a checksum."""

ORIGINALS_SINCE: Final = 15
"""Number of the migration after which documents have the column ``original``."""

MATCHED: Final = "matched_phrases"
"""Name of the auxiliary FTS5 function that lists the phrases of a query that a row has, by number from 0."""

Progress = Callable[[int, int], None]
"""Called with the numbers of passages done and of all."""

_FILL_CHUNKS: Final = 2_000
"""Chunks that are added to a full text table in one transaction: about a megabyte of text, a second of work."""

_LOGGED_SHARES: Final = 20
"""Lines of the log, at most, on filling one full text table."""

_FILLING: Final = "filling_"
_TOKENIZER: Final = "terms"
_TOKENIZE: Final = f"tokenize=\"{_TOKENIZER} '{ANALYSIS}'\""


def _purge_deleted_words(connection: apsw.Connection) -> None:
    for (collection,) in connection.execute("SELECT collection FROM collections").fetchall():
        table = fulltext_table(collection)
        _enable_secure_delete(connection, table)
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('rebuild')")


def _remove_foreign_words(connection: apsw.Connection) -> None:
    """Rebuilds full text tables that contain words of other collections, which the second migration added."""
    for (collection,) in connection.execute("SELECT collection FROM collections").fetchall():
        table = fulltext_table(collection)
        (has_foreign_words,) = connection.execute(
            f"SELECT EXISTS (SELECT 1 FROM {table}_docsize f LEFT JOIN chunks c ON c.chunk = f.id AND c.collection = ? "
            "WHERE c.chunk IS NULL)",
            (collection,),
        ).fetchone()
        if has_foreign_words:
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")
            fill_fulltext(connection, collection)


def _count_all_words(connection: apsw.Connection) -> None:
    for document, collection in connection.execute("SELECT document, collection FROM documents").fetchall():
        count_words(connection, collection, document)


_MIGRATIONS: Final[tuple[tuple[str | Callable[[apsw.Connection], None], ...], ...]] = (
    (
        """CREATE TABLE embedders (
               embedder INTEGER PRIMARY KEY,
               name TEXT NOT NULL UNIQUE,
               dimension INTEGER NOT NULL
           ) STRICT""",
        """CREATE TABLE collections (
               collection INTEGER PRIMARY KEY AUTOINCREMENT,
               name TEXT NOT NULL UNIQUE,
               generation TEXT NOT NULL
           ) STRICT""",
        """CREATE TABLE documents (
               document INTEGER PRIMARY KEY AUTOINCREMENT,
               id TEXT NOT NULL UNIQUE,
               collection INTEGER NOT NULL REFERENCES collections,
               name TEXT NOT NULL,
               title TEXT NOT NULL,
               media_type TEXT NOT NULL,
               sha256 TEXT NOT NULL,
               size_bytes INTEGER NOT NULL,
               characters INTEGER NOT NULL,
               chunks INTEGER NOT NULL,
               pages INTEGER,
               ingested_at TEXT NOT NULL,
               text TEXT NOT NULL,
               UNIQUE (collection, name)
           ) STRICT""",
        "CREATE INDEX documents_in_order ON documents (collection, id)",
        """CREATE TABLE chunks (
               chunk INTEGER PRIMARY KEY AUTOINCREMENT,
               document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
               collection INTEGER NOT NULL REFERENCES collections,
               ordinal INTEGER NOT NULL,
               first INTEGER NOT NULL,
               past INTEGER NOT NULL,
               page INTEGER,
               context TEXT NOT NULL,
               text TEXT NOT NULL,
               embedder INTEGER NOT NULL REFERENCES embedders,
               embedding BLOB NOT NULL,
               UNIQUE (document, ordinal)
           ) STRICT""",
        "CREATE INDEX chunks_of_collection ON chunks (collection)",
        "CREATE INDEX chunks_of_embedder ON chunks (embedder)",
    ),
    (_purge_deleted_words,),
    (
        # Metadata as JSON is authoritative; filters search this table, which has one row per value or tag.
        "ALTER TABLE documents ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}'",
        "ALTER TABLE documents ADD COLUMN given_metadata TEXT NOT NULL DEFAULT '{}'",
        """CREATE TABLE document_metadata (
               document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
               collection INTEGER NOT NULL REFERENCES collections,
               key TEXT NOT NULL,
               ordinal INTEGER NOT NULL,
               kind TEXT NOT NULL,
               value ANY NOT NULL,
               PRIMARY KEY (document, key, ordinal)
           ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX metadata_by_value ON document_metadata (collection, key, kind, value)",
    ),
    (
        """CREATE TABLE segments (
               collection INTEGER PRIMARY KEY REFERENCES collections ON DELETE CASCADE,
               name TEXT NOT NULL
           ) STRICT""",
    ),
    (
        # An accepted document. Its bytes are in the spool until its state is final.
        """CREATE TABLE jobs (
               job INTEGER PRIMARY KEY AUTOINCREMENT,
               id TEXT NOT NULL UNIQUE,
               state TEXT NOT NULL,
               handed_over INTEGER NOT NULL DEFAULT 0,
               changes INTEGER NOT NULL DEFAULT 0,
               started_at TEXT NOT NULL,
               finished_at TEXT
           ) STRICT""",
        """CREATE TABLE job_documents (
               ticket INTEGER PRIMARY KEY AUTOINCREMENT,
               job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
               collection TEXT NOT NULL,
               name TEXT NOT NULL,
               media_type TEXT NOT NULL,
               metadata TEXT NOT NULL,
               size_bytes INTEGER NOT NULL,
               sha256 TEXT NOT NULL,
               spooled TEXT NOT NULL,
               state TEXT NOT NULL,
               reason TEXT NOT NULL,
               document_id TEXT,
               change INTEGER NOT NULL
           ) STRICT""",
        "CREATE INDEX job_documents_in_order ON job_documents (job, change)",
        "CREATE INDEX job_documents_waiting ON job_documents (ticket) WHERE state = 'queued'",
        "CREATE INDEX job_documents_waiting_by_name ON job_documents (collection, name) WHERE state = 'queued'",
    ),
    (
        # The index backend of each collection: the code says backend, names on disk stay as they were.
        """CREATE TABLE vector_homes (
               collection INTEGER PRIMARY KEY REFERENCES collections ON DELETE CASCADE,
               home TEXT NOT NULL
           ) STRICT""",
        "CREATE TABLE directory (id TEXT NOT NULL) STRICT",
        "INSERT INTO directory VALUES (lower(hex(randomblob(8))))",
    ),
    (
        # Settings are JSON of the differences from the defaults. A kept collection remains without documents.
        "ALTER TABLE collections ADD COLUMN settings TEXT NOT NULL DEFAULT '{}'",
        "ALTER TABLE collections ADD COLUMN kept INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE collections ADD COLUMN created_at TEXT",
        "ALTER TABLE documents ADD COLUMN chunk_tokens INTEGER",
    ),
    (
        # A collection's epoch ends when text of it is removed; data derived from the text carries the old epoch.
        # Epochs are never reused, by any collection.
        "ALTER TABLE directory ADD COLUMN epochs INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE collections ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0",
    ),
    (_remove_foreign_words,),
    (
        # The identity that started a job: documents are chosen fairly by owner, and finished jobs are kept by owner.
        "ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE job_documents ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        "DELETE FROM jobs WHERE job NOT IN (SELECT job FROM job_documents)",
        "CREATE INDEX jobs_of_owner ON jobs (owner, job)",
        "CREATE INDEX job_documents_waiting_by_owner ON job_documents (owner, collection, ticket) "
        "WHERE state = 'queued'",
    ),
    (f"PRAGMA application_id = {APPLICATION_ID}",),
    # Full text tables have terms by script: older versions must not open them, and migrate() fills them.
    (),
    (
        # Files that were sent, whose bytes are in a folder beside the database; times are Unix milliseconds. Without
        # row ids, so that salvage does not take their rows for those of other tables.
        """CREATE TABLE files (
               id TEXT PRIMARY KEY,
               owner TEXT NOT NULL,
               name TEXT NOT NULL,
               media_type TEXT NOT NULL,
               purpose TEXT NOT NULL,
               size_bytes INTEGER,
               kept_s INTEGER NOT NULL,
               collection TEXT NOT NULL,
               metadata TEXT NOT NULL,
               state TEXT NOT NULL,
               offset INTEGER NOT NULL,
               reserved_bytes INTEGER NOT NULL,
               sha256 TEXT NOT NULL,
               created_ms INTEGER NOT NULL,
               expires_ms INTEGER
           ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX files_of_owner ON files (owner, id)",
        "CREATE INDEX files_expiring ON files (expires_ms) WHERE expires_ms IS NOT NULL",
        # What became of a file in a collection; its state is that of the job's document, which is deleted earlier.
        """CREATE TABLE attachments (
               collection TEXT NOT NULL,
               file TEXT NOT NULL,
               name TEXT NOT NULL,
               size_bytes INTEGER NOT NULL,
               sha256 TEXT NOT NULL,
               ticket INTEGER NOT NULL,
               job TEXT NOT NULL,
               state TEXT NOT NULL,
               reason TEXT NOT NULL,
               document_id TEXT,
               attached_ms INTEGER NOT NULL,
               PRIMARY KEY (collection, file)
           ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX attachments_of_ticket ON attachments (ticket)",
        "CREATE INDEX attachments_of_file ON attachments (file)",
        "CREATE INDEX attachments_of_document ON attachments (document_id) WHERE document_id IS NOT NULL",
    ),
    # Class of the reason of a rejected file.
    ("ALTER TABLE attachments ADD COLUMN cause TEXT",),
    (
        # Whether the bytes of a document are kept, in the file of its SHA-256.
        "ALTER TABLE documents ADD COLUMN original INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX originals ON documents (sha256) WHERE original",
    ),
    (
        # What people think of answers. Texts are empty where they were not sent; times are Unix milliseconds.
        """CREATE TABLE feedback (
               id TEXT PRIMARY KEY,
               client TEXT NOT NULL,
               given_ms INTEGER NOT NULL,
               request_id TEXT NOT NULL,
               rating TEXT NOT NULL,
               note TEXT NOT NULL,
               question TEXT NOT NULL,
               answer TEXT NOT NULL,
               collection TEXT NOT NULL,
               size_bytes INTEGER NOT NULL,
               UNIQUE (client, request_id)
           ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX feedback_in_order ON feedback (given_ms, id, client, size_bytes)",
        "CREATE INDEX feedback_of_collection ON feedback (collection) WHERE collection <> ''",
    ),
    (
        # Questions by which a collection's search is tested, and the last two runs. No text of documents is in them,
        # so that none outlives its document.
        """CREATE TABLE test_questions (
               collection INTEGER NOT NULL REFERENCES collections ON DELETE CASCADE,
               id TEXT NOT NULL,
               question TEXT NOT NULL,
               document TEXT NOT NULL,
               expected TEXT NOT NULL,
               PRIMARY KEY (collection, id)
           ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE test_runs (
               collection INTEGER NOT NULL REFERENCES collections ON DELETE CASCADE,
               run INTEGER NOT NULL,
               started_at TEXT NOT NULL,
               finished_at TEXT NOT NULL,
               summary TEXT NOT NULL,
               PRIMARY KEY (collection, run)
           ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE test_results (
               collection INTEGER NOT NULL,
               run INTEGER NOT NULL,
               id TEXT NOT NULL,
               rank INTEGER,
               hits TEXT NOT NULL,
               PRIMARY KEY (collection, run, id),
               FOREIGN KEY (collection, run) REFERENCES test_runs ON DELETE CASCADE,
               FOREIGN KEY (collection, id) REFERENCES test_questions ON DELETE CASCADE
           ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX test_results_of_question ON test_results (collection, id)",
    ),
    (
        # Lists of documents by name, size and time. Names with titles, so that searches by name read this alone.
        "CREATE INDEX documents_by_name ON documents (collection, name COLLATE NOCASE, id, title)",
        "CREATE INDEX documents_by_size ON documents (collection, size_bytes, id)",
        "CREATE INDEX documents_by_time ON documents (collection, ingested_at, id)",
    ),
    (
        # The words of each collection as they are written. Numbers grow, so that new words are found by them.
        """CREATE TABLE words (
               number INTEGER PRIMARY KEY AUTOINCREMENT,
               collection INTEGER NOT NULL REFERENCES collections,
               word TEXT NOT NULL,
               chunks INTEGER NOT NULL,
               UNIQUE (collection, word)
           ) STRICT""",
        _count_all_words,
    ),
    # Lines of the source that the text of a chunk and before it is from; empty where unknown.
    ("ALTER TABLE chunks ADD COLUMN lines TEXT NOT NULL DEFAULT ''",),
)


NEWEST_SCHEMA: Final = len(_MIGRATIONS)
"""Number of the newest migration."""


def migrate(connection: apsw.Connection, on_progress: Progress | None = None) -> None:
    """Applies the missing migrations, one transaction each, and fills full text tables of another analysis.

    The next call completes an interrupted one.

    Args:
        on_progress: Called before each batch of passages whose full text is filled, and after the last.

    Raises:
        StorageError: A newer edge-rag wrote the database, or another program.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()}
    if tables and not {"documents", "chunks", "collections"} <= tables:
        raise StorageError(
            "the database in the data directory belongs to another program; name another data directory, or move the "
            "file away"
        )
    if version > len(_MIGRATIONS):
        raise StorageError(
            f"the data directory was written by a newer edge-rag (schema {version}, this one has {len(_MIGRATIONS)}); "
            "install that version or use another directory"
        )
    for number, statements in enumerate(_MIGRATIONS[version:], start=version + 1):
        with _transaction(connection):
            for statement in statements:
                if isinstance(statement, str):
                    connection.execute(statement)
                else:
                    statement(connection)
            connection.execute(f"PRAGMA user_version = {number}")
    _Filling(connection, on_progress).run()


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a disk error has ended it already
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


class _Filling:
    """Fills the full text tables anew whose terms are of another analysis."""

    def __init__(self, connection: apsw.Connection, on_progress: Progress | None) -> None:
        self._connection = connection
        self._on_progress = on_progress

    def run(self) -> None:
        collections = [collection for (collection,) in self._rows("SELECT collection FROM collections")]
        stale = [each for each in collections if _TOKENIZE not in self._definition(fulltext_table(each))]
        for (name,) in self._rows("SELECT name FROM sqlite_schema WHERE name GLOB 'filling_*' AND sql LIKE '%fts5%'"):
            # Also what a version that knows no such tables has left behind, since documents may have changed under it.
            if name not in map(_filling_table, stale) or not self._can_go_on(name):
                self._connection.execute(f"DROP TABLE {name}")
        for collection in stale:
            self._fill(collection)

    def _fill(self, collection: int) -> None:
        table = _filling_table(collection)
        (chunks,) = self._rows("SELECT count(*) FROM chunks WHERE collection = ?", (collection,))[0]
        if not self._definition(table):
            with _transaction(self._connection):
                _create_fulltext(self._connection, table)
        (done,) = self._rows(f"SELECT count(*) FROM {table}_docsize")[0]
        logged = -1
        while True:
            if self._on_progress is not None:
                self._on_progress(done, chunks)
            share = done * _LOGGED_SHARES // max(1, chunks)
            if share != logged:
                logged, percent = share, 100 * done // max(1, chunks)
                _log.info("filling a full text table", collection=collection, passages=chunks, percent=percent)
            with _transaction(self._connection):
                added = self._add_chunks(table, collection)
                if not added:
                    self._connection.execute(f"DROP TABLE IF EXISTS {fulltext_table(collection)}")
                    self._connection.execute(f"ALTER TABLE {table} RENAME TO {fulltext_table(collection)}")
                    return
            done += added

    def _add_chunks(self, table: str, collection: int) -> int:
        self._connection.execute(
            f"INSERT INTO {table} (rowid, text, context) SELECT chunk, text, context FROM chunks WHERE collection = ? "
            f"AND chunk > (SELECT ifnull(max(id), 0) FROM {table}_docsize) ORDER BY chunk LIMIT ?",
            (collection, _FILL_CHUNKS),
        )
        return int(self._connection.changes())

    def _can_go_on(self, table: str) -> bool:
        if _TOKENIZE not in self._definition(table):
            return False
        ((foreign, missing),) = self._rows(
            f"SELECT (SELECT count(*) FROM {table}_docsize LEFT JOIN chunks ON chunk = id AND collection = ?1 "
            f"WHERE chunk IS NULL), (SELECT count(*) FROM chunks LEFT JOIN {table}_docsize ON id = chunk "
            f"WHERE collection = ?1 AND chunk <= (SELECT max(id) FROM {table}_docsize) AND id IS NULL)",
            (int(table.removeprefix(_FILLING)),),
        )
        return not foreign and not missing

    def _definition(self, table: str) -> str:
        rows = self._rows("SELECT sql FROM sqlite_schema WHERE name = ?", (table,))
        return str(rows[0][0]) if rows else ""

    def _rows(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(sql, values))


def register_terms(connection: apsw.Connection) -> None:
    connection.register_fts5_tokenizer(_TOKENIZER, _tokenizer)
    connection.register_fts5_function(MATCHED, _matched)


def _tokenizer(connection: apsw.Connection, arguments: list[str]) -> apsw.Tokenizer:
    return _tokenize


def _tokenize(utf8: bytes, flags: int, locale: str | None) -> list[tuple[int, int, str]]:
    text = utf8.decode("utf-8", "replace")
    offsets = utf8_offsets(text)
    return [(offsets[start], offsets[end], term) for start, end, term in terms_of(text)]


def _matched(api: apsw.FTS5ExtensionApi) -> str:
    return " ".join(str(phrase) for phrase in range(api.phrase_count) if api.phrase_columns(phrase))


def fulltext_table(collection: int) -> str:
    return f"fulltext_{collection:d}"


def _filling_table(collection: int) -> str:
    return f"{_FILLING}{collection:d}"


def create_fulltext(connection: apsw.Connection, collection: int) -> None:
    _create_fulltext(connection, fulltext_table(collection))


def _create_fulltext(connection: apsw.Connection, table: str) -> None:
    connection.execute(
        f"CREATE VIRTUAL TABLE {table} USING fts5(text, context, content='chunks', content_rowid='chunk', {_TOKENIZE})"
    )
    _enable_secure_delete(connection, table)


def fill_fulltext(connection: apsw.Connection, collection: int) -> None:
    connection.execute(
        f"INSERT INTO {fulltext_table(collection)} (rowid, text, context) "
        "SELECT chunk, text, context FROM chunks WHERE collection = ?",
        (collection,),
    )


def drop_fulltext(connection: apsw.Connection, collection: int) -> None:
    connection.execute(f"DROP TABLE {fulltext_table(collection)}")


def _enable_secure_delete(connection: apsw.Connection, table: str) -> None:
    """Removes words from the index together with their chunk; by default FTS5 keeps them until segments merge."""
    connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('secure-delete', 1)")
