"""SQLite as the store needs it: durable commits, one connection a thread, and errors that say what to do.

A checksum on every page of the database, checked whenever a page is read.

SQLite's own checksum VFS does it: eight bytes at the end of each page, written with the page and compared on every
read, in the database as in its log. So a byte that flips on the disk, wherever in text, vectors, full text or the trees
between them, is an error and never another answer. SQLite without it notices only what breaks the form of a tree.

SQLite's write-ahead log, looked over before SQLite takes it.

SQLite believes the log up to the first frame whose checksum is wrong, because that is how a write that was cut off
looks. A byte that flipped in a frame further up looks the same to it, and it would drop every transaction from there on
without a word. The difference: behind a cut there is nothing of the same log, behind a flipped byte its frames go on. A
frame's checksum continues the one stored in the frame before, so the frames behind the damage can still be told to be
whole.

Form of the log: https://sqlite.org/fileformat2.html#the_write_ahead_log
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
"""What the checksum takes of each page."""

_loading = threading.Lock()
_VFS: Final = "cksmvfs"


def load_page_checksums() -> None:
    """Puts the checksum VFS in front of the file system for all connections opened from now on; idempotent."""
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
    """Gives a database that has no page yet, or pages without checksums, room for them; older ones are rewritten.

    Rewriting is one transaction: interrupted, it never was. It takes as much memory as the database is large.
    """
    connection.reserve_bytes(reserve=RESERVED_BYTES)
    if connection.pragma("page_count"):
        # The VFS learns from the first page that there are checksums. What spilled from the cache would be written
        # before that page, and without any.
        connection.pragma("cache_spill", "OFF")
        connection.pragma("journal_mode", "DELETE")
        connection.execute("VACUUM")
        connection.pragma("cache_spill", "ON")


def vacuum_into(connection: apsw.Connection, path: Path) -> None:
    """Writes a compact copy of a database, of one moment, with a checksum on every page.

    What SQLite spills from its cache while it makes the copy is written before the first page, from which the VFS
    learns that there are checksums, and so has none. Hence every page is written through the VFS once more.

    Args:
        connection: The database; must have checksums.
        path: The copy; must not exist. Synced.

    Raises:
        apsw.Error: The copy could not be made.
        OSError: Likewise.
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
    """Refuses a log with damage in front of transactions that were committed; a log that was cut off passes.

    Args:
        database: Path of the database; no connection is open on it.

    Raises:
        StorageCorrupt: Committed transactions lie behind damage.
    """
    path = database.with_name(database.name + "-wal")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        if _is_damaged(file):
            raise StorageCorrupt(
                f"{path} is damaged in front of documents that were acknowledged; restore a backup with `edge-rag "
                f"restore`, or move the file away to go on without what it held"
            )


