"""Saves the rows of a damaged database that are whole into a new one.

A document is kept if its record, its text and all its passages are whole. If only passages are missing they are made
again from the text; their vectors are computed when it is opened, as after a change of the embedding model. If its
record or its text is missing, its text is put together from its passages. Full text, words and searchable metadata
follow from the rest.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

import apsw
import structlog

from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.documents.metadata import decode_metadata
from edge_rag.core.monitoring.status import LibraryDamage
from edge_rag.core.text import sentence_spans
from edge_rag.errors import StorageCorrupt
from edge_rag.storage.backup import DATABASE
from edge_rag.storage.database import Database
from edge_rag.storage.migrations import Progress, create_fulltext, fill_fulltext
from edge_rag.storage.recovery.pages import PageReader, Value
from edge_rag.storage.statements import insert_metadata, new_document_id
from edge_rag.storage.words.vocabulary import count_words

_TABLES: Final = {
    "documents": re.compile("ntittttiii[in]tt.*"),
    "chunks": re.compile("niiiii[in]ttib.*"),
    "collections": re.compile("ntt(t.*)?"),
    "embedders": re.compile("nti"),
    "jobs": re.compile("nttiit[tn].*"),
    "job_documents": re.compile("nittttitttt[tn]i.*"),
    "vector_homes": re.compile("nt"),
    "directory": re.compile("ti"),
    "sqlite_schema": re.compile("ttti[tn]"),
}
"""Types of the columns of each table. They identify its rows even if the pages that lead to them are lost.
Migrations add columns at the end only.
"""

_RECORD_COLUMNS: Final = 12
"""Columns of a document's record in front of its text."""

_PASSAGE_CHARACTERS: Final = 480
"""Size of the passages made again, about as many characters as the passages of an ingest have."""

_NAMED: Final = 100
"""Most documents that the status names."""

RECOVERY: Final = "recovery"
"""Folder of a data directory with the intact part of a damaged library; made anew at each start."""

_log = structlog.get_logger(__name__)


class Outcome(Enum):
    """What became of a document.

    KEPT: whole. REBUILT: parts were made again from others. LOST: nothing of it could be read.
    """

    KEPT = "kept"
    REBUILT = "rebuilt"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class SavedDocument:
    """What became of one document.

    Attributes:
        detail: How it was rebuilt; empty for others.
    """

    collection: str
    name: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Salvage:
    """Counts of what was saved."""

    pages: int
    damaged: tuple[int, ...]
    documents: tuple[SavedDocument, ...]

    def of(self, outcome: Outcome) -> tuple[SavedDocument, ...]:
        return tuple(document for document in self.documents if document.outcome is outcome)

    def damage(self, problem: str) -> LibraryDamage:
        lost, rebuilt = self.of(Outcome.LOST), self.of(Outcome.REBUILT)
        names = tuple(f"{each.collection}/{each.name}" for each in lost)
        return LibraryDamage(problem, len(self.of(Outcome.KEPT)), len(rebuilt), len(lost), names[:_NAMED])


def salvage(source: Path, target: Path) -> Salvage:
    """Saves the intact part of a damaged database, which is not changed.

    Args:
        target: The new database; must not exist.
    """
    with PageReader(source) as reader, closing(Database(target)) as database, database.writing() as connection:
        connection.pragma("defer_foreign_keys", True)
        return _Salvage(reader, connection).run()


@dataclass(frozen=True, slots=True)
class OpenLibrary:
    """The database of a data directory, or what could be saved of it.

    Attributes:
        damage: The damage; None if undamaged.
    """

    path: Path
    database: Database
    damage: LibraryDamage | None = None


