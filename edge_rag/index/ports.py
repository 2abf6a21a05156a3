"""What the retriever needs of the rooms below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId
from edge_rag.core.monitoring.status import IndexInUse
from edge_rag.core.offload import OffloadRule
from edge_rag.core.question import Question
from edge_rag.storage.records import Change, Collection


class Embedder(Protocol):
    """Turns text into vectors. Methods may be called from several threads."""

    @property
    def name(self) -> str:
        """Identity of the model; two embedders of one name give the same vectors."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """Longest text the model reads, in tokens; the rest of a longer one is ignored."""
        ...

    def count_tokens(self, text: str) -> int:
        """Number of tokens of a text."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds passages of documents: float32 [n, dimension], each row of length 1.

        Raises:
            InferenceFailed: The model could not be run.
        """
        ...

    def embed_questions(self, questions: Sequence[str]) -> NDArray[np.float32]:
        """Embeds questions: float32 [n, dimension], each row of length 1. Some models read them in another way.

        Raises:
            InferenceFailed: The model could not be run.
        """
        ...


class Embedding(Protocol):
    """Where vectors come from: this box's embedder, or for text that may leave, another box's that is the same."""

    def questions(self, questions: Sequence[Question]) -> NDArray[np.float32]:
        """Embeds questions: float32 [n, dimension], each row of length 1. Called by one thread at a time.

        Raises:
            InferenceFailed: The model could not be run.
        """
        ...

    def passages(
        self,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule],
        here: Callable[[Sequence[str]], NDArray[np.float32]],
        give_way: Callable[[float], None],
        told: Callable[[int], None],
    ) -> NDArray[np.float32]:
        """Embeds the passages of a document: float32 [texts, dimension], each row of length 1. Any thread.

        Args:
            texts: The passages.
            rule: Returns what of their collection may leave this box, as it is at that moment; any thread.
            here: Embeds a few of them on this box, on the caller's thread.
            give_way: Called after that with the seconds it took; returns when the next may begin.
            told: Told how many are done.

        Raises:
            InferenceFailed: The model could not be run.
        """
        ...


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


class VectorHome(Protocol):
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
