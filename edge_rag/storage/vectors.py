"""Vectors in SQLite, from which indexes are built, and the backend and segment recorded for each collection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import apsw
import numpy as np
from numpy.typing import NDArray

from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.ids import ChunkId
from edge_rag.errors import StorageCorrupt
from edge_rag.storage.database import Database
from edge_rag.storage.statements import (
    COLLECTIONS,
    Collection,
    collection_of,
)

_BATCH_ROWS = 4096
_BATCH_IDS = 500
_CURRENT = "coalesce((SELECT embedder FROM embedders WHERE name = ?), -1)"
# Both ranges are looked up in the index of embedders; an inequality would read every chunk.
_WAITING = (
    f"SELECT chunk FROM chunks WHERE embedder < {_CURRENT} "
    f"UNION ALL SELECT chunk FROM chunks WHERE embedder > {_CURRENT}"
)
# Rows are found by collection, because a collection has fewer than an embedder.
_OF_EMBEDDER = f"+embedder = {_CURRENT}"


class StoredVectors:
    """Reads stored vectors, and records where each collection is indexed. May be used from any thread.

    Vectors of other embedders do not exist here: their chunks are still to be embedded again.
    """

    def __init__(self, database: Database, embedder: str) -> None:
        self._database = database
        self._embedder = embedder

    def counts(self) -> dict[int, int]:
        with self._database.reading() as connection:
            chunks = dict(connection.execute("SELECT collection, count(*) FROM chunks GROUP BY collection").fetchall())
        waiting = self.waiting()
        return {collection: count - waiting.get(collection, 0) for collection, count in chunks.items()}

    def present(self, chunks: Sequence[ChunkId]) -> set[ChunkId]:
        """Returns which of some chunks, at most a few hundred, are stored."""
        with self._database.reading() as connection:
            marks = ",".join("?" * len(chunks))
            rows = connection.execute(f"SELECT chunk FROM chunks WHERE chunk IN ({marks})", tuple(chunks))
            return {ChunkId(chunk) for (chunk,) in rows}

    def waiting(self) -> dict[int, int]:
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT collection, count(*) FROM chunks WHERE chunk IN ({_WAITING}) GROUP BY collection",
                (self._embedder, self._embedder),
            ).fetchall()
        return dict(rows)

    def of(self, collection: int, dimension: int) -> CollectionVectors:
        return CollectionVectors(self._database, self._embedder, collection, dimension)

    def directory(self) -> str:
        with self._database.reading() as connection:
            (found,) = connection.execute("SELECT id FROM directory").fetchone()
        return str(found)

    def collection(self, number: int) -> Collection | None:
        """Returns a collection as it is now, or None if it was removed."""
        with self._database.reading() as connection:
            row = connection.execute(f"{COLLECTIONS} WHERE collection = ?", (number,)).fetchone()
        return None if row is None else collection_of(row)

    def backends(self) -> dict[int, BackendKind]:
        with self._database.reading() as connection:
            rows = connection.execute("SELECT collection, home FROM vector_homes").fetchall()
        return {collection: BackendKind(backend) for collection, backend in rows}

    def record_backend(self, collection: int, backend: BackendKind) -> bool:
        """Records the index backend of a collection; returns whether the collection still exists."""
        with self._database.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO vector_homes (collection, home) "
                "SELECT collection, ? FROM collections WHERE collection = ?",
                (backend.value, collection),
            )
            (exists,) = connection.execute(
                "SELECT EXISTS (SELECT 1 FROM collections WHERE collection = ?)", (collection,)
            ).fetchone()
        return bool(exists)

    def segment(self, collection: int) -> str | None:
        """Returns the name of the segment built from a collection, or None.

        A restored database names the segment built from its own history. A file built from another history, in which
        the same ids may mean other chunks, is therefore never used.
        """
        with self._database.reading() as connection:
            row = connection.execute("SELECT name FROM segments WHERE collection = ?", (collection,)).fetchone()
        return None if row is None else str(row[0])

    def record_segment(self, collection: int, name: str | None) -> bool:
        """Records a collection's segment, None for none; returns whether the collection still exists."""

        def record(connection: apsw.Connection) -> bool:
            connection.execute("DELETE FROM segments WHERE collection = ?", (collection,))
            if name is not None:
                connection.execute(
                    "INSERT INTO segments (collection, name) "
                    "SELECT collection, ? FROM collections WHERE collection = ?",
                    (name, collection),
                )
            (exists,) = connection.execute(
                "SELECT EXISTS (SELECT 1 FROM collections WHERE collection = ?)", (collection,)
            ).fetchone()
            return bool(exists)

        return self._database.remove(record)  # part of the deletion of a collection

    def read(self, collection: int, dimension: int) -> tuple[str, NDArray[np.int64], NDArray[np.float32]]:
        """Reads all vectors of a collection.

        Returns:
            Generation of the collection, chunk ids [n] in order and vectors [n, dimension], all at one moment.

        Raises:
            StorageCorrupt: A vector has another length.
        """
        with self._database.snapshot() as connection:
            (generation,) = connection.execute(
                "SELECT generation FROM collections WHERE collection = ?", (collection,)
            ).fetchone()
            (count,) = connection.execute(
                f"SELECT count(*) FROM chunks WHERE collection = ? AND {_OF_EMBEDDER}", (collection, self._embedder)
            ).fetchone()
            ids = np.empty(count, dtype=np.int64)
            vectors = np.empty((count, dimension), dtype=np.float32)
            rows = connection.execute(
                f"SELECT chunk, embedding FROM chunks WHERE collection = ? AND {_OF_EMBEDDER} ORDER BY chunk",
                (collection, self._embedder),
            )
            first = 0
            while batch := list(islice(rows, _BATCH_ROWS)):
                if any(len(embedding) != 4 * dimension for _, embedding in batch):
                    raise StorageCorrupt(f"a stored vector of collection {collection} has the wrong length")
                past = first + len(batch)
                ids[first:past] = [chunk for chunk, _ in batch]
                joined = b"".join(embedding for _, embedding in batch)
                vectors[first:past] = np.frombuffer(joined, dtype="<f4").reshape(-1, dimension)
                first = past
        return generation, ids, vectors


