"""Backups of a data directory in use, as one tar archive: manifest, database, queued documents, originals, and the
hash of the manifest.

The manifest is the first member and lists every file with its size and SHA-256; the last member is the hash of the
manifest. An archive can therefore be verified in one pass, and a truncated one is always detected.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, cast

import apsw
import structlog

import edge_rag
from edge_rag.core.file_hash import file_sha256
from edge_rag.errors import BackupInvalid, NotReady, StorageCorrupt, StorageError
from edge_rag.storage.database import Database, load_page_checksums, vacuum_into
from edge_rag.storage.migrations import ORIGINALS_SINCE
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.spool.originals import ORIGINALS, Originals, damaged_originals

DATABASE: Final = "documents.sqlite3"
SPOOL: Final = "spool"
KV: Final = "kv"
"""Folder of a data directory with saved KV pages; not part of a backup."""
TOKEN_VECTORS: Final = "token-vectors.sqlite3"
"""File of a data directory with token vectors of passages; not part of a backup."""
TOKEN_VECTOR_FILES: Final = tuple(f"{TOKEN_VECTORS}{ending}" for ending in ("", "-wal", "-shm"))
_MANIFEST: Final = "manifest.json"
_CHECKSUM: Final = "manifest.sha256"
_FORMAT: Final = 1
_NAME: Final = re.compile(r"documents\.sqlite3|spool/[0-9a-f]{32}|originals/[0-9a-f]{64}")
_BLOCK_BYTES: Final = 1 << 20
_END_BYTES: Final = 2 * tarfile.BLOCKSIZE
_MAX_MANIFEST_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of a backup.

    Attributes:
        created_at: Time of creation, ISO 8601 in UTC.
        models: SHA-256 of the manifest of each model by role and name; models are not part of a backup.
        files: Size in bytes and SHA-256 of every file.
    """

    version: str
    created_at: str
    schema: int
    documents: int
    models: Mapping[str, str]
    files: Mapping[str, tuple[int, str]]


def pack(folder: Path, files: Mapping[str, Path], manifest: Manifest) -> Iterator[bytes]:
    """Yields an archive in parts.

    Args:
        folder: Base folder of relative paths in ``files``.
    """
    serialized = _write_manifest(manifest)
    blocks = (serialized[start : start + _BLOCK_BYTES] for start in range(0, len(serialized), _BLOCK_BYTES))
    yield from _member(_MANIFEST, len(serialized), blocks)
    for name, (size, _) in manifest.files.items():
        yield from _member(name, size, _blocks(folder / files[name]))
    checksum = hashlib.sha256(serialized).hexdigest().encode()
    yield from _member(_CHECKSUM, len(checksum), iter((checksum,)))
    yield bytes(_END_BYTES)


def describe(path: Path) -> tuple[int, str]:
    """Returns the size in bytes and the SHA-256 of a file."""
    return path.stat().st_size, file_sha256(path)


def unpack(archive: Path, into: Path | None) -> Manifest:
    """Reads an archive to its end and verifies every byte.

    Args:
        into: Folder to write the files to, not synced; None verifies only.

    Raises:
        BackupInvalid: It is not a backup, is damaged or truncated, or has bytes or members that a backup does not have.
    """
    try:
        with tarfile.open(archive, "r:") as members:
            return _unpack(members, into)
    except (tarfile.TarError, EOFError, UnicodeDecodeError) as error:
        raise BackupInvalid(f"{archive} is not a complete backup: {error}") from error
    except BackupInvalid as error:
        raise BackupInvalid(f"{archive} is not a complete backup: {error}") from None


