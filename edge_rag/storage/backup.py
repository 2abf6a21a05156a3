"""Backups of a data directory in use.

A backup as one file: a tar archive of a manifest, the database, the documents that wait, and the manifest's hash.

The manifest comes first and names every other file with its size and SHA-256; the last member has the manifest's own.
So an archive can be checked from its first byte to its last by itself, and one that was cut off is never taken for
whole.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

import apsw

import edge_rag
from edge_rag.errors import BackupInvalid, NotReady, StorageCorrupt, StorageError
from edge_rag.storage.database import Database, load_page_checksums, vacuum_into
from edge_rag.storage.spool import Spool

DATABASE: Final = "documents.sqlite3"
SPOOL: Final = "spool"
KV: Final = "kv"
"""What generators keep of their work in a data directory; no part of a backup."""
_MANIFEST: Final = "manifest.json"
_CHECKSUM: Final = "manifest.sha256"
_FORMAT: Final = 1
_NAME: Final = re.compile(r"documents\.sqlite3|spool/[0-9a-f]{32}")
_PIECE: Final = 1 << 20
_MOST_MANIFEST_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup is of.

    Attributes:
        version: Version of edge-rag that made it.
        created_at: When, ISO 8601 in UTC.
        schema: Number of the database's newest migration.
        documents: Number of documents.
        models: SHA-256 of each model's own manifest, by role and name; the models themselves are not in it.
        files: Size and SHA-256 of every file.
    """

    version: str
    created_at: str
    schema: int
    documents: int
    models: Mapping[str, str]
    files: Mapping[str, tuple[int, str]]


def pack(folder: Path, files: Mapping[str, Path], manifest: Manifest) -> Iterator[bytes]:
    """Yields an archive piece by piece.

    Args:
        folder: Unused files are never looked at; all paths of ``files`` are absolute or below it.
        files: Where each file of the manifest lies.
        manifest: What it is of.
    """
    described = _write_manifest(manifest)
    yield from _member(_MANIFEST, len(described), iter((described,)))
    for name, (size, _) in manifest.files.items():
        yield from _member(name, size, _pieces(folder / files[name]))
    checksum = hashlib.sha256(described).hexdigest().encode()
    yield from _member(_CHECKSUM, len(checksum), iter((checksum,)))
    yield bytes(2 * tarfile.BLOCKSIZE)


def describe(path: Path) -> tuple[int, str]:
    """Returns a file's size and SHA-256."""
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archive: Path, into: Path | None) -> Manifest:
    """Reads an archive to its end and checks every byte of it.

    Args:
        archive: The file.
        into: Folder that its files are written to, not synced; None only checks.

    Raises:
        BackupInvalid: It is no backup, damaged, cut off, or has what a backup does not have.
        OSError: A file could not be read or written.
    """
    try:
        with tarfile.open(archive, "r:") as members:
            return _unpack(members, into)
    except (tarfile.TarError, EOFError, UnicodeDecodeError) as error:
        raise BackupInvalid(f"{archive} is no whole backup: {error}") from error
    except BackupInvalid as error:
        raise BackupInvalid(f"{archive} is no whole backup: {error}") from None


def _unpack(members: tarfile.TarFile, into: Path | None) -> Manifest:
    first = members.next()
    if first is None or first.name != _MANIFEST or first.size > _MOST_MANIFEST_BYTES:
        raise BackupInvalid("it does not begin with a manifest")
    described = _open(members, first).read()
    manifest = _read_manifest(described)
    seen: set[str] = set()
    while (member := members.next()) is not None:
        content = _open(members, member)
        if member.name == _CHECKSUM:
            if content.read() != hashlib.sha256(described).hexdigest().encode():
                raise BackupInvalid("its manifest is damaged")
            if seen != set(manifest.files) or members.next() is not None:
                raise BackupInvalid("it does not have the files of its manifest")
            return manifest
        expected = manifest.files.get(member.name)
        if expected is None or member.name in seen:
            raise BackupInvalid(f"{member.name!r} is not in its manifest")
        seen.add(member.name)
        if _copy(content, None if into is None else into / member.name) != expected:
            raise BackupInvalid(f"{member.name} is damaged")
    raise BackupInvalid("it was cut off")


def _copy(content: IO[bytes], to: Path | None) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    target = None
    if to is not None:
        to.parent.mkdir(mode=0o700, exist_ok=True)
        target = to.open("xb")
    try:
        while piece := content.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            if target is not None:
                target.write(piece)
    finally:
        if target is not None:
            target.close()
    return size, digest.hexdigest()


def _open(members: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = members.extractfile(member) if member.isreg() else None
    if content is None:
        raise BackupInvalid(f"{member.name!r} is not a file")
    return content


def _member(name: str, size: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    header = tarfile.TarInfo(name)
    header.size, header.mode = size, 0o600
    yield header.tobuf(tarfile.PAX_FORMAT)
    yield from pieces
    yield bytes(-size % tarfile.BLOCKSIZE)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _write_manifest(manifest: Manifest) -> bytes:
    files = {name: {"bytes": size, "sha256": sha256} for name, (size, sha256) in manifest.files.items()}
    plain = {
        "format": _FORMAT,
        "version": manifest.version,
        "created_at": manifest.created_at,
        "schema": manifest.schema,
        "documents": manifest.documents,
        "models": dict(manifest.models),
        "files": files,
    }
    return (json.dumps(plain, indent=1) + "\n").encode()


def _read_manifest(described: bytes) -> Manifest:
    plain: Any = None
    with suppress(ValueError):
        plain = json.loads(described)
    try:
        if plain["format"] != _FORMAT:
            raise BackupInvalid(f"it has format {plain['format']}; this edge-rag reads format {_FORMAT}")
        files = {str(name): (int(file["bytes"]), str(file["sha256"])) for name, file in plain["files"].items()}
        manifest = Manifest(
            version=str(plain["version"]),
            created_at=str(plain["created_at"]),
            schema=int(plain["schema"]),
            documents=int(plain["documents"]),
            models={str(name): str(sha256) for name, sha256 in plain["models"].items()},
            files=files,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BackupInvalid("its manifest is damaged") from error
    if DATABASE not in files or not all(_NAME.fullmatch(name) for name in files):
        raise BackupInvalid("its manifest names files that a backup does not have")
    return manifest


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
