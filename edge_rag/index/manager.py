"""The vector indexes of all collections, each in the home that SQLite has for its collection."""

from __future__ import annotations

import threading
from collections.abc import Mapping

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
_SAMPLED = 64
_LEAST_AGREEMENT = 0.95


class VectorIndexes:
    """Searches and keeps the indexes. Searching may happen on any thread, while one thread at a time changes them.

    Args:
        homes: The homes there are; FAISS is always one.
        stored: The vectors in SQLite.
        dimension: Length of a vector.

    Attributes:
        homes: The homes there are.
    """

    def __init__(self, homes: Mapping[BackendKind, IndexBackend], stored: StoredVectors, dimension: int) -> None:
        self.homes = homes
        self._stored = stored
        self._dimension = dimension
        self._home_of: dict[int, BackendKind] = {}
        self._changing = threading.Lock()
        self._moving = threading.Lock()

    def load(self, collections: tuple[Collection, ...]) -> None:
        """Has each home take up its collections.

        Raises:
            StorageError: One cannot, and trying again later would not help by itself.
        """
        self._home_of = self._stored.homes()
        for kind, home in self.homes.items():
            home.load(tuple(each for each in collections if self._kind(each.number) is kind))
        for collection in collections:
            if self._kind(collection.number) not in self.homes:
                _log.error(_away(collection.name), collection=collection.name)

    def search(
        self, collection: int, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None = None
    ) -> list[tuple[ChunkId, ...]]:
        """Searches a collection's index, as ``VectorIndex.search`` says; one that is not there has nothing.

        Raises:
            StorageError: Its home is not configured, cannot be reached, or has yet to be brought up to date.
        """
        home = self.homes.get(self._kind(collection))
        if home is None:
            raise StorageError(_away(str(collection)))
        return home.search(collection, questions, limit, within)

    def apply(self, change: Change, vectors: NDArray[np.float32]) -> None:
        """Has a collection's home follow a committed change; changes come in the order of their commits.

        Args:
            change: What was committed.
            vectors: Vectors of ``change.added``, float32 [added, dimension].
        """
        with self._changing:
            home = self.homes.get(self._kind(change.collection.number))
            if home is not None:
                home.apply(change, vectors)
            if change.dropped:
                self._home_of.pop(change.collection.number, None)

    def drop(self, collection: int) -> None:
        """Removes the index of a collection that is no longer stored."""
        with self._changing:
            home = self.homes.get(self._kind(collection))
            if home is not None:
                home.drop(collection)
            self._home_of.pop(collection, None)

    def move(self, collection: Collection, kind: BackendKind) -> None:
        """Has a collection's vectors indexed in another home from now on.

        The other home is filled from SQLite while searches go on over the present one, the number of its vectors and a
        sample of searches are compared with what they should be, and only then is the choice recorded and the present
        index dropped. Changes of collections wait for the last part of it.

        Raises:
            ConfigurationError: That home is not configured.
            StorageError: It could not be filled, or finds something else; the collection stays where it is.
        """
        home = self.homes.get(kind)
        if home is None:
            raise ConfigurationError("no Milvus is configured: set retriever.milvus.uri and restart")
        with self._moving:
            if self._kind(collection.number) is kind:
                return
            present = self.homes.get(self._kind(collection.number))
            try:
                home.prepare(collection)
                with self._changing:
                    current = self._stored.collection(collection.number)
                    if current is None:
                        raise StorageError(f"collection {collection.name!r} was removed while it was moved")
                    home.admit(current)
                    self._require_agreement(current, home)
                    if not self._stored.record_home(collection.number, kind):
                        raise StorageError(f"collection {collection.name!r} was removed while it was moved")
                    self._home_of[collection.number] = kind
            except BaseException:
                home.drop(collection.number)
                raise
            if present is not None:
                present.drop(collection.number)

    def describe(self, collections: tuple[Collection, ...]) -> tuple[IndexInUse, ...]:
        """Says how each collection is searched."""
        described = []
        for collection in collections:
            home = self.homes.get(self._kind(collection.number))
            described.append(
                IndexInUse(collection.name, IndexKind.MILVUS, None, pending=True)
                if home is None
                else home.describe(collection)
            )
        return tuple(described)

    def close(self) -> None:
        """Closes all homes; idempotent."""
        for home in self.homes.values():
            home.close()

    def _kind(self, collection: int) -> BackendKind:
        return self._home_of.get(collection, BackendKind.FAISS)

    def _require_agreement(self, collection: Collection, home: IndexBackend) -> None:
        source = self._stored.of(collection.number, self._dimension)
        ids = source.ids()
        vectors = home.describe(collection).vectors
        if vectors != len(ids):
            raise StorageError(f"{vectors} of {len(ids)} vectors arrived; the collection stays where it is")
        sample = np.sort(np.random.default_rng().permutation(ids)[:_SAMPLED])
        asked = source.fetch(sample)
        hits = sum(
            # Equal passages have equal vectors: any of them is as good as the one that was asked with.
            bool(found) and bool((source.fetch(np.array([found[0]], np.int64)) @ vector)[0] > 1 - 1e-4)
            for found, vector in zip(home.search(collection.number, asked, 1, None), asked, strict=True)
        )
        if hits < _LEAST_AGREEMENT * len(asked):
            raise StorageError(f"{hits} of {len(asked)} sampled passages were found; the collection stays where it is")


def _away(collection: str) -> str:
    return (
        f"the vectors of collection {collection} are indexed in Milvus, which is not configured: set "
        "retriever.milvus.uri and restart, or `edge-rag collections move NAME --to faiss`"
    )
