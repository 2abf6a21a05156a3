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

    May be searched from any thread while one thread at a time changes it.
    """

    def __len__(self) -> int:
        """Number of vectors that can be found."""
        ...

    def change(
        self, removed: Sequence[ChunkId], added: Sequence[ChunkId] | NDArray[np.int64], vectors: NDArray[np.float32]
    ) -> None:
        """Removes and adds; a search that starts after this returned sees all of it.

        Args:
            removed: Ids to remove; unknown ones are ignored.
            added: Ids to add, none of them present after the removal.
            vectors: Their vectors, float32 [added, dimension], each of length 1.

        Raises:
            StorageError: They could not be changed; what can be found is undefined until the index is made anew.
        """
        ...

    def search(
        self, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        """Finds the most similar vectors.

        The restriction is part of the search, not applied to what it found: there are ``limit`` ids in each answer
        unless fewer are allowed and present.

        Args:
            questions: Question vectors, float32 [n, dimension].
            limit: Most ids to return for each, 1 to 16,384.
            within: The only ids that may be found, int64, ascending, distinct; unknown ones are ignored. All if None.

        Returns:
            For each question the ids found, most similar first, ties by id.

        Raises:
            StorageError: The index could not be searched.
        """
        ...


class IndexBackend(Protocol):
    """Where the vectors of collections are indexed: on this box, or on a server.

    SQLite has the vectors; what is here follows it, and makes up for whatever it missed. Searching may happen on any
    thread, while one thread at a time does all else.
    """

    def load(self, collections: tuple[Collection, ...]) -> None:
        """Takes up the collections that are here; what is left of others is removed.

        Raises:
            StorageError: It cannot be done, and trying again later would not help by itself.
        """
        ...

    def search(
        self, collection: int, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        """Searches a collection's index, as ``VectorIndex.search`` says; one that is not there has nothing."""
        ...

    def apply(self, change: Change, vectors: NDArray[np.float32]) -> None:
        """Follows a committed change; changes come in the order of their commits.

        Args:
            change: What was committed.
            vectors: Vectors of ``change.added``, float32 [added, dimension].
        """
        ...

    def prepare(self, collection: Collection) -> None:
        """Does most of what taking a collection in takes, while it may still change.

        Raises:
            StorageError: It could not be done.
        """
        ...

    def admit(self, collection: Collection) -> None:
        """Takes a collection in, as it is in SQLite now; nobody may change it meanwhile.

        Raises:
            StorageError: It could not be done.
        """
        ...

    def drop(self, collection: int) -> None:
        """Lets go of a collection and removes what is here of it."""
        ...

    def describe(self, collection: Collection) -> IndexInUse:
        """Says how a collection is searched."""
        ...

    def close(self) -> None:
        """Stops what runs and saves what is worth saving; idempotent."""
        ...
