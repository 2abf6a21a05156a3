"""Token vectors of passages on disk, so that a reranker need not encode passages that ingest has encoded.

A cache of the encoder like the vector indexes: it may be removed at any time and is part of no backup. Missing passages
are encoded when they are asked for, and kept. It is a SQLite database of its own, ``token-vectors.sqlite3``, with a
checksum on each page. The vectors of a passage also have a digest together with the passage they belong to, so that
damage makes a passage one that is not kept, and never another passage's vectors. A file of another encoder, form or
schema, and one that SQLite finds damaged, is replaced by an empty one.

The file has a budget. Ingest fills it and evicts nothing. Passages that are asked for are kept in the place of those
that are asked for least, where earlier requests count less (by half for each ``_HALF_LIFE`` passages).
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import exp2, log2
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

import apsw
import numpy as np
import structlog
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId
from edge_rag.core.monitoring.resources import TokenVectorUse
from edge_rag.core.passage import Passage
from edge_rag.core.ports import Embedder
from edge_rag.errors import StorageError
from edge_rag.reranker.candidate import model_text
from edge_rag.runtime.encoder.text_encoder import FORM, TokenVectors, pack, unpack
from edge_rag.storage.backup import TOKEN_VECTOR_FILES, TOKEN_VECTORS
from edge_rag.storage.database import load_page_checksums, reserve_checksums

_log = structlog.get_logger(__name__)

_SCHEMA: Final = (
    "CREATE TABLE made (by TEXT NOT NULL)",
    "CREATE TABLE passages (id INTEGER PRIMARY KEY, chunk INTEGER, text BLOB NOT NULL, asked REAL NOT NULL)",
    "CREATE UNIQUE INDEX passages_of_chunks ON passages (chunk, text)",
    "CREATE INDEX least_asked ON passages (asked, id)",
    "CREATE TABLE vectors (id INTEGER PRIMARY KEY, digest BLOB NOT NULL, packed BLOB NOT NULL)",
)
_PRAGMAS: Final = (
    ("journal_mode", "WAL"),
    ("synchronous", "NORMAL"),
    ("secure_delete", "ON"),
    ("trusted_schema", "OFF"),
    ("cell_size_check", "ON"),
    ("wal_autocheckpoint", 1024),
    ("journal_size_limit", 8 << 20),
)
_BUSY_MS: Final = 10_000
_ROWS: Final = 500
_HALF_LIFE: Final = 20_000
_MOST_PENDING: Final = 1024
_SLACK_BYTES: Final = 64 << 10
"""Room that a transaction leaves below the budget for inner pages of the trees."""

_DAMAGE: Final = (apsw.CorruptError, apsw.NotADBError, apsw.IOError)


_READ: Final = "SELECT id, digest, packed FROM passages JOIN vectors USING (id) WHERE chunk = ? AND text = ?"

_T = TypeVar("_T")

_MOST_BYTES: Final = 1 << 30
_SHARE: Final = 16


def default_budget(folder: Path) -> int:
    """Returns the budget without a setting: a sixteenth of the space that is free but for the file, at most 1 GiB."""
    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    own = (folder / TOKEN_VECTORS).stat().st_size if (folder / TOKEN_VECTORS).exists() else 0
    return min(_MOST_BYTES, (shutil.disk_usage(existing).free + own) // _SHARE)


def remove_token_vectors(folder: Path) -> None:
    """Removes the file of a data directory.

    Raises:
        StorageError: It could not be removed.
    """
    for name in TOKEN_VECTOR_FILES:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"{folder / name} could not be removed: {error.strerror}") from error


class PassageEmbedder(Embedder, Protocol):
    """An embedder whose runs over passages also give their token vectors."""

    def embed_passages(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], list[bytes]]:
        """Returns what ``embed`` returns, and the packed token vectors of each passage.

        Raises:
            InferenceFailed: The model could not be run.
        """
        ...


class TokenVectorFile:
    """Implements the reranker's ``KeptVectors``. May be used from any thread. Its failures are logged and fail nobody.

    Args:
        budget_bytes: Most bytes of the file; 0 removes it.
    """

    def __init__(
        self,
        folder: Path,
        embedder: PassageEmbedder,
        budget_bytes: int,
        stored: Callable[[Sequence[ChunkId]], set[ChunkId]],
    ) -> None:
        self._path = folder / TOKEN_VECTORS
        self._embedder = embedder
        self._budget = budget_bytes
        self._stored = stored
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._reader: apsw.Connection | None = None
        self._writer: apsw.Connection | None = None
        self._present: set[ChunkId] = set()
        self._clock = 0.0
        self._asked: Counter[int] = Counter()
        load_page_checksums()
        if budget_bytes <= 0:
            remove_token_vectors(self._path.parent)
            return
        try:
            self._open()
        except (apsw.Error, ValueError) as error:
            _log.info("the file of token vectors is made anew", reason=str(error))
            self._renew()
        self.forget_removed()

    def close(self) -> None:
        """Records the requested passages and closes the file; idempotent."""
        self._change(self._note_asked)
        with self._writing, self._reading:
            self._close()

    def use(self) -> TokenVectorUse:
        return TokenVectorUse(len(self._present), self._change(_used_bytes) or 0, max(0, self._budget))

    def __contains__(self, passage: Passage) -> bool:
        """Whether vectors of the passage's chunk are kept; any thread, at once."""
        return passage.chunk_id in self._present

    def read(self, passages: Sequence[Passage]) -> list[TokenVectors | None]:
        """Returns the vectors of each passage, in order; None where they are not kept or damaged."""
        rows: list[tuple[int, bytes, bytes] | None] = [None] * len(passages)
        texts = [_digest(model_text(passage).encode("utf-8", "surrogatepass")) for passage in passages]
        try:
            with self._reading:
                if self._reader is not None:
                    keys = zip((passage.chunk_id for passage in passages), texts, strict=True)
                    rows = [self._reader.execute(_READ, key).fetchone() for key in keys]
        except apsw.Error as error:
            self._failed(error)
        found = [None if row is None else self._checked(text, *row[1:]) for row, text in zip(rows, texts, strict=True)]
        damaged = [row[0] for row, vectors in zip(rows, found, strict=True) if row is not None and vectors is None]
        with self._reading:
            self._asked.update(row[0] for row in rows if row is not None)
            many = len(self._asked) >= _MOST_PENDING
        if damaged:
            self._change(lambda connection: _delete(connection, damaged))
        if many:
            self._change(self._note_asked)
        return found

    def write(self, passages: Sequence[Passage], vectors: Sequence[TokenVectors]) -> None:
        """Keeps vectors of passages that were asked for, in the place of those that are asked for least."""
        packed = [pack(each) for each in vectors]

        def keep(connection: apsw.Connection) -> None:
            self._note_asked(connection)
            try:  # a passage that was removed since it was read is not kept
                stored = self._stored([passage.chunk_id for passage in passages])
            except StorageError:
                return
            if not self._make_room(connection, sum(map(len, packed))):
                return
            for passage, each in zip(passages, packed, strict=True):
                text = _digest(model_text(passage).encode("utf-8", "surrogatepass"))
                same = connection.execute(
                    "SELECT id FROM passages WHERE chunk = ? AND text = ?", (passage.chunk_id, text)
                ).fetchall()
                _delete(connection, [row for (row,) in same])
                if passage.chunk_id in stored:
                    _insert(connection, passage.chunk_id, text, _raised(0.0, 1, self._clock), each)
                    self._present.add(passage.chunk_id)

        self._change(keep)

    def ingesting(self) -> IngestedVectors:
        return IngestedVectors(self, self._embedder)

    def remove(self, chunks: Sequence[ChunkId]) -> None:
        """Removes the vectors of chunks, from the file's log, too."""
        kept = [chunk for chunk in chunks if chunk in self._present]
        if not kept:
            return

        def delete(connection: apsw.Connection) -> None:
            for first in range(0, len(kept), _ROWS):
                part = kept[first : first + _ROWS]
                found = connection.execute(f"SELECT id FROM passages WHERE chunk IN ({_marks(part)})", part).fetchall()
                _delete(connection, [row for (row,) in found])

        self._change(delete)
        self._present.difference_update(kept)
        with suppress(apsw.Error), self._writing:
            if self._writer is not None:
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def forget_removed(self) -> None:
        chunks = sorted(self._present)
        stored: set[ChunkId] = set()
        for first in range(0, len(chunks), _ROWS):
            stored |= self._stored(chunks[first : first + _ROWS])
        self.remove([chunk for chunk in chunks if chunk not in stored])

    def stage(self, texts: Sequence[bytes], packed: Sequence[bytes]) -> list[int]:
        """Writes vectors of passages that are not stored yet, if there is room.

        Returns:
            Their rows; none without room.
        """

        def insert(connection: apsw.Connection) -> list[int]:
            if _used_bytes(connection) + sum(map(len, packed)) + _SLACK_BYTES > self._budget:
                return []
            return [_insert(connection, None, text, 0.0, each) for text, each in zip(texts, packed, strict=True)]

        return self._change(insert) or []

    def admit(self, rows: Sequence[tuple[int, ChunkId]]) -> None:
        """Names the chunks, now stored, of rows that ``stage`` returned."""

        def name(connection: apsw.Connection) -> None:
            values = [(chunk, row) for row, chunk in rows]
            connection.executemany("UPDATE OR REPLACE passages SET chunk = ? WHERE id = ?", values)
            self._present.update(chunk for _, chunk in rows)

        self._change(name)

    def discard(self, rows: Sequence[int]) -> None:
        self._change(lambda connection: _delete(connection, rows))

    def _checked(self, text: bytes, digest: bytes, packed: bytes) -> TokenVectors | None:
        """Returns the vectors of a row, or None if they are damaged or those of another text."""
        if digest != _digest(text, packed):
            return None
        try:
            vectors = unpack(packed)
        except ValueError:
            return None
        return vectors if vectors.vectors.shape[1] == self._embedder.dimension else None

    def _open(self) -> None:
        """Opens the file, or makes it."""
        writer = self._writer = _connect(self._path)
        if not writer.pragma("page_count"):
            writer.pragma("auto_vacuum", "INCREMENTAL")
            reserve_checksums(writer)
        for name, value in _PRAGMAS:
            writer.pragma(name, value)
        made_by = f"{self._embedder.name}; {FORM}"
        schema = tuple(sql for (sql,) in writer.execute("SELECT sql FROM sqlite_schema ORDER BY rowid"))
        with _transaction(writer):
            if not schema:
                for statement in _SCHEMA:
                    writer.execute(statement)
                writer.execute("INSERT INTO made VALUES (?)", (made_by,))
            elif schema != _SCHEMA:
                raise ValueError("it has another schema")
            elif writer.execute("SELECT by FROM made").fetchall() != [(made_by,)]:
                raise ValueError("another encoder made its vectors")
            unfinished = writer.execute("SELECT id FROM passages WHERE chunk IS NULL").fetchall()
            _delete(writer, [row for (row,) in unfinished])
            self._make_room(writer, 0)
        writer.execute("PRAGMA incremental_vacuum").fetchall()
        writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._present = {chunk for (chunk,) in writer.execute("SELECT chunk FROM passages")}
        self._clock = max(0.0, (writer.execute("SELECT max(asked) FROM passages").fetchone()[0] or 0.0) - 1.0)
        self._asked.clear()
        self._reader = _connect(self._path)

    def _close(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                with suppress(apsw.Error):
                    connection.close()
        self._reader = self._writer = None

    def _renew(self) -> None:
        with self._writing, self._reading:
            self._close()
            self._present = set()
            try:
                remove_token_vectors(self._path.parent)
                self._open()
            except (apsw.Error, StorageError, ValueError) as error:
                self._close()
                _log.error("no token vectors are kept until the next start", error=str(error))

    def _change(self, work: Callable[[apsw.Connection], _T]) -> _T | None:
        """Runs a transaction; returns None where it failed or there is no file."""
        try:
            with self._writing:
                if self._writer is None:
                    return None
                with _transaction(self._writer):
                    return work(self._writer)
        except apsw.Error as error:
            self._failed(error)
            return None

    def _failed(self, error: apsw.Error) -> None:
        if isinstance(error, _DAMAGE):
            _log.warning("the file of token vectors is damaged and made anew", error=str(error))
            self._renew()
        else:
            _log.warning("token vectors could not be kept", error=str(error))

    def _make_room(self, connection: apsw.Connection, needed: int) -> bool:
        """Removes the vectors that are asked for least until there is room; returns whether there is."""
        while _used_bytes(connection) + needed + _SLACK_BYTES > self._budget:
            least = connection.execute(
                "SELECT id, chunk FROM passages WHERE chunk NOT NULL ORDER BY asked, id LIMIT 16"
            ).fetchall()
            if not least:
                return False
            _delete(connection, [row for row, _ in least])
            self._present.difference_update(chunk for _, chunk in least)
        return True

    def _note_asked(self, connection: apsw.Connection) -> None:
        with self._reading:
            asked, self._asked = self._asked, Counter()
        for row, times in asked.items():
            found = connection.execute("SELECT asked FROM passages WHERE id = ?", (row,)).fetchone()
            if found is not None:
                raised = _raised(found[0], times, self._clock)
                connection.execute("UPDATE passages SET asked = ? WHERE id = ?", (raised, row))
        self._clock += asked.total() / _HALF_LIFE


class IngestedVectors:
    """The token vectors of one document while it is ingested; those not kept at the end are removed."""

    def __init__(self, file: TokenVectorFile, embedder: PassageEmbedder) -> None:
        self._file = file
        self._embedder = embedder
        self._rows: defaultdict[bytes, list[int]] = defaultdict(list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        rows = [row for each in self._rows.values() for row in each]
        if rows:
            self._file.discard(rows)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds passages like ``Embedder.embed``, and stages their token vectors."""
        vectors, packed = self._embedder.embed_passages(texts)
        digests = [_digest(text.encode("utf-8", "surrogatepass")) for text in texts]
        for digest, row in zip(digests, self._file.stage(digests, packed), strict=False):
            self._rows[digest].append(row)
        return vectors

    def keep(self, chunks: Sequence[ChunkId], texts: Sequence[str]) -> None:
        """Keeps the vectors of chunks that were stored."""
        admitted = []
        for chunk, text in zip(chunks, texts, strict=True):
            rows = self._rows.get(_digest(text.encode("utf-8", "surrogatepass")))
            if rows:
                admitted.append((rows.pop(), chunk))
        if admitted:
            self._file.admit(admitted)


def _connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(_BUSY_MS)
    return connection


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _insert(connection: apsw.Connection, chunk: ChunkId | None, text: bytes, asked: float, packed: bytes) -> int:
    connection.execute("INSERT INTO passages (chunk, text, asked) VALUES (?, ?, ?)", (chunk, text, asked))
    row: int = connection.last_insert_rowid()
    connection.execute("INSERT INTO vectors VALUES (?, ?, ?)", (row, _digest(text, packed), packed))
    return row


def _delete(connection: apsw.Connection, rows: Sequence[int]) -> None:
    for table in ("vectors", "passages"):
        connection.executemany(f"DELETE FROM {table} WHERE id = ?", [(row,) for row in rows])


def _used_bytes(connection: apsw.Connection) -> int:
    pages, free, size = (int(connection.pragma(name)) for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size


def _digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


def _marks(values: Sequence[int]) -> str:
    return ",".join("?" * len(values))


def _raised(asked: float, times: int, clock: float) -> float:
    """Returns how much a passage is asked for after it was read: the logarithm of a sum of powers of two.

    Each reading adds 2 to the power of the time then, in half-lives, so that no value changes by the passing of time.

    Args:
        asked: The value before, at least 0; 0 if it was never read.
        clock: Half-lives since the file was made.
    """
    larger = max(asked, clock)
    return larger + log2(exp2(asked - larger) + times * exp2(clock - larger))
