"""Backups of a data directory in use."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import apsw

import edge_rag
from edge_rag.errors import NotReady, StorageCorrupt, StorageError
from edge_rag.storage.archive import DATABASE, SPOOL, Manifest, describe, pack
from edge_rag.storage.database import Database
from edge_rag.storage.page_checksums import load_page_checksums, vacuum_into
from edge_rag.storage.spool import Spool

_FOLDER: Final = "backup.part"


class Backups:
    """Makes backups while documents come and go: each is of one moment. May be used from any thread.

    A copy of the database is made beside it first, which needs its room on the disk until the backup is over.

    Args:
        folder: The data directory.
        database: Its database.
        spool: Its accepted documents.
    """

    def __init__(self, folder: Path, database: Database, spool: Spool) -> None:
        self._folder = folder
        self._database = database
        self._spool = spool
        self._one = threading.Lock()
        shutil.rmtree(folder / _FOLDER, ignore_errors=True)

    def make(self, models: Mapping[str, str]) -> Iterator[bytes]:
        """Yields a backup, piece by piece, once all of it has been checked.

        Args:
            models: SHA-256 of the manifest of each model in use, by role and name.

        Raises:
            NotReady: Another backup is being made.
            StorageCorrupt: What is stored is damaged.
            StorageFull: There is no room for the copy.
            StorageError: The data directory failed.
        """
        if not self._one.acquire(blocking=False):
            raise NotReady("another backup is being made; try again when that is done")
        try:
            with self._spool.pinned() as spool:
                yield from self._make(spool, models)
        finally:
            shutil.rmtree(self._folder / _FOLDER, ignore_errors=True)
            self._one.release()

    def _make(self, spool: Path, models: Mapping[str, str]) -> Iterator[bytes]:
        scratch = self._folder / _FOLDER
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
        copy = scratch / DATABASE
        try:
            with self._database.reading() as connection:
                vacuum_into(connection, copy)
            schema, documents, waiting = check_database(copy)
            files = {DATABASE: copy} | {f"{SPOOL}/{name}": spool / name for name in waiting}
            described = {name: describe(path) for name, path in files.items()}
        except OSError as error:
            raise StorageError(f"{error.filename} could not be read: {error.strerror}; no backup was made") from error
        manifest = Manifest(
            version=edge_rag.__version__,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            schema=schema,
            documents=documents,
            models=models,
            files=described,
        )
        yield from pack(scratch, files, manifest)


def check_database(path: Path) -> tuple[int, int, tuple[str, ...]]:
    """Reads all of a database and checks it: every page, tree, index and full text.

    Returns:
        Number of its newest migration, number of its documents, and the spool's names of those that wait.

    Raises:
        StorageCorrupt: It is damaged.
    """
    load_page_checksums()
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise StorageCorrupt(f"{path} is damaged: {found}")
            (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
            waiting = connection.execute("SELECT spooled FROM job_documents WHERE state = 'queued'").fetchall()
            return connection.pragma("user_version"), documents, tuple(name for (name,) in waiting)
    except apsw.Error as error:
        raise StorageCorrupt(f"{path} is damaged: {error}") from error
