"""Exact nearest neighbour search of one collection with FAISS, and rankings before they become results."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import faiss
import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates found for each of n questions, in any order.

    Attributes:
        scores: Inner products, float32 [n, k].
        ids: Chunk ids, int64 [n, k]; -1 for no candidate.
    """

    scores: NDArray[np.float32]
    ids: NDArray[np.int64]

    def repeated(self, times: int) -> Ranking:
        return Ranking(np.repeat(self.scores, times, axis=0), np.repeat(self.ids, times, axis=0))

    def combined(self, other: Ranking) -> Ranking:
        return Ranking(np.hstack((self.scores, other.scores)), np.hstack((self.ids, other.ids)))

    def best(self, limit: int) -> list[tuple[ChunkId, ...]]:
        return [_ordered(scores, ids)[:limit] for scores, ids in zip(self.scores, self.ids, strict=True)]


def _ordered(scores: NDArray[np.float32], ids: NDArray[np.int64]) -> tuple[ChunkId, ...]:
    # One index returns them in order except for equal scores. An empty entry has the lowest score, so it comes last.
    ordered = ids if (scores[1:] < scores[:-1]).all() else ids[np.lexsort((ids, -scores))]
    present = ordered[ordered >= 0] if ordered.size and ordered[-1] < 0 else ordered
    return tuple(cast(list[ChunkId], present.tolist()))


EMPTY_RANKING: Final = Ranking(np.empty((1, 0), dtype=np.float32), np.empty((1, 0), dtype=np.int64))
"""The ranking of one question over no vectors."""


# FAISS annotates its C++ signatures; its Python wrappers accept more types.
_faiss: Any = faiss


class ExactIndex:
    """Implements ``VectorIndex`` by exhaustive inner products. May be used from any thread; calls are serialized.

    Exhaustive search has recall 1 and needs no training. At 384 dimensions fifty thousand chunks take 75 MB and a few
    milliseconds per question.
    """

    def __init__(self, dimension: int, index: Any = None) -> None:
        self._lock = threading.Lock()
        self._dimension = dimension
        self._index = faiss.IndexIDMap2(faiss.IndexFlatIP(dimension)) if index is None else index

    @classmethod
    def of(cls, ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> ExactIndex:
        """Returns an index of vectors [n, dimension] with the ids [n]; n may be 0."""
        made = cls(vectors.shape[1])
        made.change((), ids, vectors)
        return made

    @classmethod
    def deserialize(cls, content: bytes, dimension: int) -> ExactIndex | None:
        """Reads what ``serialize`` wrote; None if it is not such an index. The bytes must be verified already."""
        try:
            index = faiss.deserialize_index(np.frombuffer(content, dtype=np.uint8))
        except RuntimeError:
            return None
        if not isinstance(index, faiss.IndexIDMap2) or index.d != dimension:
            return None
        return cls(dimension, index)

    def serialize(self) -> bytes:
        """Returns the index as bytes."""
        with self._lock:
            content: bytes = faiss.serialize_index(self._index).tobytes()
        return content

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def change(
        self, removed: Sequence[ChunkId], added: Sequence[ChunkId] | NDArray[np.int64], vectors: NDArray[np.float32]
    ) -> None:
        with self._lock:
            if len(removed):
                self._index.remove_ids(faiss.IDSelectorBatch(np.asarray(removed, dtype=np.int64)))
            if len(added):
                contiguous = np.ascontiguousarray(vectors, dtype=np.float32)
                self._index.add_with_ids(contiguous, np.asarray(added, dtype=np.int64))

    def search(
        self, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        return self.rank(questions, limit, within).best(limit)

    def rank(self, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None) -> Ranking:
        """Returns the results of ``search`` with their scores."""
        contiguous = np.ascontiguousarray(questions, dtype=np.float32)
        with self._lock:
            if within is None:
                count = min(limit, len(self))
                if count == 0:
                    return EMPTY_RANKING.repeated(len(questions))
                return Ranking(*self._index.search(contiguous, count))
            held = self._ids()
            allowed = membership(held, within)
            count = min(limit, int(np.count_nonzero(allowed)))
            if count == 0:
                return EMPTY_RANKING.repeated(len(questions))
            selector = _faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
            parameters = _faiss.SearchParameters(sel=selector)
            scores, places = self._index.index.search(contiguous, count, params=parameters)
            return Ranking(scores, held[places])

    def contents(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Returns the ids [n], in any order, and their vectors [n, dimension]."""
        with self._lock:
            ids = self._ids()
            vectors: NDArray[np.float32] = self._index.index.reconstruct_n(0, len(ids))
        return ids, vectors

    def _ids(self) -> NDArray[np.int64]:
        ids: NDArray[np.int64] = faiss.vector_to_array(self._index.id_map)
        return ids


def membership(ids: NDArray[np.int64], among: NDArray[np.int64]) -> NDArray[np.bool_]:
    places = np.searchsorted(among, ids)
    found: NDArray[np.bool_] = np.zeros(len(ids), dtype=np.bool_)
    inside = places < len(among)
    found[inside] = among[places[inside]] == ids[inside]
    return found
