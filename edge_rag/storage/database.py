"""The SQLite database: durable commits, one connection per thread, page checksums, and checks of the files at start.

Page checksums: SQLite's checksum VFS reserves eight bytes at the end of each page, writes the checksum with the page
and compares it on every read, in the database and in its log. A flipped byte in text, vectors, full text or B-trees
is therefore an error, never a different answer. Without checksums SQLite notices only what breaks the structure of
a B-tree.

Checks at start: SQLite takes an empty file for a new database, drops what follows a flipped byte in its log, and finds
damaged pages only when it comes by. So the files are looked over before SQLite opens them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import apsw
import structlog
from apsw import sqlite_extra

from edge_rag.errors import StorageCorrupt, StorageError, StorageFull, StorageReadOnly
from edge_rag.storage.migrations import APPLICATION_ID, CHECKSUMS_SINCE, Progress, migrate, register_terms
from edge_rag.storage.recovery.pages import RESERVED_BYTES, PageReader, read_log
from edge_rag.storage.reserve import Reserve

ADVICE: Final = (
    "stop the daemon, then save what is whole with `edge-rag doctor --repair`, or restore a backup with "
    "`edge-rag restore --replace`"
)
"""What to do about a damaged database."""

_TRACES: Final = ("spool", "vectors", "kv")
"""Files that a data directory has beside its database from its first start on."""

_loading = threading.Lock()
_VFS: Final = "cksmvfs"
_KEPT_STATEMENTS: Final = 256


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


def connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), statementcachesize=_KEPT_STATEMENTS)
    register_terms(connection)
    return connection


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


def require_whole_log(database: Path) -> None:
    """Refuses a log that is damaged before committed transactions; a log with an interrupted write at its end passes.

    Raises:
        StorageCorrupt: Committed transactions follow the damage.
    """
    path = _log_of(database)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        if read_log(file).is_damaged:
            raise StorageCorrupt(f"{path} is damaged before documents that were acknowledged; {ADVICE}")


def require_whole_database(database: Path) -> None:
    """Finds out why a file cannot be opened as the database of a library: no database, another one, or damaged pages.

    Raises:
        StorageError: It belongs to another program, or cannot be read.
    """
    try:
        size = database.stat().st_size if database.exists() else None
        log_size = _log_of(database).stat().st_size if _log_of(database).exists() else 0
        if not size:
            _require_new(database, "missing" if size is None else "empty", log_size)
            return
        with PageReader(database) as reader:
            header = reader.header
            if header is None:
                raise corrupt(database, "it does not start like a database of SQLite")
            is_foreign = header.application not in (0, APPLICATION_ID) or (
                # The first migration of a library sets the number of the schema together with its tables.
                header.schema == 0 and next(reader.rows(), None) is not None
            )
            if is_foreign and reader.page(1) is not None:
                raise StorageError(
                    f"{database} belongs to another program (application id {header.application:#x}, schema "
                    f"{header.schema}); name another data directory, or move the file away"
                )
            if not log_size and reader.page(1) is not None and size < header.pages * header.page_bytes:
                raise corrupt(database, f"{size:,} of {header.pages * header.page_bytes:,} bytes are there")
            damaged = sum(1 for _ in reader.damaged())
    except OSError as error:
        raise StorageError(f"{error.filename} could not be read: {error.strerror}") from error
    if damaged:
        raise corrupt(database, f"the checksums of {damaged:,} of {reader.count:,} pages are wrong")


def _require_new(database: Path, state: str, log_size: int) -> None:
    traces = [name for name in _TRACES if (database.parent / name).exists()]
    traces += [_log_of(database).name] * bool(log_size)
    if traces:
        raise corrupt(database, f"it is {state}, while {' and '.join(traces)} of its documents are there")


def corrupt(database: Path, problem: str) -> StorageCorrupt:
    return StorageCorrupt(f"{database} is damaged ({problem}); {ADVICE}")


def _log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


_log = structlog.get_logger(__name__)
_BUSY_MS: Final = 30_000
_CHECKPOINT_BUSY_MS: Final = 200
_CHECKPOINT_RETRY_S: Final = 5.0

_T = TypeVar("_T")


class Database:
    """A SQLite database in WAL mode with ``synchronous=FULL``: committed transactions survive a loss of power.

    After each write the log is checkpointed and truncated. Removed text is then in no log either, and no acknowledged
    transaction depends on the end of the log, where a flipped byte looks like an interrupted write. Where a reader
    still needs the log, that is made up for when the reader has finished: a reader of this process does it, and for
    readers of others it is tried every few seconds, and at the end. SQLite overwrites what it frees
    (``secure_delete``). A copy left in the unused part of a page, when SQLite moved a row to another page, stays until
    that page is written again.

    May be used from any thread. Writers wait for each other; readers do not wait.
    """

    def __init__(self, path: Path, on_progress: Progress | None = None) -> None:
        """Opens the database; creates or migrates it if necessary."""
        self._path = path
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._connections: dict[threading.Thread, apsw.Connection] = {}
        self._stale: set[apsw.Connection] = set()
        self._closed = False
        self._refusal: str | None = None
        self._retry: threading.Timer | None = None
        self._reserve = Reserve(path.with_name("reserve"))
        load_page_checksums()
        require_whole_log(path)
        require_whole_database(path)
        try:
            with self.reading() as connection:
                self._require_checksums(connection)
                migrate(connection, on_progress)
        except BaseException:
            self.close()
            raise
        self._reserve.fill()

    def refuse_writes(self, reason: str) -> None:
        self._refusal = reason

    def require_whole(self) -> None:
        """Refuses uses that a library in recovery mode does not allow.

        Raises:
            StorageReadOnly: The library is in recovery mode.
        """
        if self._refusal is not None:
            raise StorageReadOnly(self._refusal)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Yields this thread's connection; every statement sees what is committed when it starts."""
        with self._translating():
            yield self._connection()
        if self._retry is not None:
            self._catch_up()

    @contextmanager
    def snapshot(self) -> Iterator[apsw.Connection]:
        """Yields this thread's connection in a read transaction: all statements see one state."""
        with self._transaction("BEGIN") as connection:
            yield connection
        if self._retry is not None:
            self._catch_up()

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """Yields this thread's connection in a write transaction: durable after the block, rolled back on an error."""
        self.require_whole()
        with self._writing:
            try:
                with self._transaction("BEGIN IMMEDIATE") as connection:
                    yield connection
            finally:
                # Also after a failure: the remains of a transaction in the log take space that a full disk lacks.
                written = self._log_bytes()
                self._checkpoint(_CHECKPOINT_BUSY_MS)
            self._reserve.fill(written)

    def remove(self, work: Callable[[apsw.Connection], _T]) -> _T:
        """Runs a write transaction that removes something. On a full disk it takes the space kept for that.

        Args:
            work: Runs the statements; called once more if the disk was full.
        """
        try:
            with self.writing() as connection:
                return work(connection)
        except StorageFull:
            with self._writing:
                released = self._reserve.release()
            if not released:
                raise
        with self.writing() as connection:
            return work(connection)

    def close(self) -> None:
        """Checkpoints the log and closes all connections; idempotent. No thread may use one any more."""
        if self._retry is not None:
            self._catch_up()
        with self._lock:
            if self._retry is not None:
                self._retry.cancel()
                self._retry = None
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
        connection = connect(self._path)
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
            raise corrupt(self._path, "its pages have no checksums")
        _log.info("adding checksums to the pages of the database", database=str(self._path))
        reserve_checksums(connection)
        connection.pragma("journal_mode", "WAL")

    def _checkpoint(self, busy_ms: int) -> None:
        """Checkpoints the log into the database. A failure here does not fail the committed transaction.

        Args:
            busy_ms: How long to wait for readers, milliseconds. ``_writing`` is held.
        """
        if self._closed:
            return
        try:
            connection = self._connection()
            connection.set_busy_timeout(busy_ms)
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            finally:
                connection.set_busy_timeout(_BUSY_MS)
        except (apsw.BusyError, apsw.LockedError):
            self._schedule_catch_up()
        except apsw.Error as error:
            self._reopen_all()
            _log.error("the log could not be checkpointed", error=str(self._translated(error)))
        else:
            with self._lock:
                if self._retry is not None:
                    self._retry.cancel()
                    self._retry = None

    def _schedule_catch_up(self) -> None:
        with self._lock:
            if self._retry is None and not self._closed:
                self._retry = threading.Timer(_CHECKPOINT_RETRY_S, self._retry_catch_up)
                self._retry.daemon = True
                self._retry.start()

    def _retry_catch_up(self) -> None:
        with self._lock:
            self._retry = None
        self._catch_up()

    def _catch_up(self) -> None:
        if self._writing.acquire(blocking=False):
            try:
                self._checkpoint(0)
            finally:
                self._writing.release()

    def _log_bytes(self) -> int:
        try:
            return _log_of(self._path).stat().st_size
        except OSError:
            return 0

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
            return corrupt(self._path, "the checksum of a page is wrong")
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            return corrupt(self._path, str(error))
        if isinstance(error, apsw.IOError):
            return StorageError(
                f"{self._path}: the disk failed ({error}); nothing that was acknowledged is lost. Check the disk and "
                "the system log, then try again"
            )
        return StorageError(f"{self._path} failed: {error}")


def _extended(error: apsw.Error) -> int:
    return int(getattr(error, "extendedresult", 0))