class CollectionVectors:
    """The stored vectors of a collection.

    Reads in many short transactions, so that no writer waits and the write-ahead log does not grow. That is consistent
    because ids only grow, and a vector of this embedder never changes under its id.
    """

    def __init__(self, database: Database, embedder: str, collection: int, dimension: int) -> None:
        self._database = database
        self._embedder = embedder
        self._collection = collection
        self._dimension = dimension

    def ids(self) -> NDArray[np.int64]:
        """Returns the ids of all vectors, int64 [n], ascending."""
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT chunk FROM chunks WHERE collection = ? AND chunk NOT IN ({_WAITING}) ORDER BY chunk",
                (self._collection, self._embedder, self._embedder),
            )
            return np.fromiter((chunk for (chunk,) in rows), dtype=np.int64)

    def fetch(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the vectors of those of the ascending ids that still exist, float32 [m, dimension], in order."""
        return self.fetch_present(ids)[1]

    def fetch_present(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Returns those of the ascending ids that still exist, [m], and their vectors, float32 [m, dimension]."""
        vectors = np.empty((len(ids), self._dimension), dtype=np.float32)
        present = np.empty(len(ids), dtype=np.int64)
        filled = 0
        for first in range(0, len(ids), _BATCH_IDS):
            batch = ids[first : first + _BATCH_IDS].tolist()
            with self._database.reading() as connection:
                rows = connection.execute(
                    f"SELECT chunk, embedding FROM chunks WHERE chunk IN ({', '.join('?' * len(batch))}) "
                    f"AND +collection = ? AND {_OF_EMBEDDER} ORDER BY chunk",
                    (*batch, self._collection, self._embedder),
                ).fetchall()
            past = filled + len(rows)
            present[filled:past] = [chunk for chunk, _ in rows]
            vectors[filled:past] = self._decoded([embedding for _, embedding in rows])
            filled = past
        return present[:filled], vectors[:filled]

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Yields all vectors by ascending id in blocks; vectors added meanwhile may be missing."""
        after = 0
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(
                    "SELECT chunk, embedding FROM chunks "
                    f"WHERE collection = ? AND chunk > ? AND {_OF_EMBEDDER} ORDER BY chunk LIMIT ?",
                    (self._collection, after, self._embedder, _BATCH_ROWS),
                ).fetchall()
            if not rows:
                return
            after = rows[-1][0]
            yield np.array([chunk for chunk, _ in rows], np.int64), self._decoded([blob for _, blob in rows])

    def _decoded(self, embeddings: Sequence[bytes]) -> NDArray[np.float32]:
        if any(len(embedding) != 4 * self._dimension for embedding in embeddings):
            raise StorageCorrupt(f"a stored vector of collection {self._collection} has the wrong length")
        joined = b"".join(embeddings)
        return np.frombuffer(joined, dtype="<f4").reshape(-1, self._dimension)
