"""The indexes of all collections: a cache of the vectors in SQLite, held in memory and saved now and then.

Each collection has an index of its own rather than a share of one with an id filter: a question then costs what its own
collection costs, cannot be answered from another one, and a collection that is dropped takes its index with it.

Nothing depends on saving. A file is used only if its manifest names the generation that the collection has in SQLite;
any other is ignored and the index is rebuilt from the stored vectors, which takes about a second for 100,000 chunks. So
files are written at close, and on the way whenever an index has grown or changed by a quarter.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId
from edge_rag.retriever.exact_index import ExactIndex
from edge_rag.retriever.index_file import IndexFile, IndexManifest
from edge_rag.retriever.records import Change, Collection
from edge_rag.retriever.stored_vectors import StoredVectors

_log = structlog.get_logger(__name__)
_CHANGES_WORTH_SAVING = 4096


@dataclass(slots=True)
class _Held:
    index: ExactIndex
    generation: str
    unsaved: int


class VectorIndexes:
    """Searches and keeps the indexes. Searching may happen on any thread, while one thread at a time changes them."""

    def __init__(self, folder: Path, embedder: str, dimension: int, stored: StoredVectors) -> None:
        """Starts without indexes; ``load`` brings them.

        Args:
            folder: Where index files are; made if it does not exist.
            embedder: Name of the model whose vectors are stored.
            dimension: Length of a vector.
            stored: The vectors in SQLite.
        """
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._embedder = embedder
        self._dimension = dimension
        self._stored = stored
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}

    def load(self, collections: tuple[Collection, ...], chunk_counts: dict[int, int]) -> None:
        """Takes the index of each collection from its file, or rebuilds it where the file is not to be trusted.

        Args:
            collections: All collections; files of others are removed.
            chunk_counts: Number of chunks of each, by row id.

        Raises:
            StorageError: The stored vectors could not be read.
        """
        for collection in collections:
            self._held[collection.number] = self._from_file(
                collection, chunk_counts.get(collection.number, 0)
            ) or self._rebuilt(collection)
        known = {str(collection.number) for collection in collections}
        for file in self._folder.iterdir():
            if file.name.partition(".")[0] not in known:
                file.unlink()

    def search(
        self, collection: int, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None = None
    ) -> list[tuple[ChunkId, ...]]:
        """Searches a collection's index, as ``VectorIndex.search`` says; one that is not there has nothing."""
        with self._lock:
            held = self._held.get(collection)
        return [() for _ in questions] if held is None else held.index.search(questions, limit, within)

    def apply(self, change: Change, vectors: NDArray[np.float32]) -> None:
        """Brings an index to the state after a committed change; changes come in the order of their commits.

        Args:
            change: What was committed.
            vectors: Vectors of ``change.added``, float32 [added, dimension].
        """
        number = change.collection.number
        if change.dropped:
            with self._lock:
                self._held.pop(number, None)
            IndexFile(self._folder, number).delete()
            return
        with self._lock:
            held = self._held.setdefault(number, _Held(ExactIndex(self._dimension), "", 0))
        held.index.change(change.removed, change.added, vectors)
        held.generation = change.collection.generation
        held.unsaved += len(change.removed) + len(change.added)
        if held.unsaved >= max(_CHANGES_WORTH_SAVING, len(held.index) // 4):
            self._save(number, held)

    def save(self) -> None:
        """Writes every index that has changed since it was last written; one that cannot be written is only logged."""
        with self._lock:
            unsaved = [(number, held) for number, held in self._held.items() if held.unsaved]
        for number, held in unsaved:
            self._save(number, held)

    def _save(self, number: int, held: _Held) -> None:
        manifest = IndexManifest(self._embedder, self._dimension, held.generation, len(held.index))
        try:
            IndexFile(self._folder, number).write(held.index.serialize(), manifest)
        except OSError as error:
            _log.warning("an index file could not be written; it will be rebuilt", collection=number, error=str(error))
            return
        held.unsaved = 0

    def _from_file(self, collection: Collection, chunks: int) -> _Held | None:
        expected = IndexManifest(self._embedder, self._dimension, collection.generation, chunks)
        content = IndexFile(self._folder, collection.number).read(expected)
        index = None if content is None else ExactIndex.deserialize(content, self._dimension)
        if index is None or len(index) != chunks:
            return None
        return _Held(index, collection.generation, 0)

    def _rebuilt(self, collection: Collection) -> _Held:
        generation, ids, vectors = self._stored.read(collection.number, self._dimension)
        _log.info("index rebuilt from the stored vectors", collection=collection.name, chunks=len(ids))
        return _Held(ExactIndex.of(ids, vectors), generation, max(1, len(ids)))
