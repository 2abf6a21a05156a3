"""Makes a library from the intact part of a damaged one, a backup, and the documents' source files.

Nothing is overwritten: the damaged files are moved into a folder of their own, and the new library takes their place
with one rename. A run that ends in between leaves the damaged files where they were, or in that folder.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Final

import apsw

from edge_rag.core.atomic_file import sync
from edge_rag.core.file_hash import file_sha256
from edge_rag.errors import BackupInvalid, EdgeRagError, StorageCorrupt, StorageError
from edge_rag.storage.backup import DATABASE, KV, SPOOL, TOKEN_VECTOR_FILES, check_database, unpack
from edge_rag.storage.data_directory import DataDirectory
from edge_rag.storage.database import Database, load_page_checksums, require_whole_database, require_whole_log
from edge_rag.storage.migrations import NEWEST_SCHEMA, fulltext_table
from edge_rag.storage.recovery.salvage import RECOVERY, Outcome, salvage
from edge_rag.storage.spool.originals import ORIGINALS, damaged_originals
from edge_rag.storage.statements import (
    ensure_collection,
    ensure_embedder,
    insert_metadata,
    remove_document,
    stored_metadata,
)

_Row = dict[str, int | float | str | bytes | None]

_FOLDER: Final = "repair.part"
_BACKUP: Final = "backup"
_VECTORS: Final = "vectors"


class Origin(Enum):
    """Where a document of the repaired library comes from.

    KEPT: the damaged library, whole. REBUILT: the damaged library, parts made again from others. BACKUP: the backup.
    SOURCE: its source file, which is queued and stored after the next start. LOST: nowhere.
    """

    KEPT = "kept"
    REBUILT = "rebuilt"
    BACKUP = "backup"
    SOURCE = "source"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class RepairedDocument:
    """What became of one document.

    Attributes:
        detail: More about it; may be empty.
    """

    collection: str
    name: str
    origin: Origin
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """A repaired library, or one that a repair would make.

    Attributes:
        problem: The damage; None if undamaged, and then nothing is done.
        kept_in: Folder with the damaged files; None if nothing was done.
    """

    problem: str | None
    pages: int = 0
    damaged_pages: int = 0
    documents: tuple[RepairedDocument, ...] = ()
    unknown_spool_files: tuple[str, ...] = ()
    kept_in: Path | None = None

    def count(self, origin: Origin) -> int:
        return sum(document.origin is origin for document in self.documents)


def diagnose(directory: Path) -> str | None:
    """Returns the damage to a library; None if undamaged. Reads every page and index."""
    database = directory / DATABASE
    try:
        require_whole_log(database)
        require_whole_database(database)
        if database.exists():
            check_database(database)
    except StorageCorrupt as error:
        return str(error)
    return None


class LibraryRepair:
    """One repair: prepared beside the damaged library, and put in place on demand. A context manager."""

    def __init__(self, directory: Path, backup: Path | None = None, source: Path | None = None) -> None:
        self._directory = directory
        self._backup = backup
        self._source = source
        self._scratch = directory / _FOLDER
        self._repair = Repair(None)

    def __enter__(self) -> LibraryRepair:
        self._lock = DataDirectory(self._directory)
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._lock.close()

    def prepare(self) -> Repair:
        """Makes the new library beside the damaged one, and returns its contents.

        Raises:
            StorageError: The library belongs to another program or a newer version, or the disk failed or is full.
        """
        problem = diagnose(self._directory)
        if problem is None:
            return self._repair
        load_page_checksums()
        shutil.rmtree(self._scratch, ignore_errors=True)
        try:
            self._scratch.mkdir(mode=0o700)
            self._prepare(problem)
        except OSError as error:
            raise StorageError(f"{error.filename}: {error.strerror}; nothing was changed") from error
        return self._repair

    def _prepare(self, problem: str) -> None:
        damaged, repaired = self._directory / DATABASE, self._scratch / DATABASE
        if damaged.exists() and damaged.stat().st_size:
            saved = salvage(damaged, repaired)
            pages, broken = saved.pages, len(saved.damaged)
            origins = {Outcome.KEPT: Origin.KEPT, Outcome.REBUILT: Origin.REBUILT, Outcome.LOST: Origin.LOST}
            found = [RepairedDocument(d.collection, d.name, origins[d.outcome], d.detail) for d in saved.documents]
        else:
            pages = broken = 0
            found = []
            Database(repaired).close()
        documents = {(document.collection, document.name): document for document in found}
        with closing(Database(repaired)) as database, database.writing() as connection:
            if self._backup is not None:
                with closing(self._open_backup(self._backup)) as backup:
                    documents |= _take_from_backup(connection, backup, documents)
            queued = self._drop_spoiled(connection)
            if self._source is not None:
                documents |= self._queue_sources(connection, self._source, documents)
            queued |= {name for (name,) in connection.execute(_QUEUED_FILES)}
            self._restore_originals(connection)
        spool = self._directory / SPOOL
        present = {path.name for path in spool.iterdir()} if spool.is_dir() else set()
        self._repair = Repair(
            problem, pages, broken, tuple(documents[key] for key in sorted(documents)), tuple(sorted(present - queued))
        )

    def _restore_originals(self, connection: apsw.Connection) -> None:
        originals = connection.execute("SELECT DISTINCT sha256, size_bytes FROM documents WHERE original").fetchall()
        (self._scratch / ORIGINALS).mkdir(mode=0o700)
        for name in damaged_originals(self._directory / ORIGINALS, originals):
            saved = self._scratch / _BACKUP / ORIGINALS / name
            if saved.is_file():
                saved.rename(self._scratch / ORIGINALS / name)
            else:
                connection.execute("UPDATE documents SET original = 0 WHERE sha256 = ?", (name,))

    def put_in_place(self) -> Repair:
        """Moves the damaged files aside and the new library into their place.

        Raises:
            StorageError: The disk failed; the damaged files are in their place or in the folder that the error names.
        """
        aside = self._directory / f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        try:
            aside.mkdir(mode=0o700)
            for name in (SPOOL, ORIGINALS):
                new = self._scratch / name
                for file in new.iterdir() if new.is_dir() else ():
                    sync(file)
                    (self._directory / name).mkdir(mode=0o700, exist_ok=True)
                    file.replace(self._directory / name / file.name)
            # The indexes, token vectors and saved KV pages were made from the damaged library.
            for name in (f"{DATABASE}-wal", f"{DATABASE}-shm", _VECTORS, *TOKEN_VECTOR_FILES, KV, DATABASE):
                if (self._directory / name).exists():
                    (self._directory / name).rename(aside / name)
            for name in self._repair.unknown_spool_files:
                (self._directory / SPOOL / name).rename(aside / f"spool-{name}")
            sync(self._scratch / DATABASE)
            (self._scratch / DATABASE).rename(self._directory / DATABASE)
            sync(self._directory)
            shutil.rmtree(self._directory / RECOVERY, ignore_errors=True)
        except OSError as error:
            raise StorageError(
                f"{error.filename}: {error.strerror}; the damaged files are in {self._directory} or {aside}"
            ) from error
        self._repair = replace(self._repair, kept_in=aside)
        return self._repair

    def _open_backup(self, archive: Path) -> apsw.Connection:
        unpacked = self._scratch / _BACKUP
        unpacked.mkdir(mode=0o700)
        manifest = unpack(archive, unpacked)
        if manifest.schema > NEWEST_SCHEMA:
            raise BackupInvalid(f"{archive} was made by a newer edge-rag ({manifest.version}); install that version")
        try:
            Database(unpacked / DATABASE).close()  # brings it up to date
            check_database(unpacked / DATABASE)
        except EdgeRagError as error:
            raise BackupInvalid(f"{archive} cannot be used: {error}") from error
        return apsw.Connection(str(unpacked / DATABASE))

    def _drop_spoiled(self, connection: apsw.Connection) -> set[str]:
        """Rejects queued documents whose bytes are missing or damaged; returns the files of the others."""
        kept = set()
        rows = connection.execute("SELECT ticket, spooled, sha256 FROM job_documents WHERE state = 'queued'").fetchall()
        for ticket, spooled, sha256 in rows:
            path = self._directory / SPOOL / spooled
            if path.is_file() and file_sha256(path) == sha256:
                kept.add(spooled)
            else:
                connection.execute(
                    "UPDATE job_documents SET state = 'rejected', reason = 'its bytes in the spool were damaged' "
                    "WHERE ticket = ?",
                    (ticket,),
                )
        connection.execute(
            "UPDATE jobs SET state = 'finished', handed_over = 1, finished_at = ? WHERE state = 'running' "
            "AND NOT EXISTS (SELECT 1 FROM job_documents d WHERE d.job = jobs.job AND d.state = 'queued')",
            (datetime.now(UTC).isoformat(),),
        )
        return kept

    def _queue_sources(
        self, connection: apsw.Connection, source: Path, documents: Mapping[tuple[str, str], RepairedDocument]
    ) -> dict[tuple[str, str], RepairedDocument]:
        """Queues the source files of documents that are lost, to be stored after the next start."""
        lost = [document for document in documents.values() if document.origin is Origin.LOST]
        found = [(each, file) for each in lost if (file := _source_of(source, each.name)) is not None]
        if not found:
            return {}
        connection.execute(
            "INSERT INTO jobs (id, state, handed_over, started_at) VALUES (?, 'running', 1, ?)",
            (secrets.token_hex(8), datetime.now(UTC).isoformat()),
        )
        job = connection.last_insert_rowid()
        (self._scratch / SPOOL).mkdir(mode=0o700)
        for change, (document, file) in enumerate(found, start=1):
            spooled = self._scratch / SPOOL / secrets.token_hex(16)
            shutil.copyfile(file, spooled)
            content = spooled.stat().st_size, file_sha256(spooled), spooled.name
            connection.execute(
                "INSERT INTO job_documents (job, collection, name, media_type, metadata, size_bytes, sha256, spooled, "
                "state, reason, change) VALUES (?, ?, ?, '', '{}', ?, ?, ?, 'queued', '', ?)",
                (job, document.collection, document.name, *content, change),
            )
        connection.execute("UPDATE jobs SET changes = ? WHERE job = ?", (len(found), job))
        return {
            (each.collection, each.name): replace(each, origin=Origin.SOURCE, detail="stored after the next start")
            for each, _ in found
        }


_QUEUED_FILES: Final = "SELECT spooled FROM job_documents WHERE state = 'queued'"


def _take_from_backup(
    connection: apsw.Connection, backup: apsw.Connection, documents: Mapping[tuple[str, str], RepairedDocument]
) -> dict[tuple[str, str], RepairedDocument]:
    """Copies documents of a backup that are lost, or were rebuilt from the very bytes that the backup has whole.

    If nothing is known of the library any more, all documents of the backup are copied. A document that is in the
    backup only was deleted after it; that it stays deleted matters more than that it might have been lost unnamed.
    """
    taken: dict[tuple[str, str], RepairedDocument] = {}
    rows = backup.execute(
        "SELECT d.document, c.name, d.name, d.sha256, c.settings, c.kept FROM documents d "
        "JOIN collections c USING (collection) ORDER BY d.document"
    ).fetchall()
    for document, collection, name, sha256, settings, kept in rows:
        known = documents.get((collection, name))
        if documents and (known is None or known.origin is Origin.KEPT):
            continue
        present = connection.execute(
            "SELECT document, sha256, collection FROM documents JOIN collections c USING (collection) "
            "WHERE c.name = ? AND documents.name = ?",
            (collection, name),
        ).fetchone()
        if present is not None:
            if present[1] not in (sha256, ""):
                continue  # rebuilt from a newer version than that of the backup
            remove_document(connection, present[2], present[0])
        is_new = not connection.execute("SELECT 1 FROM collections WHERE name = ?", (collection,)).fetchone()
        number = ensure_collection(connection, collection)
        if is_new:
            connection.execute(
                "UPDATE collections SET settings = ?, kept = ? WHERE collection = ?", (settings, kept, number)
            )
        _copy(connection, backup, document, number)
        taken[collection, name] = RepairedDocument(collection, name, Origin.BACKUP)
    return taken


def _copy(connection: apsw.Connection, backup: apsw.Connection, document: int, collection: int) -> None:
    """Copies a document with its passages, full text and metadata."""
    (record,) = _rows(backup, "documents", document)
    number = _insert(connection, "documents", record | {"collection": collection})
    insert_metadata(connection, collection, number, stored_metadata(str(record["metadata"])))
    for chunk in _rows(backup, "chunks", document):
        name, dimension = backup.execute(
            "SELECT name, dimension FROM embedders WHERE embedder = ?", (chunk["embedder"],)
        ).fetchone()
        embedder = ensure_embedder(connection, name, dimension)
        row = _insert(
            connection, "chunks", chunk | {"document": number, "collection": collection, "embedder": embedder}
        )
        connection.execute(
            f"INSERT INTO {fulltext_table(collection)} (rowid, text, context) VALUES (?, ?, ?)",
            (row, chunk["text"], chunk["context"]),
        )


def _rows(backup: apsw.Connection, table: str, document: int) -> list[_Row]:
    rows = backup.execute(f"SELECT * FROM {table} WHERE document = ?", (document,)).fetchall()
    columns = [name for (name,) in backup.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _insert(connection: apsw.Connection, table: str, row: _Row) -> int:
    given = {name: value for name, value in row.items() if f"{name}s" != table}
    connection.execute(
        f"INSERT INTO {table} ({', '.join(given)}) VALUES ({', '.join('?' * len(given))})", tuple(given.values())
    )
    return int(connection.last_insert_rowid())


def _source_of(folder: Path, name: str) -> Path | None:
    """Returns the file of a document; None without one. A name never leads out of the folder."""
    file = (folder / name).resolve()
    return file if file.is_file() and file.is_relative_to(folder.resolve()) else None