def open_library(path: Path, on_progress: Progress | None = None) -> OpenLibrary:
    """Opens the database of a data directory. The intact part of a damaged one is saved into a folder and opened there.

    The damaged files are not changed. Queued documents stay where they are and are not stored until a repair.
    """
    scratch = path / RECOVERY
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        return OpenLibrary(path, Database(path / DATABASE, on_progress))
    except StorageCorrupt as error:
        try:
            scratch.mkdir(mode=0o700)
            saved = salvage(path / DATABASE, scratch / DATABASE)
        except OSError as missing:
            raise error from missing
        if len(saved.of(Outcome.LOST)) == len(saved.documents):
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        damage = saved.damage(str(error))
    _log.error(
        "the library is damaged; what is whole is served, and nothing is changed",
        problem=damage.problem,
        kept=damage.kept,
        rebuilt=damage.rebuilt,
        lost=damage.lost,
        lost_documents=damage.lost_documents,
    )
    database = Database(scratch / DATABASE)
    with database.writing() as connection:
        connection.execute("DELETE FROM jobs")
        connection.execute("DELETE FROM vector_homes")
    return OpenLibrary(scratch, database, damage)


class _Salvage:
    """One run. Everything happens in one transaction of the new database."""

    def __init__(self, reader: PageReader, connection: apsw.Connection) -> None:
        self._reader = reader
        self._connection = connection
        self._roots: dict[str, int] = {}
        self._partial: dict[int, tuple[Value, ...]] = {}
        self._outcomes: dict[int, tuple[Outcome, str]] = {}

    def run(self) -> Salvage:
        self._copy_rows()
        names = {row[2]: (row[0], row[1]) for row in self._entries("sqlite_autoindex_documents_2", 3)}
        ids = {row[2]: row[1] for row in self._entries("documents_in_order", 3)}
        self._add_missing_parents({collection for collection, _ in names.values()})
        self._rebuild_records(names, ids)
        self._rebuild_passages()
        self._connection.execute("DELETE FROM embedders WHERE embedder NOT IN (SELECT embedder FROM chunks)")
        self._derive()
        return Salvage(self._reader.count, tuple(self._reader.damaged()), tuple(self._documents(names)))

    def _copy_rows(self) -> None:
        columns = {
            table: [name for (name,) in self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
            for table in _TABLES
        }
        tables: dict[str, str | None] = {}
        sequences: dict[str, int] = {}
        for row in self._reader.rows():
            if row.types not in tables:
                tables[row.types] = next((name for name, types in _TABLES.items() if types.fullmatch(row.types)), None)
            table, values = tables[row.types], row.values
            match table:
                case None:
                    continue
                case "sqlite_schema" if row.is_whole and isinstance(values[3], int):
                    self._roots[str(values[1])] = values[3]
                case "directory" if row.is_whole and values[0] in columns and isinstance(values[1], int):
                    sequences[str(values[0])] = values[1]  # a row of sqlite_sequence, which has the same types
                case "directory" if row.is_whole and re.fullmatch("[0-9a-f]{16}", str(values[0])):
                    self._connection.execute("UPDATE directory SET id = ?, epochs = ?", values)
                case "vector_homes" if values[1:] not in {(kind.value,) for kind in BackendKind}:
                    continue
                case "documents" if not row.is_whole:
                    if len(values) >= _RECORD_COLUMNS:
                        self._partial[row.number] = (row.number, *values[1:_RECORD_COLUMNS])
                case "sqlite_schema" | "directory":
                    continue
                case _ if row.is_whole:
                    given = (row.number, *values[1:])[: len(columns[table])]
                    with suppress(apsw.ConstraintError):  # of two rows with one key the first is as good
                        self._insert(table, columns[table][: len(given)], given)
        for table, number in sequences.items():
            self._connection.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (number, table))

    def _insert(self, table: str, columns: list[str], values: tuple[Value, ...]) -> None:
        marks = ", ".join("?" * len(columns))
        self._connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", values)

    def _entries(self, index: str, width: int) -> Iterator[tuple[Any, ...]]:
        if index in self._roots:
            yield from (entry for entry in self._reader.entries(self._roots[index]) if len(entry) == width)

    def _add_missing_parents(self, collections: set[int]) -> None:
        """Adds collections, embedders and jobs that rows refer to and whose own rows are lost."""
        known = {number: name for name, number in self._entries("sqlite_autoindex_collections_1", 2)}
        (epoch,) = self._connection.execute("SELECT coalesce(max(epoch), 0) FROM collections").fetchone()
        self._connection.execute("UPDATE directory SET epochs = max(epochs, ?)", (epoch,))
        wanted = self._connection.execute("SELECT collection FROM documents UNION SELECT collection FROM chunks")
        present = {number for (number,) in self._connection.execute("SELECT collection FROM collections").fetchall()}
        for number in sorted(({number for (number,) in wanted.fetchall()} | collections) - present):
            self._connection.execute("UPDATE directory SET epochs = epochs + 1")
            self._connection.execute(
                "INSERT INTO collections (collection, name, generation, created_at, epoch) "
                "SELECT ?, ?, '', ?, epochs FROM directory",
                (number, known.get(number, f"recovered-{number}"), _now()),
            )
        self._connection.execute(
            "INSERT INTO embedders (embedder, name, dimension) SELECT DISTINCT embedder, 'unknown-' || embedder, 0 "
            "FROM chunks WHERE embedder NOT IN (SELECT embedder FROM embedders)"
        )
        jobs = "SELECT DISTINCT job FROM job_documents WHERE job NOT IN (SELECT job FROM jobs)"
        for (number,) in self._connection.execute(jobs).fetchall():
            self._connection.execute(
                "INSERT INTO jobs (job, id, state, started_at) VALUES (?, ?, 'running', ?)",
                (number, secrets.token_hex(8), _now()),
            )

    def _rebuild_records(self, names: dict[int, tuple[int, str]], ids: dict[int, str]) -> None:
        """Puts records and texts together whose pages are damaged, from passages and what indexes say."""
        present = {number for (number,) in self._connection.execute("SELECT document FROM documents").fetchall()}
        of_passages = self._connection.execute("SELECT DISTINCT document FROM chunks").fetchall()
        for number in sorted((self._partial.keys() | names.keys() | {number for (number,) in of_passages}) - present):
            passages = self._connection.execute(
                "SELECT ordinal, first, past, text, collection FROM chunks WHERE document = ? ORDER BY ordinal",
                (number,),
            ).fetchall()
            if not passages:
                self._outcomes[number] = Outcome.LOST, ""
                continue
            text, at = "", 0
            for _, first, past, passage, _ in passages:
                text += "\n" * (first - at) + passage
                at = past
            collection = passages[0][-1]
            name = names.get(number, (collection, f"recovered-{number}"))[1]
            made = (number, ids.get(number, new_document_id()), collection, name, name, "text/plain", "", 0, 0, 0, None)
            record = list(self._partial.get(number, (*made, _now())))
            expected = record[9] or passages[-1][0] + 1
            record[8:10] = len(text), len(passages)
            self._connection.execute(
                "INSERT INTO documents (document, id, collection, name, title, media_type, sha256, size_bytes, "
                f"characters, chunks, pages, ingested_at, text) VALUES ({', '.join('?' * 13)})",
                (*record, text),
            )
            detail = f"its text was put together from {len(passages)} of {expected} passages"
            self._outcomes[number] = Outcome.REBUILT, detail
            self._renumber(number, [chunk for (chunk,) in self._chunks(number)])

    def _rebuild_passages(self) -> None:
        """Makes missing passages of whole texts again, and gives passages without vectors to the embedder."""
        self._connection.execute("INSERT INTO embedders (name, dimension) VALUES ('to be computed', 0)")
        embedder = self._connection.last_insert_rowid()
        incomplete = self._connection.execute(
            "SELECT document, collection, d.chunks, text FROM documents d LEFT JOIN "
            "(SELECT document, count(*) AS present FROM chunks GROUP BY document) USING (document) "
            "WHERE coalesce(present, 0) <> d.chunks"
        ).fetchall()
        for document, collection, expected, text in incomplete:
            order: list[int] = []
            made, at, following, page, context = 0, 0, 0, None, "[]"
            passages = self._connection.execute(
                "SELECT chunk, ordinal, first, past, page, context FROM chunks WHERE document = ? ORDER BY ordinal",
                (document,),
            ).fetchall()
            for chunk, ordinal, first, past, its_page, its_context in (
                *passages,
                (None, expected, len(text), len(text), None, "[]"),
            ):
                for start, end in _passages(text, at, first) if ordinal > following else ():
                    made += 1
                    self._connection.execute(
                        "INSERT INTO chunks (document, collection, ordinal, first, past, page, context, text, "
                        "embedder, embedding) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, x'')",
                        (document, collection, -made, start, end, page, context, text[start:end], embedder),
                    )
                    order.append(int(self._connection.last_insert_rowid()))
                if chunk is not None:
                    order.append(chunk)
                at, following, page, context = past, ordinal + 1, its_page, its_context
            self._renumber(document, order)
            self._connection.execute("UPDATE documents SET chunks = ? WHERE document = ?", (len(order), document))
            self._outcomes[document] = Outcome.REBUILT, f"{made} passages were made again from its text"

    def _chunks(self, document: int) -> Iterator[tuple[int]]:
        yield from self._connection.execute(
            "SELECT chunk FROM chunks WHERE document = ? ORDER BY ordinal", (document,)
        ).fetchall()

    def _renumber(self, document: int, order: list[int]) -> None:
        """Gives passages the ordinals 0, 1, ...; by way of numbers that none has, since ordinals are unique."""
        unused = 1 << 32
        for shift in (unused, 0):
            self._connection.executemany(
                "UPDATE chunks SET ordinal = ? WHERE chunk = ?",
                [(ordinal + shift, chunk) for ordinal, chunk in enumerate(order)],
            )

    def _derive(self) -> None:
        documents = self._connection.execute("SELECT document, collection, metadata FROM documents").fetchall()
        for document, collection, metadata in documents:
            with suppress(ValueError):
                insert_metadata(self._connection, collection, document, decode_metadata(metadata))
            count_words(self._connection, collection, document)
        for (collection,) in self._connection.execute("SELECT collection FROM collections").fetchall():
            create_fulltext(self._connection, collection)
            fill_fulltext(self._connection, collection)

    def _documents(self, names: dict[int, tuple[int, str]]) -> Iterator[SavedDocument]:
        collections: dict[Value, str] = dict(
            self._connection.execute("SELECT collection, name FROM collections").fetchall()
        )
        for number, (outcome, _) in self._outcomes.items():
            if outcome is Outcome.LOST:
                partial = self._partial.get(number)
                collection, name = names[number] if partial is None else (partial[2], partial[3])
                yield SavedDocument(str(collections.get(collection, collection)), str(name), outcome)
        for number, collection, name in self._connection.execute(
            "SELECT document, c.name, d.name FROM documents d JOIN collections c USING (collection) "
            "ORDER BY c.name, d.name"
        ):
            yield SavedDocument(collection, name, *self._outcomes.get(number, (Outcome.KEPT, "")))


def _passages(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Packs the sentences of a range of a text into passages."""
    first = past = -1
    for from_, to in sentence_spans(text[start:end]):
        for begin in range(start + from_, start + to, _PASSAGE_CHARACTERS):
            stop = min(begin + _PASSAGE_CHARACTERS, start + to)
            if first >= 0 and stop - first > _PASSAGE_CHARACTERS:
                yield first, past
                first = -1
            first, past = (begin if first < 0 else first), stop
    if first >= 0:
        yield first, past


def _now() -> str:
    return datetime.now(UTC).isoformat()
