"""SQLite as the store needs it: durable commits, one connection a thread, and errors that say what to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw
import structlog

from edge_rag.errors import StorageCorrupt, StorageError, StorageFull
from edge_rag.storage.migrations import CHECKSUMS_SINCE, migrate
from edge_rag.storage.page_checksums import RESERVED_BYTES, load_page_checksums, reserve_checksums
from edge_rag.storage.write_ahead_log import require_whole_log

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
