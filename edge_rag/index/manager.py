"""The vector indexes of all collections, each in the backend that SQLite records for its collection."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.ids import ChunkId
from edge_rag.core.monitoring.status import IndexInUse, IndexKind
from edge_rag.errors import ConfigurationError, StorageError
from edge_rag.index.ports import IndexBackend
from edge_rag.storage.statements import Change, Collection
from edge_rag.storage.vectors import StoredVectors

_log = structlog.get_logger(__name__)
_SAMPLE_SIZE = 64
_MIN_HIT_SHARE = 0.95


class VectorIndexes:
    """Searches and changes indexes. Any thread may search while one thread at a time changes them."""

    def __init__(self, backends: Mapping[BackendKind, IndexBackend], stored: StoredVectors, dimension: int) -> None:
        self.backends = backends
        self._stored = stored
        self._dimension = dimension
        self._backend_of: dict[int, BackendKind] = {}
        self._incomplete: frozenset[int] = frozenset()
        self._changing = threading.Lock()
        self._moving = threading.Lock()

    def load(self, collections: tuple[Collection, ...]) -> None:
        self._backend_of = self._stored.backends()
        for kind, backend in self.backends.items():
            backend.load(tuple(each for each in collections if self._kind(each.number) is kind))
        for collection in collections:
            if self._kind(collection.number) not in self.backends:
                _log.error(_not_configured(collection.name), collection=collection.name)

    def set_incomplete(self, collections: frozenset[int]) -> None:
        self._incomplete = collections

    def search(
        self, collection: int, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None = None
    ) -> list[tuple[ChunkId, ...]]:
        """Searches a collection's index like ``VectorIndex.search``; an unknown collection has no vectors.

        Raises:
            StorageError: The backend is not configured, cannot be reached, or is not up to date yet.
        """
        backend = self.backends.get(self._kind(collection))
        if backend is None:
            raise StorageError(_not_configured(str(collection)))
        return backend.search(collection, questions, limit, within)

    def apply(self, change: Change, vectors: NDArray[np.float32]) -> None:
        """Applies a committed change to a collection's index; changes come in the order of their commits.

        Args:
            vectors: Vectors of ``change.added``, float32 [added, dimension].
        """
        with self._changing:
            backend = self.backends.get(self._kind(change.collection.number))
            if backend is not None:
                backend.apply(change, vectors)
            if change.dropped:
                self._backend_of.pop(change.collection.number, None)

    def drop(self, collection: int) -> None:
        with self._changing:
            backend = self.backends.get(self._kind(collection))
            if backend is not None:
                backend.drop(collection)
            self._backend_of.pop(collection, None)

    def move(self, collection: Collection, kind: BackendKind) -> None:
        """Moves the index of a collection to another backend.

        The new index is filled from SQLite while searches continue on the old one. Then the number of its vectors and a
        sample of searches are verified, the backend is recorded and the old index dropped. Changes of collections wait
        for this last part.

        Raises:
            ConfigurationError: The backend is not configured.
            StorageError: The new index could not be filled or failed verification; the collection keeps its backend.
        """
        backend = self.backends.get(kind)
        if backend is None:
            raise ConfigurationError("no Milvus is configured: set retriever.milvus.uri and restart")
        with self._moving:
            if self._kind(collection.number) is kind:
                return
            present = self.backends.get(self._kind(collection.number))
            try:
                backend.prepare(collection)
                with self._changing:
                    current = self._stored.collection(collection.number)
                    if current is None:
                        raise StorageError(f"collection {collection.name!r} was removed during the move")
                    backend.admit(current)
                    self._verify(current, backend)
                    if not self._stored.record_backend(collection.number, kind):
                        raise StorageError(f"collection {collection.name!r} was removed during the move")
                    self._backend_of[collection.number] = kind
            except BaseException:
                backend.drop(collection.number)
                raise
            if present is not None:
                present.drop(collection.number)

    def describe(self, collections: tuple[Collection, ...]) -> tuple[IndexInUse, ...]:
        """Describes the index of each collection."""
        described = []
        for collection in collections:
            backend = self.backends.get(self._kind(collection.number))
            index = (
                IndexInUse(collection.name, IndexKind.MILVUS, None, pending=True)
                if backend is None
                else backend.describe(collection)
            )
            described.append(replace(index, pending=index.pending or collection.number in self._incomplete))
        return tuple(described)

    def close(self) -> None:
        """Closes all backends; idempotent."""
        for backend in self.backends.values():
            backend.close()

    def _kind(self, collection: int) -> BackendKind:
        return self._backend_of.get(collection, BackendKind.FAISS)

    def _verify(self, collection: Collection, backend: IndexBackend) -> None:
        source = self._stored.of(collection.number, self._dimension)
        ids = source.ids()
        vectors = backend.describe(collection).vectors
        if vectors != len(ids):
            raise StorageError(f"{vectors} of {len(ids)} vectors were copied; the collection keeps its backend")
        sample = np.sort(np.random.default_rng().permutation(ids)[:_SAMPLE_SIZE])
        queries = source.fetch(sample)
        hits = sum(
            # Equal passages have equal vectors: so any of them is a correct result.
            bool(found) and bool((source.fetch(np.array([found[0]], np.int64)) @ vector)[0] > 1 - 1e-4)
            for found, vector in zip(backend.search(collection.number, queries, 1, None), queries, strict=True)
        )
        if hits < _MIN_HIT_SHARE * len(queries):
            raise StorageError(
                f"{hits} of {len(queries)} sampled passages were found; the collection keeps its backend"
            )


def _not_configured(collection: str) -> str:
    return (
        f"the vectors of collection {collection} are indexed in Milvus, which is not configured: set "
        "retriever.milvus.uri and restart, or `edge-rag collections move NAME --to faiss`"
    )