def _unpack(members: tarfile.TarFile, into: Path | None) -> Manifest:
    first = members.next()
    if first is None or first.name != _MANIFEST or first.size > _MAX_MANIFEST_BYTES:
        raise BackupInvalid("it does not start with a manifest")
    serialized = _open(members, first).read()
    manifest = _read_manifest(serialized)
    seen: set[str] = set()
    while (member := members.next()) is not None:
        content = _open(members, member)
        if member.name == _CHECKSUM:
            if content.read() != hashlib.sha256(serialized).hexdigest().encode():
                raise BackupInvalid("its manifest is damaged")
            if seen != set(manifest.files) or members.next() is not None:
                raise BackupInvalid("it does not have the files of its manifest")
            _require_end(members, member)
            return manifest
        expected = manifest.files.get(member.name)
        if expected is None or member.name in seen:
            raise BackupInvalid(f"{member.name!r} is not in its manifest")
        seen.add(member.name)
        if _copy(content, None if into is None else into / member.name) != expected:
            raise BackupInvalid(f"{member.name} is damaged")
    raise BackupInvalid("it is truncated")


def _require_end(members: tarfile.TarFile, last: tarfile.TarInfo) -> None:
    """Refuses bytes that no hash covers: an archive ends with two blocks of zeros, and nothing follows them."""
    _require_zeros(members, last, -last.size % tarfile.BLOCKSIZE + _END_BYTES)
    following = len(cast(IO[bytes], members.fileobj).read(_BLOCK_BYTES))
    if following:
        raise BackupInvalid(f"{'at least ' * (following == _BLOCK_BYTES)}{following:,} bytes follow its end")


def _require_zeros(members: tarfile.TarFile, member: tarfile.TarInfo, count: int) -> None:
    file = cast(IO[bytes], members.fileobj)
    file.seek(member.offset_data + member.size)
    found = file.read(count)
    if len(found) < count:
        raise BackupInvalid("it is truncated")
    if any(found):
        raise BackupInvalid(f"the bytes behind {member.name} are damaged")


