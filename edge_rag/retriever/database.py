"""SQLite as the store needs it: durable commits, one connection a thread, and errors that say what to do."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge_rag.errors import StorageCorrupt, StorageError, StorageFull
from edge_rag.retriever.schema import migrate

_BUSY_SECONDS = 30.0
_CORRUPT = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))


class Database:
    """A SQLite database in WAL mode with ``synchronous=FULL``: what was committed survives a loss of power.

    May be used from any thread; writers wait for each other, readers for nobody.
    """

    def __init__(self, path: Path) -> None:
        """Opens the database, making it or bringing it up to date as needed.

        Raises:
            StorageError: It cannot be opened, is damaged, or was written by a newer version.
        """
        self._path = path
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._connections: dict[threading.Thread, sqlite3.Connection] = {}
        self._closed = False
        with self.reading() as connection:
            migrate(connection)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lends this thread's connection; every statement sees what is committed when it starts.

        Raises:
            StorageError: SQLite failed; the subclass says how.
        """
        with self._translating():
            yield self._connection()

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Lends this thread's connection in a read transaction: all statements see one state.

        Raises:
            StorageError: SQLite failed; the subclass says how.
        """
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Lends this thread's connection in a write transaction: committed and durable on leaving, undone on an error.

        Raises:
            StorageError: SQLite failed; the subclass says how. Nothing was written.
        """
        with self._writing, self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def close(self) -> None:
        """Closes all connections; idempotent. No thread may be using one."""
        with self._lock:
            self._closed = True
            while self._connections:
                _, connection = self._connections.popitem()
                connection.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
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

    def _connection(self) -> sqlite3.Connection:
        thread = threading.current_thread()
        with self._lock:
            if self._closed:
                raise StorageError("the data directory is closed")
            connection = self._connections.get(thread)
            if connection is None:
                for gone in [other for other in self._connections if not other.is_alive()]:
                    self._connections.pop(gone).close()
                connection = self._connections[thread] = self._open()
        return connection

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "trusted_schema = OFF"):
                connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: sqlite3.Error) -> StorageError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return StorageFull(f"no room is left for {self._path}; free some space and try again, nothing is lost")
        if code in _CORRUPT:
            return StorageCorrupt(
                f"{self._path} is damaged ({error}); stop the daemon, move the file away and restore a copy of it, or "
                "ingest the documents again"
            )
        return StorageError(f"{self._path} failed: {error}")
