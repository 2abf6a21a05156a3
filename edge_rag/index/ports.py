"""Ports of vector indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId
from edge_rag.core.monitoring.status import IndexInUse
from edge_rag.storage.statements import Change, Collection


class VectorIndex(Protocol):
    """Nearest vectors of one collection, by inner product of vectors of length 1.

    Any thread may search while one thread at a time changes it.
    """

    def __len__(self) -> int:
        """Number of vectors that can be found."""
        ...

    def change(
        self, removed: Sequence[ChunkId], added: Sequence[ChunkId] | NDArray[np.int64], vectors: NDArray[np.float32]
    ) -> None:
        """Removes and adds vectors; a search that starts after the return sees all of it.

        Args:
            removed: Ids to remove; unknown ones are ignored.
            added: Ids to add; none of them is present after the removal.
            vectors: Their vectors, float32 [added, dimension], each of length 1.

        Raises:
            StorageError: The change failed; results are undefined until the index is rebuilt.
        """
        ...

    def search(
        self, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        """Finds the most similar vectors.

        The restriction is part of the search and not applied to its result: each result has ``limit`` ids unless fewer
        are allowed and present.

        Args:
            questions: Question vectors, float32 [n, dimension].
            limit: Most ids per question, 1 to 16,384.
            within: The only ids that may be found, int64, ascending, distinct; unknown ones are ignored. All if None.

        Returns:
            Ids found for each question, most similar first, ties by id.

        Raises:
            StorageError: The index could not be searched.
        """
        ...


class IndexBackend(Protocol):
    """Holds vector indexes of collections: on this box or on a server.

    SQLite holds the vectors; a backend follows it and catches up with missed changes. Any thread may search while one
    thread at a time does everything else.
    """

    def load(self, collections: tuple[Collection, ...]) -> None:
        """Loads the indexes of the backend's collections; removes indexes of others.

        Raises:
            StorageError: It failed, and a retry would not help.
        """
        ...

    def search(
        self, collection: int, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        """Searches a collection's index like ``VectorIndex.search``; an unknown collection has no vectors."""
        ...

    def apply(self, change: Change, vectors: NDArray[np.float32]) -> None:
        """Applies a committed change; changes come in the order of their commits.

        Args:
            vectors: Vectors of ``change.added``, float32 [added, dimension].
        """
        ...

    def prepare(self, collection: Collection) -> None:
        """Does most of the work of adding a collection, while the collection may still change.

        Raises:
            StorageError: It failed.
        """
        ...

    def admit(self, collection: Collection) -> None:
        """Adds a collection as it is in SQLite now; it must not change during the call.

        Raises:
            StorageError: It failed.
        """
        ...

    def drop(self, collection: int) -> None:
        """Removes a collection's index."""
        ...

    def describe(self, collection: Collection) -> IndexInUse:
        """Describes the index of a collection."""
        ...

    def close(self) -> None:
        """Stops background work and saves indexes; idempotent."""
        ...
