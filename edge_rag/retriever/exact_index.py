"""Exact nearest vectors of one collection, by FAISS."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId

# Its own annotations are those of C++; what Python may pass is wider.
_faiss: Any = faiss


class ExactIndex:
    """Implements ``VectorIndex`` by exhaustive inner products. May be used from any thread; calls take turns.

    Exhaustive search keeps recall at 1 and needs no training; at 384 dimensions fifty thousand chunks are 75 MB and a
    few milliseconds a question.
    """

    def __init__(self, dimension: int, index: Any = None) -> None:
        self._lock = threading.Lock()
        self._dimension = dimension
        self._index = faiss.IndexIDMap2(faiss.IndexFlatIP(dimension)) if index is None else index

    @classmethod
    def of(cls, ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> ExactIndex:
        """Makes an index of vectors [n, dimension] under the ids [n]."""
        made = cls(vectors.shape[1])
        made.change((), ids, vectors)
        return made

    @classmethod
    def deserialize(cls, content: bytes, dimension: int) -> ExactIndex | None:
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
        """Removes and adds in one go, as ``VectorIndex.change`` says."""
        with self._lock:
            if len(removed):
                self._index.remove_ids(faiss.IDSelectorBatch(np.asarray(removed, dtype=np.int64)))
            if len(added):
                contiguous = np.ascontiguousarray(vectors, dtype=np.float32)
                self._index.add_with_ids(contiguous, np.asarray(added, dtype=np.int64))

    def search(
        self, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        """Returns up to ``limit`` ids for each question vector, as ``VectorIndex.search`` says."""
        with self._lock:
            held = faiss.vector_to_array(self._index.id_map) if within is not None else None
            allowed = None if held is None or within is None else _among(held, within)
            count = min(limit, len(self) if allowed is None else int(np.count_nonzero(allowed)))
            if count == 0:
                return [() for _ in questions]
            scores, ids = self._ranked(np.ascontiguousarray(questions, dtype=np.float32), count, held, allowed)
        return [
            tuple(ChunkId(int(row_ids[place])) for place in np.lexsort((row_ids, -row_scores)))
            for row_scores, row_ids in zip(scores, ids, strict=True)
        ]

    def _ranked(
        self,
        questions: NDArray[np.float32],
        count: int,
        held: NDArray[np.int64] | None,
        allowed: NDArray[np.bool_] | None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if held is None or allowed is None:
            scores, ids = self._index.search(questions, count)
            return scores, ids
        bits = np.packbits(allowed, bitorder="little")
        selected = _faiss.SearchParameters(sel=_faiss.IDSelectorBitmap(bits))
        scores, places = self._index.index.search(questions, count, params=selected)
        return scores, held[places]


def _among(held: NDArray[np.int64], within: NDArray[np.int64]) -> NDArray[np.bool_]:
    places = np.searchsorted(within, held)
    found: NDArray[np.bool_] = np.zeros(len(held), dtype=np.bool_)
    inside = places < len(within)
    found[inside] = within[places[inside]] == held[inside]
    return found
