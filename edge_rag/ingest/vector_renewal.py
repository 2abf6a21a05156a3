"""Embeds stored chunks again after a change of the model, while questions are answered."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId
from edge_rag.core.placement import OffloadRule
from edge_rag.core.ports import Embedder, Embedding
from edge_rag.errors import EdgeRagError
from edge_rag.index.manager import VectorIndexes
from edge_rag.ingest.chunking import index_text
from edge_rag.ingest.library import DocumentLibrary
from edge_rag.storage.database import Database
from edge_rag.storage.statements import (
    COLLECTIONS,
    Change,
    Collection,
    collection_of,
    encode_vector,
    ensure_embedder,
    renew_generation,
)
from edge_rag.storage.vectors import StoredVectors

_log = structlog.get_logger(__name__)
_CHUNKS_PER_TRANSACTION: Final = 256


class _Stopped(Exception):
    """The data directory is being closed."""


class VectorRenewal:
    """Embeds every chunk again whose vector another embedder computed, in small transactions.

    Until then a chunk is found by its words alone. After an interruption the next start continues where this one ended.

    Args:
        working: Returns a context that is entered while chunks are embedded on this box.
    """

    def __init__(
        self,
        database: Database,
        stored: StoredVectors,
        indexes: VectorIndexes,
        library: DocumentLibrary,
        embedder: Embedder,
        embedding: Embedding,
        working: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._database = database
        self._stored = stored
        self._indexes = indexes
        self._library = library
        self._embedder = embedder
        self._embedding = embedding
        self._working = working
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._waiting = stored.waiting()
        indexes.set_incomplete(frozenset(self._waiting))

    def run(self, yield_to_queries: Callable[[float], None] = lambda worked_s: None) -> None:
        """Embeds all chunks that wait, collection by collection.

        Args:
            yield_to_queries: Waits for questions, given the seconds that the last piece of work took.
        """
        for number in sorted(self._waiting):
            done = sum(self._renew(number, yield_to_queries))
            del self._waiting[number]
            self._indexes.set_incomplete(frozenset(self._waiting))
            collection = self._stored.collection(number)
            _log.warning(
                "embedded again because the embedding model has changed",
                collection="" if collection is None else collection.name,
                chunks=done,
                embedder=self._embedder.name,
            )

    def start(self, yield_to_queries: Callable[[float], None]) -> None:
        """Runs in a thread of its own until all is done or ``close``; a failure is logged."""
        if self._waiting:
            self._thread = threading.Thread(target=self._run_quietly, args=(yield_to_queries,), name="vector-renewal")
            self._thread.start()

    def wait(self) -> None:
        """Waits until the thread has ended."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Stops the thread after the texts at hand; idempotent."""
        self._stopping.set()
        self.wait()

    def _run_quietly(self, yield_to_queries: Callable[[float], None]) -> None:
        _log.warning("the embedding model has changed: embedding in the background", chunks=sum(self._waiting.values()))
        try:
            self.run(yield_to_queries)
        except _Stopped:
            _log.info("embedding again goes on at the next start")
        except EdgeRagError as error:
            _log.error("embedding again failed and is tried at the next start", error=str(error))

    def _check(self, done: int = 0) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def _renew(self, number: int, yield_to_queries: Callable[[float], None]) -> Iterator[int]:
        with self._database.writing() as connection:
            current = ensure_embedder(connection, self._embedder.name, self._embedder.dimension)
        after = 0
        while (collection := self._stored.collection(number)) is not None:
            self._check()
            with self._database.reading() as connection:
                rows = connection.execute(
                    "SELECT chunk, context, text FROM chunks "
                    "WHERE collection = ? AND chunk > ? AND +embedder <> ? ORDER BY chunk LIMIT ?",
                    (number, after, current, _CHUNKS_PER_TRANSACTION),
                ).fetchall()
            if not rows:
                return
            after = rows[-1][0]
            texts = [index_text(json.loads(context), text) for _, context, text in rows]
            vectors = self._embedding.passages(
                texts, partial(_rule, collection), self._embed, yield_to_queries, self._check
            )
            commit = partial(self._commit, number, current, [ChunkId(chunk) for chunk, _, _ in rows], vectors)
            self._library.renew_vectors(commit)
            yield len(rows)

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._working():
            return self._embedder.embed(texts)

    def _commit(
        self, number: int, current: int, chunks: Sequence[ChunkId], vectors: NDArray[np.float32]
    ) -> tuple[Change, NDArray[np.float32]] | None:
        """Stores the vectors of those chunks that still exist."""
        with self._database.writing() as connection:
            stored = []
            for row, chunk in enumerate(chunks):
                connection.execute(
                    "UPDATE chunks SET embedder = ?, embedding = ? WHERE chunk = ? AND collection = ?",
                    (current, encode_vector(vectors[row]), chunk, number),
                )
                if connection.changes():
                    stored.append(row)
            if not stored:
                return None
            renew_generation(connection, number)
            collection = collection_of(connection.execute(f"{COLLECTIONS} WHERE collection = ?", (number,)).fetchone())
        return Change(collection, (), tuple(chunks[row] for row in stored)), vectors[stored]


def _rule(collection: Collection) -> OffloadRule:
    return collection.settings.offload
