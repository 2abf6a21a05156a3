"""The SQLite database: durable commits, one connection per thread, page checksums, and a check of the log at start.

Page checksums: SQLite's checksum VFS reserves eight bytes at the end of each page, writes the checksum with the page
and compares it on every read, in the database and in its log. A flipped byte in text, vectors, full text or B-trees
is therefore an error, never a different answer. Without checksums SQLite notices only what breaks the structure of
a B-tree.

Log check: SQLite replays the write-ahead log up to the first frame with a wrong checksum, because an interrupted write
looks like that. A byte that flipped in an earlier frame looks the same, and SQLite would silently drop every later
transaction. The two cases differ in what follows: nothing of the same log follows an interrupted write, while valid
frames follow a flipped byte. The checksum of a frame continues the one stored in the frame before it, so the frames
after the damage can still be verified. Format of the log: https://sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import apsw
import numpy as np
import structlog
from apsw import sqlite_extra

from edge_rag.errors import StorageCorrupt, StorageError, StorageFull
from edge_rag.storage.migrations import CHECKSUMS_SINCE, migrate

RESERVED_BYTES: Final = 8
"""Bytes that the checksum takes of each page."""

_loading = threading.Lock()
_VFS: Final = "cksmvfs"


def load_page_checksums() -> None:
    """Registers the checksum VFS for all connections opened from now on; idempotent."""
    with _loading:
        if _VFS in apsw.vfs_names():
            return
        loader = apsw.Connection(":memory:")
        try:
            loader.enable_load_extension(True)
            loader.load_extension(sqlite_extra.path("cksumvfs"))
        finally:
            loader.close()


def reserve_checksums(connection: apsw.Connection) -> None:
    """Reserves space for checksums in a database without them; existing pages are rewritten in one transaction.

    Needs as much memory as the database is large.
    """
    connection.reserve_bytes(reserve=RESERVED_BYTES)
    if connection.pragma("page_count"):
        # The VFS learns from the first page that the database has checksums. Pages spilled from the cache before that
        # page is written would have none.
        connection.pragma("cache_spill", "OFF")
        connection.pragma("journal_mode", "DELETE")
        connection.execute("VACUUM")
        connection.pragma("cache_spill", "ON")


def vacuum_into(connection: apsw.Connection, path: Path) -> None:
    """Writes a compact copy of a database at one moment, with a checksum on every page.

    Pages that SQLite spills from its cache during the copy are written before the first page, from which the VFS learns
    that the database has checksums, so they have none. Every page is therefore written through the VFS once more.

    Args:
        connection: The database; must have checksums.
        path: The copy, synced; must not exist.

    Raises:
        apsw.Error: SQLite could not write the copy.
        OSError: The file system could not.
    """
    connection.execute("VACUUM INTO ?", (str(path),))
    page_bytes = connection.pragma("page_size")
    checked = apsw.VFSFile(_VFS, str(path), [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        with path.open("rb") as plain:
            at = 0
            while page := plain.read(page_bytes):
                checked.xWrite(page, at)
                at += len(page)
            os.fsync(plain.fileno())
    finally:
        checked.xClose()


_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_ORDERS = {0x377F0682: "<u4", 0x377F0683: ">u4"}
_PAGE_SIZES = frozenset(1 << power for power in range(9, 17))
_USUAL_PAGE_BYTES = 4096
_WORD = 0xFFFFFFFF


def require_whole_log(database: Path) -> None:
    """Refuses a log that is damaged before committed transactions; a log with an interrupted write at its end passes.

    Args:
        database: Path of the database; no connection to it is open.

    Raises:
        StorageCorrupt: Committed transactions follow the damage.
    """
    path = database.with_name(database.name + "-wal")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        if _is_damaged(file):
            raise StorageCorrupt(
                f"{path} is damaged before documents that were acknowledged; restore a backup with `edge-rag restore`, "
                f"or move the file away to continue without the documents in it"
            )


def _is_damaged(file: BinaryIO) -> bool:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return False
    magic, _, stated_bytes, _, *log_salts, first, second = _HEADER.unpack(header)
    order = _ORDERS.get(magic, "<u4")
    page_bytes = stated_bytes if stated_bytes in _PAGE_SIZES else _USUAL_PAGE_BYTES
    header_is_valid = magic in _ORDERS and _sum(header[:24], order, (0, 0)) == (first, second)
    previous, damaged = (first, second), not header_is_valid
    while len(frame := file.read(_FRAME.size + page_bytes)) == _FRAME.size + page_bytes:
        _, commit, *salts, first, second = _FRAME.unpack_from(frame)
        # The salts of a damaged header prove nothing, but a header is synced before a frame is written after it.
        same_log = salts == log_salts
        is_valid = (same_log or not header_is_valid) and _sum(frame[:8] + frame[_FRAME.size :], order, previous) == (
            first,
            second,
        )
        if damaged and commit and (is_valid or (same_log and not header_is_valid)):
            return True
        damaged |= not is_valid
        previous = first, second
    return False


def _sum(data: bytes, order: str, start: tuple[int, int]) -> tuple[int, int]:
    first, second = start
    words = np.frombuffer(data, dtype=order).tolist()
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _WORD
        second = (second + odd + first) & _WORD
    return first, second


_log = structlog.get_logger(__name__)
_BUSY_MS: Final = 30_000
_CHECKPOINT_BUSY_MS: Final = 200


class Database:
    """A SQLite database in WAL mode with ``synchronous=FULL``: committed transactions survive a loss of power.

    After each write the log is checkpointed and truncated, unless a reader blocks that for long; the next write tries
    again. Removed text is then in no log either, and no acknowledged transaction depends on the end of the log, where a
    flipped byte looks like an interrupted write. SQLite overwrites what it frees (``secure_delete``). A copy left in
    the unused part of a page, when SQLite moved a row to another page, stays until that page is written again.

    May be used from any thread. Writers wait for each other; readers do not wait.
    """

    def __init__(self, path: Path) -> None:
        """Opens the database; creates or migrates it if necessary.

        Raises:
            StorageError: It cannot be opened, or a newer version wrote it.
            StorageCorrupt: It is damaged.
        """
        self._path = path
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._connections: dict[threading.Thread, apsw.Connection] = {}
        self._stale: set[apsw.Connection] = set()
        self._closed = False
        load_page_checksums()
        require_whole_log(path)
        with self.reading() as connection:
            self._require_checksums(connection)
            migrate(connection)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Yields this thread's connection; every statement sees what is committed when it starts.

        Raises:
            StorageError: SQLite failed; the subclass gives the cause.
        """
        with self._translating():
            yield self._connection()

    @contextmanager
    def snapshot(self) -> Iterator[apsw.Connection]:
        """Yields this thread's connection in a read transaction: all statements see one state.

        Raises:
            StorageError: SQLite failed; the subclass gives the cause.
        """
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """Yields this thread's connection in a write transaction: durable after the block, rolled back on an error.

        Raises:
            StorageError: SQLite failed; the subclass gives the cause. Nothing was written.
        """
        with self._writing:
            with self._transaction("BEGIN IMMEDIATE") as connection:
                yield connection
            self._checkpoint(connection)

    def close(self) -> None:
        """Closes all connections; idempotent. No thread may use one any more."""
        with self._lock:
            self._closed = True
            while self._connections:
                _, connection = self._connections.popitem()
                connection.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[apsw.Connection]:
        with self._translating():
            connection = self._connection()
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _connection(self) -> apsw.Connection:
        thread = threading.current_thread()
        with self._lock:
            if self._closed:
                raise StorageError("the data directory is closed")
            connection = self._connections.get(thread)
            if connection is not None and connection in self._stale:
                self._stale.discard(connection)
                self._connections.pop(thread).close()
                connection = None
            if connection is None:
                for ended in [other for other in self._connections if not other.is_alive()]:
                    self._connections.pop(ended).close()
                connection = self._connections[thread] = self._open()
        return connection

    def _open(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path), statementcachesize=256)
        try:
            connection.set_busy_timeout(_BUSY_MS)
            if connection.pragma("page_count") == 0:
                reserve_checksums(connection)
            for name, value in (
                ("journal_mode", "WAL"),
                ("synchronous", "FULL"),
                ("foreign_keys", "ON"),
                ("trusted_schema", "OFF"),
                ("secure_delete", "ON"),
            ):
                connection.pragma(name, value)
        except BaseException:
            connection.close()
            raise
        return connection

    def _require_checksums(self, connection: apsw.Connection) -> None:
        if connection.reserve_bytes() == RESERVED_BYTES:
            return
        if connection.pragma("user_version") >= CHECKSUMS_SINCE:
            raise self._corrupt("its pages have no checksums")
        _log.info("adding checksums to the pages of the database", database=str(self._path))
        reserve_checksums(connection)
        connection.pragma("journal_mode", "WAL")

    def _checkpoint(self, connection: apsw.Connection) -> None:
        """Checkpoints the log into the database. A failure here does not fail the committed transaction."""
        try:
            connection.set_busy_timeout(_CHECKPOINT_BUSY_MS)
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            finally:
                connection.set_busy_timeout(_BUSY_MS)
        except apsw.BusyError:
            return  # a reader still needs the log; the next write tries again
        except apsw.Error as error:
            self._reopen_all()
            _log.error("the log could not be checkpointed", error=str(self._translated(error)))

    def _reopen_all(self) -> None:
        """Makes every thread reopen its connection: after a failed write or sync SQLite's state is not certain."""
        with self._lock:
            self._stale.update(self._connections.values())

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            if isinstance(error, apsw.IOError):
                self._reopen_all()
            raise self._translated(error) from error

    def _translated(self, error: apsw.Error) -> StorageError:
        if isinstance(error, apsw.FullError):
            return StorageFull(f"no space is left for {self._path}; free some space and try again, nothing is lost")
        if _extended(error) == apsw.SQLITE_IOERR_DATA:
            return self._corrupt("the checksum of a page is wrong")
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            return self._corrupt(str(error))
        if isinstance(error, apsw.IOError):
            return StorageError(
                f"{self._path}: the disk failed ({error}); nothing that was acknowledged is lost. Check the disk and "
                "the system log, then try again"
            )
        return StorageError(f"{self._path} failed: {error}")

    def _corrupt(self, problem: str) -> StorageCorrupt:
        return StorageCorrupt(
            f"{self._path} is damaged ({problem}); stop the daemon, then restore a backup with `edge-rag restore`, or "
            "move the file away and ingest the documents again"
        )


def _extended(error: apsw.Error) -> int:
    return int(getattr(error, "extendedresult", 0))
