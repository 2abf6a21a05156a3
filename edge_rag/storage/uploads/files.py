"""Files that clients send: their bytes in a folder, their records in SQLite.

A file is complete once its bytes are synced and its record says so; a crash before that leaves nothing of it. When it
becomes a document, the spool gets a further name for the same bytes (a hard link), so that nothing is copied and the
file may be deleted first.
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

from edge_rag.core.atomic_file import sync
from edge_rag.core.documents.files import FileId, FileState, NewFile, StoredFile
from edge_rag.core.limits.fair_share import FREE_SHARE
from edge_rag.errors import FileIncomplete, FileNotFound, StorageError, StorageFull
from edge_rag.storage.database import Database
from edge_rag.storage.spool.files import Spool, SpooledContent, writing_to

MAX_FILES: Final = 65_536
"""Files whose bytes are kept, of all owners; one may have three times as many as are free."""

_LEAST_BYTES: Final = 4096
_RECEIVED_S: Final = 24 * 3600
"""How long a file may take to arrive before its record goes, seconds; calls end much sooner."""

_LATEST_SWEEP_S: Final = 3600.0

_COLUMNS: Final = "id, owner, name, media_type, purpose, kept_s, state, size_bytes, sha256, created_ms, expires_ms"

_RECEIVING: Final = "receiving"
"""State of a file that is being received; it has a record, so that its bytes count, and exists for nobody."""

_HELD: Final = f"state <> '{FileState.RELEASED.value}'"
"""Files whose bytes are kept."""

_LIVE: Final = (
    "EXISTS (SELECT 1 FROM attachments a WHERE a.file = files.id AND (a.state = 'queued' OR EXISTS (SELECT 1 FROM "
    "documents d WHERE d.id = a.document_id AND d.sha256 = a.sha256)))"
)
"""Files that are, or are about to be, documents; not those whose document was deleted or replaced by other bytes."""

_log = structlog.get_logger(__name__)


class IncomingFile:
    """A file that is being received; see ``FileStore.receive``. May be used from any thread."""

    def __init__(self, store: FileStore, file_id: FileId, file: io.BufferedWriter) -> None:
        self.size_bytes = 0
        self._store = store
        self._file_id = file_id
        self._file = file
        self._sha256 = hashlib.sha256()

    def write(self, piece: bytes) -> None:
        with writing_to(self._store.folder / self._file_id):
            self._file.write(piece)
        self._sha256.update(piece)
        self.size_bytes += len(piece)

    def finish(self, purpose: str, kept_s: int) -> StoredFile:
        """Completes the file.

        Args:
            purpose: What its sender wants it for, as OpenAI's API names it.
            kept_s: How long its bytes are kept, seconds.

        Raises:
            StorageError: The disk failed.
        """
        with writing_to(self._store.folder / self._file_id):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return self._store.complete(self._file_id, self.size_bytes, self._sha256.hexdigest(), purpose, kept_s)

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        self._store.delete(self._file_id)


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
        self._timer: threading.Timer | None = None
        self._closed = False

    def recover(self) -> None:
        """Removes files that were not received whole, bytes without a record and records without bytes."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM files WHERE state = ?", (_RECEIVING,))
            rows = connection.execute(f"SELECT id, size_bytes FROM files WHERE {_HELD}").fetchall()
            for file_id, size_bytes in rows:
                path = self.folder / file_id
                if not path.is_file() or path.stat().st_size < size_bytes:
                    _log.warning("the bytes of a file are missing; it has to be sent again", file=file_id)
                    _release(connection, file_id)
            connection.execute(f"DELETE FROM files WHERE state = '{FileState.RELEASED.value}' AND NOT {_LIVE}")
            connection.execute("DELETE FROM attachments WHERE state <> 'queued' AND file NOT IN (SELECT id FROM files)")
            kept = {name for (name,) in connection.execute(f"SELECT id FROM files WHERE {_HELD}").fetchall()}
        for path in self.folder.iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)
        self.sweep()

    def receive(self, new: NewFile, most_bytes: int) -> IncomingFile:
        """Begins a file of at most ``most_bytes``; pair it with ``IncomingFile.finish`` or ``discard``.

        Raises:
            StorageFull: There are too many files, of this owner or in all, or too many bytes; or the disk is full.
        """
        now = self._now_ms()
        reserved = max(_LEAST_BYTES, most_bytes)
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
            file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        try:
            with writing_to(path):
                sync(self.folder)
            with self._database.writing() as connection:
                connection.execute(
                    "INSERT INTO files (id, owner, name, media_type, purpose, kept_s, collection, metadata, state, "
                    "offset, reserved_bytes, sha256, created_ms, expires_ms) "
                    "VALUES (?, ?, ?, ?, '', 0, '', '{}', ?, 0, ?, '', ?, ?)",
                    (
                        file_id,
                        new.owner,
                        new.name,
                        new.media_type,
                        _RECEIVING,
                        reserved,
                        now,
                        now + _RECEIVED_S * 1000,
                    ),
                )
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        self._arm()
        return IncomingFile(self, file_id, file)

    def complete(self, file_id: FileId, size_bytes: int, sha256: str, purpose: str, kept_s: int) -> StoredFile:
        """Records a file whose bytes are synced."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE files SET state = ?, size_bytes = ?, offset = ?, reserved_bytes = ?, sha256 = ?, purpose = ?, "
                "kept_s = ?, expires_ms = ? WHERE id = ?",
                (
                    FileState.COMPLETE.value,
                    size_bytes,
                    size_bytes,
                    max(size_bytes, _LEAST_BYTES),
                    sha256,
                    purpose,
                    kept_s,
                    self._now_ms() + 1000 * kept_s,
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
                f"SELECT {_COLUMNS} FROM files WHERE id = ? AND state <> ? AND (expires_ms IS NULL OR expires_ms > ? "
                f"OR {_LIVE})",
                (file_id, _RECEIVING, self._now_ms()),
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
            FileIncomplete: Its bytes are not kept any more.
        """
        if file.state is FileState.RELEASED:
            raise FileIncomplete(f"the bytes of file {file.file_id} are not kept any more; send it again")
        return SpooledContent(self.folder / file.file_id, file.size_bytes, file.sha256)

    def link(self, file: StoredFile) -> SpooledContent:
        """Receives the bytes of a complete file into the spool, for a job to accept; nothing is copied."""
        return self._spool.link(self.content(file))

    def unlink(self, content: SpooledContent) -> None:
        """Takes a name back that ``link`` returned, unless a job has accepted it."""
        self._spool.abandon(content.path)

    def delete(self, file_id: FileId) -> None:
        """Removes a file and the records of its documents, which stay. Does nothing if it does not exist."""

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
            self._expire(FileId(file_id))
        self._arm()

    def close(self) -> None:
        """Ends the timer; idempotent."""
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()

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
    file_id, owner, name, media_type, purpose, kept_s, state, size_bytes, sha256, created_ms, expires_ms = row
    return StoredFile(
        FileId(file_id),
        NewFile(owner, name, media_type),
        purpose,
        kept_s,
        FileState(state),
        size_bytes,
        sha256,
        _moment(created_ms),
        None if expires_ms is None else _moment(expires_ms),
    )


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
