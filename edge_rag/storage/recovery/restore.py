"""Puts a backup into a data directory that no daemon holds."""

from __future__ import annotations

import secrets
import shutil
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from edge_rag.core.atomic_file import sync
from edge_rag.errors import BackupInvalid, ConfigurationError, StorageCorrupt, StorageError
from edge_rag.storage.backup import DATABASE, KV, SPOOL, TOKEN_VECTOR_FILES, Manifest, check_database, unpack
from edge_rag.storage.data_directory import DataDirectory
from edge_rag.storage.database import load_page_checksums
from edge_rag.storage.migrations import NEWEST_SCHEMA
from edge_rag.storage.recovery.pages import RESERVED_BYTES
from edge_rag.storage.spool.originals import ORIGINALS

_FOLDER: Final = "restore.part"
_RESERVED_AT: Final = 20
_ID_BYTES: Final = 8


def restore(archive: Path, directory: Path, replace: bool) -> Manifest:
    """Replaces the documents of a data directory by those of a backup.

    The backup is unpacked beside the data and verified first; then one rename puts it in place, so that either the old
    or the new state is there at any moment. The daemon rebuilds indexes at its next start. Added models stay. The id of
    the directory stays too, and a directory without one gets a new id: data that two boxes restored from one backup
    keep in a shared Milvus must not be mixed.

    Args:
        directory: The data directory; created if it does not exist.

    Raises:
        BackupInvalid: It is not a complete backup, or a newer edge-rag wrote it; nothing was changed.
        ConfigurationError: There are documents, and ``replace`` is not set.
        StorageError: The disk failed or is full; the old documents are still there.
    """
    if not archive.is_file():
        raise BackupInvalid(f"{archive} is not a file")
    with DataDirectory(directory):
        database = directory / DATABASE
        if database.exists() and not replace:
            raise ConfigurationError(f"{directory} has documents; use --replace to replace them, or another directory")
        scratch = directory / _FOLDER
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir(mode=0o700)
            manifest = try_restore(archive, scratch)
            _set_id(scratch / DATABASE, _id_of(database) or secrets.token_hex(_ID_BYTES))
            # Saved KV pages of the replaced text must not be found under epochs that are used again.
            if (directory / KV).exists():
                shutil.rmtree(directory / KV)
            for name in TOKEN_VECTOR_FILES:
                (directory / name).unlink(missing_ok=True)
            _put_in_place(scratch, directory)
        except OSError as error:
            raise StorageError(f"{error.filename or directory}: {error.strerror}; nothing was changed") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return manifest


def try_restore(archive: Path, scratch: Path) -> Manifest:
    """Restores a backup into a folder and checks every file and the whole database, as ``restore`` does.

    Args:
        scratch: An empty folder, which gets the files.

    Raises:
        BackupInvalid: It is not a complete backup, or a newer edge-rag wrote it.
    """
    load_page_checksums()
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
        found = check_database(scratch / DATABASE)
    except StorageCorrupt as error:
        raise BackupInvalid(f"{archive} is not a complete backup: {error}") from error
    if found.schema != manifest.schema or found.files != set(manifest.files):
        raise BackupInvalid(f"{archive} is not a complete backup: its database does not match its manifest")
    return manifest


def _id_of(database: Path) -> str | None:
    if not database.exists():
        return None
    try:
        with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            row = connection.execute("SELECT id FROM directory").fetchone()
    except apsw.Error:  # damaged, or from a version whose directories had no id
        return None
    return None if row is None else str(row[0])


def _set_id(database: Path, directory: str) -> None:
    try:
        with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            # A database of a version without directory ids gets a random one when it is opened.
            if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'directory'").fetchone():
                connection.execute("UPDATE directory SET id = ?", (directory,))
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as error:
        raise StorageError(f"the unpacked backup could not be written ({error}); nothing was changed") from error


def _put_in_place(scratch: Path, directory: Path) -> None:
    sync(scratch / DATABASE)
    for name in (SPOOL, ORIGINALS):
        folder = directory / name
        folder.mkdir(mode=0o700, exist_ok=True)
        if (scratch / name).is_dir():
            for file in (scratch / name).iterdir():
                sync(file)
                file.replace(folder / file.name)
            sync(folder)
    _retire(directory / DATABASE)
    (scratch / DATABASE).replace(directory / DATABASE)
    sync(directory)


def _retire(database: Path) -> None:
    """Empties the old database's log, which must not be applied to the new one; moves a damaged database aside."""
    if not database.exists():
        return
    log, index = (database.with_name(f"{database.name}-{suffix}") for suffix in ("wal", "shm"))
    try:
        with closing(apsw.Connection(str(database))) as connection:
            connection.pragma("schema_version")  # reads the file; opening a connection does not
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error:
        for file in (database, log, index):
            if file.exists():
                file.replace(file.with_name(f"{file.name}.damaged"))
        return
    for file in (log, index):
        file.unlink(missing_ok=True)
