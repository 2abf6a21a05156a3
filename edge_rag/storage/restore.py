"""Puts a backup into a data directory that no daemon holds."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from edge_rag.errors import BackupInvalid, ConfigurationError, StorageCorrupt, StorageError
from edge_rag.storage.backup import DATABASE, KV, SPOOL, Manifest, check_database, unpack
from edge_rag.storage.data_directory import DataDirectory
from edge_rag.storage.database import RESERVED_BYTES, load_page_checksums
from edge_rag.storage.migrations import NEWEST_SCHEMA

_FOLDER: Final = "restore.part"
_RESERVED_AT: Final = 20
_ID_BYTES: Final = 8


def restore(archive: Path, directory: Path, replace: bool) -> Manifest:
    """Puts a backup's documents in the place of those of a data directory.

    All of the backup is unpacked beside and checked before anything there is touched; then one rename puts it in place,
    so that there is the old state or the new one at any moment. Indexes are made anew at the daemon's next start.
    Models that were added to the directory stay. So does the directory's id, and a directory without one gets an id of
    its own: what two boxes restored from one backup keep in a Milvus that they share must not be the same.

    Args:
        archive: The backup.
        directory: The data directory, made if it does not exist.
        replace: Whether documents that are there may go.

    Returns:
        What the backup is of.

    Raises:
        BackupInvalid: It is no whole backup, or was made by a newer edge-rag; nothing was changed.
        ConfigurationError: There are documents, and ``replace`` is not set.
        DataDirectoryInUse: A daemon holds the directory.
        StorageError: The disk failed or is full; the documents that were there are.
    """
    if not archive.is_file():
        raise BackupInvalid(f"{archive} is no file")
    load_page_checksums()
    with DataDirectory(directory):
        database = directory / DATABASE
        if database.exists() and not replace:
            raise ConfigurationError(f"{directory} has documents already; replace them with --replace, or name another")
        scratch = directory / _FOLDER
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir(mode=0o700)
            manifest = _unpacked(archive, scratch)
            _identify(scratch / DATABASE, _id_of(database) or secrets.token_hex(_ID_BYTES))
            # What a generator computed from the text that was there must not be found under epochs that come again.
            if (directory / KV).exists():
                shutil.rmtree(directory / KV)
            _put_in_place(scratch, directory)
        except OSError as error:
            raise StorageError(f"{error.filename or directory}: {error.strerror}; nothing was changed") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return manifest


def _unpacked(archive: Path, scratch: Path) -> Manifest:
    manifest = unpack(archive, scratch)
    if manifest.schema > NEWEST_SCHEMA:
        raise BackupInvalid(
            f"{archive} was made by a newer edge-rag ({manifest.version}, schema {manifest.schema}; this one has "
            f"{NEWEST_SCHEMA}); install that version"
        )
    try:
        with (scratch / DATABASE).open("rb") as file:
            if file.read(_RESERVED_AT + 1)[-1] != RESERVED_BYTES:
                raise StorageCorrupt("its database has no page checksums")
        schema, _, waiting = check_database(scratch / DATABASE)
    except StorageCorrupt as error:
        raise BackupInvalid(f"{archive} is no whole backup: {error}") from error
    if schema != manifest.schema or {f"{SPOOL}/{name}" for name in waiting} | {DATABASE} != set(manifest.files):
        raise BackupInvalid(f"{archive} is no whole backup: its database is not what its manifest says")
    return manifest


def _id_of(database: Path) -> str | None:
    if not database.exists():
        return None
    try:
        with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            row = connection.execute("SELECT id FROM directory").fetchone()
    except apsw.Error:  # damaged, or of a time when directories had no id
        return None
    return None if row is None else str(row[0])


def _identify(database: Path, directory: str) -> None:
    try:
        with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            # One of a time when directories had no id gets a random one when it is opened.
            if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'directory'").fetchone():
                connection.execute("UPDATE directory SET id = ?", (directory,))
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as error:
        raise StorageError(f"the unpacked backup could not be written ({error}); nothing was changed") from error


def _put_in_place(scratch: Path, directory: Path) -> None:
    spool = directory / SPOOL
    spool.mkdir(mode=0o700, exist_ok=True)
    _sync(scratch / DATABASE)
    if (scratch / SPOOL).is_dir():
        for waiting in (scratch / SPOOL).iterdir():
            _sync(waiting)
            waiting.replace(spool / waiting.name)
        _sync(spool)
    _take_leave_of(directory / DATABASE)
    (scratch / DATABASE).replace(directory / DATABASE)
    _sync(directory)


def _take_leave_of(database: Path) -> None:
    """Empties the old database's log, which must never be applied to the new one; puts aside one that is damaged."""
    if not database.exists():
        return
    log, index = (database.with_name(f"{database.name}-{suffix}") for suffix in ("wal", "shm"))
    try:
        with closing(apsw.Connection(str(database))) as connection:
            connection.pragma("schema_version")  # reads the file, which opening it does not
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error:
        for file in (database, log, index):
            if file.exists():
                file.replace(file.with_name(f"{file.name}.damaged"))
        return
    for file in (log, index):
        file.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
