"""The local index of a collection: an immutable segment, the set of vectors removed from it, and an exact index of new
ones.

A small collection has no segment. A large one gets a new segment from time to time, built while the old one is
searched; changes made meanwhile are the difference between the new segment and the current contents.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId
from edge_rag.index.flat import ExactIndex, membership
from edge_rag.index.ivf_segment import Segment


@dataclass(frozen=True, slots=True)
class _Base:
    """A segment and which of its vectors still exist.

    Attributes:
        present: Whether the vector at each position exists, [count]; never changed in place, because searches read it.
    """

    segment: Segment
    present: NDArray[np.bool_]
    count: int

    @property
    def allowed(self) -> NDArray[np.bool_] | None:
        return None if self.count == len(self.segment) else self.present

    def without(self, removed: NDArray[np.int64]) -> _Base:
        present = self.present.copy()
        present[self.segment.positions(removed)] = False
        return _Base(self.segment, present, int(np.count_nonzero(present)))


class LackingVectors(Exception):
    """A rebuilt index lacks vectors of the current one.

    Attributes:
        ids: The vectors, int64 [n].
    """

    def __init__(self, ids: NDArray[np.int64]) -> None:
        super().__init__("a rebuilt index lacks vectors of the current one; it is discarded")
        self.ids = ids


class LayeredIndex:
    """Implements ``VectorIndex``. A search sees all of a change or none of it."""

    def __init__(self, unindexed: ExactIndex, segment: Segment | None = None) -> None:
        """Creates an index of the vectors of both.

        Args:
            segment: The segment; all its vectors exist until ``change`` removes them.
        """
        self._lock = threading.Lock()
        self._unindexed = unindexed
        self._base = _whole(segment)

    @property
    def unindexed(self) -> ExactIndex:
        """Vectors that are not in the segment."""
        return self._unindexed

    @property
    def segment(self) -> Segment | None:
        """The segment, or None."""
        return None if self._base is None else self._base.segment

    @property
    def drift(self) -> int:
        """Number of vectors added and removed since the segment was built."""
        base = self._base
        return len(self._unindexed) + (0 if base is None else len(base.segment) - base.count)

    def __len__(self) -> int:
        base = self._base
        return len(self._unindexed) + (0 if base is None else base.count)

    def change(
        self, removed: Sequence[ChunkId], added: Sequence[ChunkId] | NDArray[np.int64], vectors: NDArray[np.float32]
    ) -> None:
        with self._lock:
            if self._base is not None and len(removed):
                self._base = self._base.without(np.unique(np.asarray(removed, dtype=np.int64)))
            self._unindexed.change(removed, added, vectors)

    def search(
        self, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        """Returns up to ``limit`` ids for each question vector, as ``VectorIndex.search`` specifies."""
        with self._lock:
            base = self._base
            found = self._unindexed.rank(questions, limit, within)
        if base is not None:
            allowed = base.allowed
            if within is not None:
                positions = base.segment.positions(within)
                allowed = np.zeros(len(base.segment), dtype=np.bool_)
                allowed[positions] = base.present[positions]
            contiguous = np.ascontiguousarray(questions, dtype=np.float32)
            inside = base.segment.search(contiguous, limit, allowed)
            found = inside.combined(found) if found.ids.size else inside
        return found.best(limit)

    def rebase(self, segment: Segment | None, unindexed: ExactIndex) -> None:
        """Replaces both parts by newly built ones; search results stay the same.

        Raises:
            LackingVectors: The new parts lack vectors that only the current segment has; nothing was changed.
        """
        with self._lock:
            new_ids, new_vectors = self._unindexed.contents()
            there = new_ids if self._base is None else np.union1d(self._base.segment.ids[self._base.present], new_ids)
            there = np.sort(there)
            base = _whole(segment)
            if base is not None:
                present = membership(base.segment.ids, there)
                base = _Base(base.segment, present, int(np.count_nonzero(present)))
            beside, _ = unindexed.contents()
            gone = beside[~membership(beside, there)]
            known = np.sort(beside if base is None else np.union1d(beside, base.segment.ids))
            missing = there[~membership(there, known)]
            lacking = missing[~membership(missing, new_ids)]
            if len(lacking):
                raise LackingVectors(lacking)
            late = membership(new_ids, missing)
            unindexed.change(tuple(ChunkId(int(number)) for number in gone), new_ids[late], new_vectors[late])
            self._base, self._unindexed = base, unindexed


def _whole(segment: Segment | None) -> _Base | None:
    return None if segment is None else _Base(segment, np.ones(len(segment), dtype=np.bool_), len(segment))
