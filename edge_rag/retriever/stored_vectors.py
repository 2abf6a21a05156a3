"""The vectors in SQLite: what the index is rebuilt from, and what is made anew when the embedder changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_rag.errors import StorageCorrupt
from edge_rag.retriever.chunking import index_text
from edge_rag.retriever.database import Database
from edge_rag.retriever.ports import Embedder
from edge_rag.retriever.records import Collection
from edge_rag.retriever.rows import encode_vector, make_embedder, renew_generation

_log = structlog.get_logger(__name__)
_CHUNKS_AT_ONCE = 64
_ROWS_AT_ONCE = 4096


class StoredVectors:
    """Reads vectors back and keeps them the current embedder's."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def counts(self) -> dict[int, int]:
        """Returns the number of chunks of each collection that has any, by row id."""
        with self._database.reading() as connection:
            return dict(connection.execute("SELECT collection, count(*) FROM chunks GROUP BY collection").fetchall())

    def read(self, collection: int, dimension: int) -> tuple[str, NDArray[np.int64], NDArray[np.float32]]:
        """Reads all vectors of a collection.

        Args:
            collection: Its row id.
            dimension: Length of a vector.

        Returns:
            The collection's generation, chunk ids [n] in order and vectors [n, dimension], all of one moment.

        Raises:
            StorageCorrupt: A vector has another length.
        """
        with self._database.snapshot() as connection:
            (generation,) = connection.execute(
                "SELECT generation FROM collections WHERE collection = ?", (collection,)
            ).fetchone()
            (count,) = connection.execute("SELECT count(*) FROM chunks WHERE collection = ?", (collection,)).fetchone()
            ids = np.empty(count, dtype=np.int64)
            vectors = np.empty((count, dimension), dtype=np.float32)
            rows = connection.execute(
                "SELECT chunk, embedding FROM chunks WHERE collection = ? ORDER BY chunk", (collection,)
            )
            first = 0
            while some := list(islice(rows, _ROWS_AT_ONCE)):
                if any(len(embedding) != 4 * dimension for _, embedding in some):
                    raise StorageCorrupt(f"a stored vector of collection {collection} has the wrong length")
                past = first + len(some)
                ids[first:past] = [chunk for chunk, _ in some]
                joined = b"".join(embedding for _, embedding in some)
                vectors[first:past] = np.frombuffer(joined, dtype="<f4").reshape(-1, dimension)
                first = past
        return generation, ids, vectors

    def renew(self, collections: tuple[Collection, ...], embedder: Embedder) -> int:
        """Embeds every chunk anew whose vector another embedder made.

        Works in small transactions, so that being interrupted costs little: the next start goes on where this one
        ended.

        Returns:
            Number of chunks that were embedded.

        Raises:
            InferenceFailed: The model could not be run.
            StorageError: The database failed.
        """
        renewed = 0
        for collection in collections:
            done = sum(self._renew(collection, embedder))
            if done:
                _log.warning(
                    "embedded again because the embedding model has changed",
                    collection=collection.name,
                    chunks=done,
                    embedder=embedder.name,
                )
            renewed += done
        return renewed

    def _renew(self, collection: Collection, embedder: Embedder) -> Iterator[int]:
        with self._database.writing() as connection:
            current = make_embedder(connection, embedder.name, embedder.dimension)
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(
                    "SELECT chunk, context, text FROM chunks WHERE collection = ? AND embedder <> ? LIMIT ?",
                    (collection.number, current, _CHUNKS_AT_ONCE),
                ).fetchall()
            if not rows:
                return
            vectors = embedder.embed([index_text(json.loads(context), text) for _, context, text in rows])
            with self._database.writing() as connection:
                connection.executemany(
                    "UPDATE chunks SET embedder = ?, embedding = ? WHERE chunk = ?",
                    [
                        (current, encode_vector(vector), chunk)
                        for (chunk, _, _), vector in zip(rows, vectors, strict=True)
                    ],
                )
                renew_generation(connection, collection.number)
            yield len(rows)
