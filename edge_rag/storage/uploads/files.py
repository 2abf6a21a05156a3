"""Files that clients send: their bytes in a folder, what is known of them in SQLite.

A file is received at its offset, which is recorded only after the bytes before it are synced. After a crash it is cut
to that offset, and its sender goes on from there. When a document is to be made of it, the spool gets a further name
for the same bytes (a hard link), so that nothing is copied and the file may go first.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import apsw
import structlog

from edge_rag.core.documents.files import UNFINISHED_S, FileId, FileState, NewFile, StoredFile
from edge_rag.core.documents.metadata import decode_metadata, encode_metadata
from edge_rag.core.limits.fair_share import FREE_SHARE
from edge_rag.errors import FileIncomplete, FileNotFound, OffsetMismatch, StorageError, StorageFull
from edge_rag.storage.database import Database
from edge_rag.storage.spool.files import Spool, SpooledContent, writing_to

SYNC_BYTES: Final = 8 << 20
"""Bytes after which a file that is being received is synced and its offset recorded: what a crash may cost."""

MAX_FILES: Final = 65_536
"""Files whose bytes are kept, of all owners; one may have three times as many as are free."""

_LEAST_BYTES: Final = 4096
_LATEST_SWEEP_S: Final = 3600.0

_COLUMNS: Final = (
    "id, owner, name, media_type, purpose, size_bytes, kept_s, collection, metadata, state, offset, sha256, "
    "created_ms, expires_ms"
)
_HELD: Final = f"state <> '{FileState.RELEASED.value}'"
"""Files whose bytes are kept."""

_LIVE: Final = (
    "EXISTS (SELECT 1 FROM attachments a WHERE a.file = files.id AND (a.state = 'queued' OR EXISTS (SELECT 1 FROM "
    "documents d WHERE d.id = a.document_id AND d.sha256 = a.sha256)))"
)
"""Files that are, or are about to be, documents; not those whose document was deleted or replaced by other bytes."""

_log = structlog.get_logger(__name__)


class FileWriter:
    """A file that is being received; see ``FileStore.writer``. May be used from any thread."""

    def __init__(
        self, store: FileStore, file_id: FileId, file: io.BufferedWriter, offset: int, most: int, whole: bool
    ) -> None:
        self.offset = offset
        self._store = store
        self._file_id = file_id
        self._file = file
        self._synced = offset
        self._most = most
        self._whole = whole
        self._lock = threading.Lock()
        self._ended = False

    def write(self, piece: bytes) -> None:
        """Writes the next bytes.

        Raises:
            OffsetMismatch: The file would be larger than announced, or another sender of it has taken this one's place.
        """
        with self._lock:
            if self._ended:
                raise OffsetMismatch(self._synced)
            if self.offset + len(piece) > self._most:
                raise OffsetMismatch(self._most)
            with writing_to(self._store.folder / self._file_id):
                self._file.write(piece)
                self.offset += len(piece)
                if not self._whole and self.offset - self._synced >= SYNC_BYTES:
                    self._sync()

    def end(self, *, verified: bool = False) -> int:
        """Ends the reception; returns the offset, up to which the bytes are on disk. Idempotent."""
        with self._lock:
            if not self._ended:
                self._ended = True
                try:
                    with writing_to(self._store.folder / self._file_id):
                        if verified or not self._whole:
                            self._sync()
                finally:
                    with suppress(OSError):
                        self._file.close()
                    self._store.ended(self._file_id, self)
            return self._synced

    def _sync(self) -> None:
        self._file.flush()
        if self.offset > self._synced:
            os.fsync(self._file.fileno())
            self._store.record(self._file_id, self.offset)
            self._synced = self.offset


class FileStore:
    """Files of a data directory. May be used from any thread; every change is durable on return.

    Args:
        folder: For their bytes; created if it does not exist.
        spool: Gets further names for the bytes of files that become documents.
        capacity_bytes: Most bytes of all files together.
        now_ms: Unix milliseconds.

    Attributes:
        naming: Held while the name of a document is chosen and accepted, so that no two files get one name.
    """

    def __init__(
        self,
        folder: Path,
        database: Database,
        spool: Spool,
        capacity_bytes: int,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{folder} cannot be created: {error.strerror}") from error
        self.folder = folder
        self.naming = threading.Lock()
        self._database = database
        self._spool = spool
        self._capacity_bytes = capacity_bytes
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._writers: dict[FileId, FileWriter] = {}
        self._timer: threading.Timer | None = None
        self._closed = False

    def recover(self) -> None:
        """Cuts files to their recorded offsets, and removes bytes without a record and records without bytes."""
        with self._database.writing() as connection:
            rows = connection.execute(f"SELECT id, offset FROM files WHERE {_HELD}").fetchall()
            for file_id, offset in rows:
                path = self.folder / file_id
                size = path.stat().st_size if path.is_file() else 0
                if size < offset or not path.is_file():
                    _log.warning("the bytes of a file are missing; it has to be sent again", file=file_id)
                    _release(connection, file_id)
                elif size > offset:
                    os.truncate(path, offset)
            connection.execute(f"DELETE FROM files WHERE state = '{FileState.RELEASED.value}' AND NOT {_LIVE}")
            connection.execute("DELETE FROM attachments WHERE state <> 'queued' AND file NOT IN (SELECT id FROM files)")
            kept = {name for (name,) in connection.execute(f"SELECT id FROM files WHERE {_HELD}").fetchall()}
        for path in self.folder.iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)
        self.sweep()

    def create(self, new: NewFile, most_bytes: int) -> StoredFile:
        """Begins a file.

        Args:
            most_bytes: Largest size that it may have if it is not known.

        Raises:
            StorageFull: There are too many files, of this owner or in all, or too many bytes; or the disk is full.
        """
        now = self._now_ms()
        reserved = max(_LEAST_BYTES, most_bytes if new.size_bytes is None else new.size_bytes)
        file_id = FileId(f"file-{now:012x}{secrets.token_hex(6)}")
        self.sweep()
        while not self._fits(new.owner, reserved):
            if not self._release_oldest():
                raise StorageFull(
                    f"files take too much room: together at most {self._capacity_bytes:,} bytes (ingest.files_mib) and "
                    f"{MAX_FILES:,} files, shared among those who send them; delete some, or make documents of them"
                )
        path = self.folder / file_id
        with writing_to(path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            _sync_folder(self.folder)
        try:
            with self._database.writing() as connection:
                connection.execute(
                    "INSERT INTO files (id, owner, name, media_type, purpose, size_bytes, kept_s, collection, "
                    "metadata, state, offset, reserved_bytes, sha256, created_ms, expires_ms) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, '', ?, ?)",
                    (
                        file_id,
                        new.owner,
                        new.name,
                        new.media_type,
                        new.purpose,
                        new.size_bytes,
                        new.kept_s,
                        new.collection,
                        encode_metadata(new.metadata),
                        FileState.RECEIVING.value,
                        reserved,
                        now,
                        now + UNFINISHED_S * 1000,
                    ),
                )
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        self._arm()
        return self.get(file_id)

    def writer(self, file_id: FileId, offset: int, *, whole: bool = False) -> FileWriter:
        """Goes on with a file; whoever sent it before is ended.

        Raises:
            FileNotFound: It does not exist.
            OffsetMismatch: It ends elsewhere, or is complete.
        """
        self.settle(file_id)
        with self._lock:
            taken = self._writers.get(file_id)
            if taken is not None:  # since it was settled
                raise OffsetMismatch(taken.offset)
            with self._database.reading() as connection:
                row = connection.execute(
                    "SELECT state, offset, reserved_bytes, size_bytes FROM files WHERE id = ?", (file_id,)
                ).fetchone()
            if row is None:
                raise FileNotFound(file_id)
            state, at, reserved, size_bytes = row
            if offset != at or state != FileState.RECEIVING.value:
                raise OffsetMismatch(at)
            path = self.folder / file_id
            with writing_to(path):
                os.truncate(path, at)  # a piece that failed may have left bytes behind the offset
                file = path.open("ab")
            most = reserved if size_bytes is None else size_bytes
            writer = FileWriter(self, file_id, file, at, most, whole)
            self._writers[file_id] = writer
        return writer

    def settle(self, file_id: FileId) -> StoredFile:
        with self._lock:
            writer = self._writers.get(file_id)
        if writer is not None:
            writer.end()
        return self.get(file_id)

    def finish(self, file_id: FileId, purpose: str | None = None, kept_s: int | None = None) -> StoredFile:
        """Ends the reception of a file that has all its bytes, and completes it.

        Args:
            purpose: What its sender wants it for, if that was said after its bytes; None for what was said before.
            kept_s: How long its bytes are kept; None for what was said before.

        Raises:
            FileIncomplete: Bytes are missing.
            StorageError: The disk failed.
        """
        found = self.settle(file_id)
        size = found.about.size_bytes
        if found.state is not FileState.RECEIVING:
            return found
        if size is not None and found.offset != size:
            raise FileIncomplete(f"file {file_id} has {found.offset:,} of {size:,} bytes")
        path = self.folder / file_id
        try:
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise StorageError(f"{path} could not be read: {error.strerror}") from error
        about = found.about
        kept = about.kept_s if kept_s is None else kept_s
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE files SET state = ?, size_bytes = offset, reserved_bytes = max(offset, ?), sha256 = ?, "
                "purpose = ?, kept_s = ?, expires_ms = ? WHERE id = ?",
                (
                    FileState.COMPLETE.value,
                    _LEAST_BYTES,
                    sha256,
                    about.purpose if purpose is None else purpose,
                    kept,
                    self._now_ms() + 1000 * kept,
                    file_id,
                ),
            )
        self._arm()
        return self.get(file_id)

    def get(self, file_id: FileId) -> StoredFile:
        """Returns a file.

        Raises:
            FileNotFound: It does not exist, or has expired.
        """
        with self._database.reading() as connection:
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM files WHERE id = ? AND (expires_ms IS NULL OR expires_ms > ? OR {_LIVE})",
                (file_id, self._now_ms()),
            ).fetchone()
        if row is None:
            raise FileNotFound(file_id)
        return _file(row)

    def list(
        self, owner: str | None, purpose: str | None, after: FileId | None, limit: int, *, newest_first: bool
    ) -> tuple[StoredFile, ...]:
        """Returns complete files in order of their creation.

        Args:
            owner: Only those of this owner; None for all.
            purpose: Only those of this purpose; None for all.
            newest_first: Whether the newest comes first.
        """
        beyond, order = ("<", "DESC") if newest_first else (">", "ASC")
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM files WHERE (:owner IS NULL OR owner = :owner) AND (:purpose IS NULL OR "
                f"purpose = :purpose) AND (:after IS NULL OR id {beyond} :after) AND state <> 'receiving' "
                f"AND (expires_ms IS NULL OR expires_ms > :now OR {_LIVE}) ORDER BY id {order} LIMIT :limit",
                {"owner": owner, "purpose": purpose, "after": after, "now": self._now_ms(), "limit": limit},
            ).fetchall()
        return tuple(map(_file, rows))

    def content(self, file: StoredFile) -> SpooledContent:
        """Returns the bytes of a complete file, not read yet.

        Raises:
            FileIncomplete: It is not complete, or its bytes are not kept any more.
        """
        if file.state is FileState.RECEIVING:
            raise FileIncomplete(f"file {file.file_id} has not arrived completely; it ends at byte {file.offset:,}")
        if file.state is FileState.RELEASED:
            raise FileIncomplete(f"the bytes of file {file.file_id} are not kept any more; send it again")
        return SpooledContent(self.folder / file.file_id, file.offset, file.sha256)

    def link(self, file: StoredFile) -> SpooledContent:
        """Receives the bytes of a complete file into the spool, for a job to accept; nothing is copied."""
        return self._spool.link(self.content(file))

    def unlink(self, content: SpooledContent) -> None:
        """Takes a name back that ``link`` returned, unless a job has accepted it."""
        self._spool.abandon(content.path)

    def delete(self, file_id: FileId) -> None:
        """Removes a file and what is recorded of its documents, which stay. Does nothing if it does not exist."""
        with self._lock:
            writer = self._writers.pop(file_id, None)
        if writer is not None:
            with suppress(StorageError):
                writer.end()

        def remove(connection: apsw.Connection) -> None:
            connection.execute("DELETE FROM attachments WHERE file = ?", (file_id,))
            connection.execute("DELETE FROM files WHERE id = ?", (file_id,))

        self._database.remove(remove)
        (self.folder / file_id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Deletes the bytes of files that have expired, and what nobody needs of their records."""
        with self._database.reading() as connection:
            expired = connection.execute(
                "SELECT id FROM files WHERE expires_ms IS NOT NULL AND expires_ms <= ?", (self._now_ms(),)
            ).fetchall()
        for (file_id,) in expired:
            with self._lock:
                receiving = file_id in self._writers
            if not receiving:
                self._expire(FileId(file_id))
        self._arm()

    def close(self) -> None:
        """Ends the receptions and the timer; idempotent."""
        with self._lock:
            self._closed = True
            writers = tuple(self._writers.values())
            if self._timer is not None:
                self._timer.cancel()
        for writer in writers:
            with suppress(StorageError):
                writer.end()

    def record(self, file_id: FileId, offset: int) -> None:
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE files SET offset = ?, expires_ms = ? WHERE id = ?",
                (offset, self._now_ms() + UNFINISHED_S * 1000, file_id),
            )

    def ended(self, file_id: FileId, writer: FileWriter) -> None:
        with self._lock:
            if self._writers.get(file_id) is writer:
                del self._writers[file_id]

    def _fits(self, owner: str, size_bytes: int) -> bool:
        """Whether an owner may have one more file: dynamic thresholds (Choudhury and Hahne), as in ``SpoolShares``."""
        with self._database.reading() as connection:
            held = {
                name: (number, taken)
                for name, number, taken in connection.execute(
                    f"SELECT owner, count(*), sum(reserved_bytes) FROM files WHERE {_HELD} GROUP BY owner"
                ).fetchall()
            }
        number, taken = held.get(owner, (0, 0))
        free_files = MAX_FILES - sum(each for each, _ in held.values()) - 1
        free_bytes = self._capacity_bytes - sum(each for _, each in held.values()) - size_bytes
        return (
            min(free_files, free_bytes) >= 0
            and number < max(1, FREE_SHARE * free_files)
            and (not taken or taken + size_bytes <= FREE_SHARE * free_bytes)
        )

    def _release_oldest(self) -> bool:
        """Deletes the bytes of the oldest file that has become a document; returns whether there is one."""
        with self._database.reading() as connection:
            row = connection.execute(
                f"SELECT id FROM files WHERE state = 'complete' AND {_LIVE} AND NOT EXISTS (SELECT 1 FROM attachments "
                "WHERE file = files.id AND state = 'queued') ORDER BY id LIMIT 1"
            ).fetchone()
        if row is not None:
            self._expire(FileId(row[0]))
        return row is not None

    def _expire(self, file_id: FileId) -> None:
        def release(connection: apsw.Connection) -> None:
            _release(connection, file_id)

        self._database.remove(release)
        (self.folder / file_id).unlink(missing_ok=True)

    def _arm(self) -> None:
        """Starts the timer that deletes what expires next."""
        with self._database.reading() as connection:
            (next_ms,) = connection.execute("SELECT min(expires_ms) FROM files").fetchone()
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if next_ms is not None and not self._closed:
                seconds = min(_LATEST_SWEEP_S, max(1.0, (next_ms - self._now_ms()) / 1000))
                self._timer = threading.Timer(seconds, self._sweep_later)
                self._timer.daemon = True
                self._timer.start()

    def _sweep_later(self) -> None:
        try:
            self.sweep()
        except (StorageError, OSError) as error:
            _log.warning("expired files could not be deleted", error=str(error))


def _release(connection: apsw.Connection, file_id: str) -> None:
    connection.execute(
        f"UPDATE files SET state = ?, expires_ms = NULL WHERE id = ? AND state = 'complete' AND {_LIVE}",
        (FileState.RELEASED.value, file_id),
    )
    if not connection.changes():
        connection.execute("DELETE FROM files WHERE id = ?", (file_id,))
        connection.execute("DELETE FROM attachments WHERE file = ?", (file_id,))


def _file(row: Sequence[Any]) -> StoredFile:
    file_id, owner, name, media_type, purpose, size_bytes, kept_s, collection, metadata, *rest = row
    state, offset, sha256, created_ms, expires_ms = rest
    return StoredFile(
        FileId(file_id),
        NewFile(owner, name, media_type, purpose, size_bytes, kept_s, collection, decode_metadata(metadata)),
        FileState(state),
        offset,
        sha256,
        _moment(created_ms),
        None if expires_ms is None else _moment(expires_ms),
    )


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