def _copy(content: IO[bytes], to: Path | None) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    target = None
    if to is not None:
        to.parent.mkdir(mode=0o700, exist_ok=True)
        target = os.fdopen(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
    try:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            if target is not None:
                target.write(block)
    finally:
        if target is not None:
            target.close()
    return size, digest.hexdigest()


def _open(members: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = members.extractfile(member) if member.isreg() else None
    if content is None:
        raise BackupInvalid(f"{member.name!r} is not a file")
    _require_zeros(members, member, -member.size % tarfile.BLOCKSIZE)
    return content


def _member(name: str, size: int, blocks: Iterator[bytes]) -> Iterator[bytes]:
    header = tarfile.TarInfo(name)
    header.size, header.mode = size, 0o600
    yield header.tobuf(tarfile.PAX_FORMAT)
    yield from blocks
    yield bytes(-size % tarfile.BLOCKSIZE)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


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


def _read_manifest(serialized: bytes) -> Manifest:
    plain: Any = None
    with suppress(ValueError):
        plain = json.loads(serialized)
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
        raise BackupInvalid("its manifest lists files that a backup does not have")
    return manifest


_FOLDER: Final = "backup.part"

log = structlog.get_logger(__name__)


class Backups:
    """Makes backups while documents are added and removed. May be used from any thread.

    First a consistent copy of the database is written to the data directory; it takes disk space until the backup ends.

    Args:
        originals: The bytes of its stored documents.
    """

    def __init__(self, folder: Path, database: Database, spool: Spool, originals: Originals) -> None:
        self._folder = folder
        self._database = database
        self._spool = spool
        self._originals = originals
        self._running = threading.Lock()
        shutil.rmtree(folder / _FOLDER, ignore_errors=True)

    def make(self, models: Mapping[str, str]) -> Iterator[bytes]:
        """Yields a backup in parts, after everything in it has been verified.

        Args:
            models: SHA-256 of the manifest of each model in use, by role and name.

        Raises:
            NotReady: Another backup is in progress.
        """
        self._database.require_whole()
        if not self._running.acquire(blocking=False):
            raise NotReady("another backup is in progress; try again when it has finished")
        try:
            with self._spool.pinned() as spool, self._originals.pinned() as originals:
                yield from self._make(spool, originals, models)
        finally:
            shutil.rmtree(self._folder / _FOLDER, ignore_errors=True)
            self._running.release()

    def size_bytes(self) -> int:
        """Returns about how large a backup would be now, from the sizes of the files; more rather than less."""
        files = [self._folder / f"{DATABASE}{ending}" for ending in ("", "-wal")]
        folders = [self._folder / name for name in (SPOOL, ORIGINALS)]
        files += [each for folder in folders if folder.is_dir() for each in folder.iterdir()]
        size = 0
        for file in files:
            with suppress(OSError):  # deleted meanwhile
                size += file.stat().st_size
        return size

    def _make(self, spool: Path, originals: Path, models: Mapping[str, str]) -> Iterator[bytes]:
        scratch = self._folder / _FOLDER
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
        copy = scratch / DATABASE
        try:
            with self._database.reading() as connection:
                vacuum_into(connection, copy)
            found = check_database(copy)
            if damaged := damaged_originals(originals, found.originals):
                log.warning("damaged originals are left out of the backup", files=len(damaged))
                forget_originals(copy, damaged)
            kept = [name for name, _ in found.originals if name not in damaged]
            files = {DATABASE: copy} | {f"{SPOOL}/{name}": spool / name for name in found.queued}
            serialized = {name: describe(path) for name, path in files.items()}
            files |= {f"{ORIGINALS}/{name}": originals / name for name in kept}
            serialized |= {f"{ORIGINALS}/{name}": (size, name) for name, size in found.originals if name in kept}
        except OSError as error:
            raise StorageError(f"{error.filename} could not be read: {error.strerror}; no backup was made") from error
        manifest = Manifest(
            version=edge_rag.__version__,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            schema=found.schema,
            documents=found.documents,
            models=models,
            files=serialized,
        )
        yield from pack(scratch, files, manifest)


@dataclass(frozen=True, slots=True)
class DatabaseContents:
    """The files that a database refers to.

    Attributes:
        originals: SHA-256 and size of each original.
    """

    schema: int
    documents: int
    queued: tuple[str, ...]
    originals: tuple[tuple[str, int], ...]

    @property
    def files(self) -> set[str]:
        named = {f"{SPOOL}/{name}" for name in self.queued} | {f"{ORIGINALS}/{name}" for name, _ in self.originals}
        return named | {DATABASE}


def check_database(path: Path) -> DatabaseContents:
    """Reads and verifies a whole database: every page, B-tree, index and full text table.

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
            queued = connection.execute("SELECT spooled FROM job_documents WHERE state = 'queued'").fetchall()
            schema = connection.pragma("user_version")
            with_originals = "SELECT DISTINCT sha256, size_bytes FROM documents WHERE original"
            originals = connection.execute(with_originals).fetchall() if schema >= ORIGINALS_SINCE else ()
            return DatabaseContents(schema, documents, tuple(name for (name,) in queued), tuple(originals))
    except apsw.Error as error:
        raise StorageCorrupt(f"{path} is damaged: {error}") from error


def newest_record(database: Path) -> datetime | None:
    """Returns when the newest document of a database was stored, UTC; None without any, or if that cannot be read."""
    if not database.exists():
        return None
    load_page_checksums()
    with suppress(apsw.Error), closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        (newest,) = connection.execute("SELECT max(ingested_at) FROM documents").fetchone()
        return None if newest is None else datetime.fromisoformat(newest)
    return None


def forget_originals(database: Path, names: Collection[str]) -> None:
    """Records in a database that is not in use that documents have no original.

    Args:
        names: SHA-256 of their bytes.

    Raises:
        StorageError: It cannot be written.
    """
    try:
        with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.executemany("UPDATE documents SET original = 0 WHERE sha256 = ?", [(name,) for name in names])
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as error:
        raise StorageError(f"{database} could not be written: {error}") from error