def _is_damaged(file: BinaryIO) -> bool:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return False
    magic, _, claimed_bytes, _, *log_salts, first, second = _HEADER.unpack(header)
    order = _ORDERS.get(magic, "<u4")
    page_bytes = claimed_bytes if claimed_bytes in _PAGE_SIZES else _USUAL_PAGE_BYTES
    header_agrees = magic in _ORDERS and _sum(header[:24], order, (0, 0)) == (first, second)
    previous, damaged = (first, second), not header_agrees
    while len(frame := file.read(_FRAME.size + page_bytes)) == _FRAME.size + page_bytes:
        _, commit, *salts, first, second = _FRAME.unpack_from(frame)
        # A damaged header's salts are no measure, but a header is synced before a frame is written behind it.
        ours = salts == log_salts
        agrees = (ours or not header_agrees) and _sum(frame[:8] + frame[_FRAME.size :], order, previous) == (
            first,
            second,
        )
        if damaged and commit and (agrees or (ours and not header_agrees)):
            return True
        damaged |= not agrees
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
    """A SQLite database in WAL mode with ``synchronous=FULL``: what was committed survives a loss of power.

    Every page has a checksum. Each write is carried over from the log into the database and the log cut to nothing,
    unless a reader is in the way for long: so what was removed is in no log either, once the next write finds the way
    clear, and no acknowledged transaction depends on the one place where a flipped byte looks like a write that was cut
    off, the end of the log. What SQLite frees it overwrites; a copy that it left in the unused part of a page, when it
    moved a row to another one, stays until that page is written anew.

    May be used from any thread; writers wait for each other, readers for nobody.
    """

    def __init__(self, path: Path) -> None:
        """Opens the database, making it or bringing it up to date as needed.

        Raises:
            StorageError: It cannot be opened or was written by a newer version; StorageCorrupt if it is damaged.
        """
        self._path = path
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._connections: dict[threading.Thread, apsw.Connection] = {}
        self._distrusted: set[apsw.Connection] = set()
        self._closed = False
        load_page_checksums()
        require_whole_log(path)
        with self.reading() as connection:
            self._require_checksums(connection)
            migrate(connection)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Lends this thread's connection; every statement sees what is committed when it starts.

        Raises:
            StorageError: SQLite failed; the subclass says how.
        """
        with self._translating():
            yield self._connection()

    @contextmanager
    def snapshot(self) -> Iterator[apsw.Connection]:
        """Lends this thread's connection in a read transaction: all statements see one state.

        Raises:
            StorageError: SQLite failed; the subclass says how.
        """
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """Lends this thread's connection in a write transaction: committed and durable on leaving, undone on an error.

        Raises:
            StorageError: SQLite failed; the subclass says how. Nothing was written.
        """
        with self._writing:
            with self._transaction("BEGIN IMMEDIATE") as connection:
                yield connection
            self._carry_over(connection)

    def close(self) -> None:
        """Closes all connections; idempotent. No thread may be using one."""
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
            if connection is not None and connection in self._distrusted:
                self._distrusted.discard(connection)
                self._connections.pop(thread).close()
                connection = None
            if connection is None:
                for gone in [other for other in self._connections if not other.is_alive()]:
                    self._connections.pop(gone).close()
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
        _log.info("giving the database's pages checksums", database=str(self._path))
        reserve_checksums(connection)
        connection.pragma("journal_mode", "WAL")

    def _carry_over(self, connection: apsw.Connection) -> None:
        """Moves what was committed from the log into the database; what fails here fails nothing that was committed."""
        try:
            connection.set_busy_timeout(_CHECKPOINT_BUSY_MS)
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            finally:
                connection.set_busy_timeout(_BUSY_MS)
        except apsw.BusyError:
            return  # a reader needs the log a while longer; the next write tries again
        except apsw.Error as error:
            self._distrust()
            _log.error("the log could not be carried over into the database", error=str(self._translated(error)))

    def _distrust(self) -> None:
        """Has every thread open its connection anew: after a failed write or sync, what SQLite holds is not certain."""
        with self._lock:
            self._distrusted.update(self._connections.values())

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            if isinstance(error, apsw.IOError):
                self._distrust()
            raise self._translated(error) from error

    def _translated(self, error: apsw.Error) -> StorageError:
        if isinstance(error, apsw.FullError):
            return StorageFull(f"no room is left for {self._path}; free some space and try again, nothing is lost")
        if _extended(error) == apsw.SQLITE_IOERR_DATA:
            return self._corrupt("the checksum of a page is wrong")
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            return self._corrupt(str(error))
        if isinstance(error, apsw.IOError):
            return StorageError(
                f"{self._path}: the disk failed ({error}); nothing that was acknowledged is lost. Check the disk and "
                "the system's log, then try again"
            )
        return StorageError(f"{self._path} failed: {error}")

    def _corrupt(self, problem: str) -> StorageCorrupt:
        return StorageCorrupt(
            f"{self._path} is damaged ({problem}); stop the daemon, then restore a backup with `edge-rag restore`, or "
            "move the file away and ingest the documents again"
        )


def _extended(error: apsw.Error) -> int:
    return int(getattr(error, "extendedresult", 0))
