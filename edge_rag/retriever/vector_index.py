"""Nearest vectors of one collection, by FAISS."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId


class VectorIndex:
    """Exact inner-product search over a collection's vectors. May be used from any thread; calls take turns.

    Exhaustive search keeps recall at 1 and needs no training; at 384 dimensions a hundred thousand chunks are 150 MB
    and some milliseconds a question.
    """

    def __init__(self, dimension: int, index: Any = None) -> None:
        self._lock = threading.Lock()
        self._dimension = dimension
        self._index = faiss.IndexIDMap2(faiss.IndexFlatIP(dimension)) if index is None else index

    @classmethod
    def of(cls, ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> VectorIndex:
        """Makes an index of vectors [n, dimension] under the ids [n]."""
        made = cls(vectors.shape[1])
        made.change((), ids, vectors)
        return made

    @classmethod
    def deserialize(cls, content: bytes, dimension: int) -> VectorIndex | None:
        """Reads what ``serialize`` wrote; None where it is no such index. The bytes must be vouched for already."""
        try:
            index = faiss.deserialize_index(np.frombuffer(content, dtype=np.uint8))
        except RuntimeError:
            return None
        if not isinstance(index, faiss.IndexIDMap2) or index.d != dimension:
            return None
        return cls(dimension, index)

    def serialize(self) -> bytes:
        """Returns the whole index as bytes."""
        with self._lock:
            content: bytes = faiss.serialize_index(self._index).tobytes()
        return content

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def change(
        self, removed: Sequence[ChunkId], added: Sequence[ChunkId] | NDArray[np.int64], vectors: NDArray[np.float32]
    ) -> None:
        """Removes and adds in one go: a search sees all of it or nothing.

        Args:
            removed: Ids to remove; unknown ones are ignored.
            added: Ids to add, none of them present.
            vectors: Their vectors, float32 [added, dimension], each of length 1.
        """
        with self._lock:
            if len(removed):
                self._index.remove_ids(faiss.IDSelectorBatch(np.asarray(removed, dtype=np.int64)))
            if len(added):
                contiguous = np.ascontiguousarray(vectors, dtype=np.float32)
                self._index.add_with_ids(contiguous, np.asarray(added, dtype=np.int64))

    def search(self, questions: NDArray[np.float32], limit: int) -> list[tuple[ChunkId, ...]]:
        """Returns for each question vector [n, dimension] up to ``limit`` ids, most similar first, ties by id."""
        with self._lock:
            count = min(limit, len(self))
            if count == 0:
                return [() for _ in questions]
            scores, ids = self._index.search(np.ascontiguousarray(questions, dtype=np.float32), count)
        return [
            tuple(ChunkId(int(row_ids[place])) for place in np.lexsort((row_ids, -row_scores)))
            for row_scores, row_ids in zip(scores, ids, strict=True)
        ]
