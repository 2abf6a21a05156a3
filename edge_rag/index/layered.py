"""The embedded vector index: a large unchanging segment, what was removed from it, and what is new, exactly.

A small collection has no segment. A large one gets a new segment now and then, built beside the old one while that is
searched; the changes made meanwhile are the difference between what the new one holds and what is there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId
from edge_rag.errors import StorageError
from edge_rag.index.flat import ExactIndex, membership
from edge_rag.index.ivf_segment import Segment


@dataclass(frozen=True, slots=True)
class _Base:
    """A segment and which of its vectors are still there.

    Attributes:
        segment: The segment.
        present: Of the vector at each place, [count]; never changed in place, since searches go on over it.
        count: How many are.
    """

    segment: Segment
    present: NDArray[np.bool_]
    count: int

    @property
    def allowed(self) -> NDArray[np.bool_] | None:
        return None if self.count == len(self.segment) else self.present

    def without(self, removed: NDArray[np.int64]) -> _Base:
        present = self.present.copy()
        present[self.segment.places(removed)] = False
        return _Base(self.segment, present, int(np.count_nonzero(present)))


class LayeredIndex:
    """Implements ``VectorIndex``. A search sees all of a change or nothing of it."""

    def __init__(self, fresh: ExactIndex, segment: Segment | None = None) -> None:
        """Holds what the two hold.

        Args:
            fresh: Vectors that are not in the segment.
            segment: The segment, all of whose vectors are there; ``change`` may say otherwise.
        """
        self._lock = threading.Lock()
        self._fresh = fresh
        self._base = _whole(segment)

    @property
    def fresh(self) -> ExactIndex:
        """What is not in the segment."""
        return self._fresh

    @property
    def segment(self) -> Segment | None:
        """The segment, if there is one."""
        return None if self._base is None else self._base.segment

    @property
    def drift(self) -> int:
        """How many vectors were added and removed since the segment was built."""
        base = self._base
        return len(self._fresh) + (0 if base is None else len(base.segment) - base.count)

    def __len__(self) -> int:
        base = self._base
        return len(self._fresh) + (0 if base is None else base.count)

    def change(
        self, removed: Sequence[ChunkId], added: Sequence[ChunkId] | NDArray[np.int64], vectors: NDArray[np.float32]
    ) -> None:
        """Removes and adds in one go, as ``VectorIndex.change`` says."""
        with self._lock:
            if self._base is not None and len(removed):
                self._base = self._base.without(np.unique(np.asarray(removed, dtype=np.int64)))
            self._fresh.change(removed, added, vectors)

    def search(
        self, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        """Returns up to ``limit`` ids for each question vector, as ``VectorIndex.search`` says."""
        with self._lock:
            base = self._base
            found = self._fresh.rank(questions, limit, within)
        if base is not None:
            allowed = base.allowed
            if within is not None:
                places = base.segment.places(within)
                allowed = np.zeros(len(base.segment), dtype=np.bool_)
                allowed[places] = base.present[places]
            contiguous = np.ascontiguousarray(questions, dtype=np.float32)
            inside = base.segment.search(contiguous, limit, allowed)
            found = inside.beside(found) if found.ids.size else inside
        return found.best(limit)

    def rebase(self, segment: Segment | None, fresh: ExactIndex) -> None:
        """Takes newly built parts in place of the present ones; what can be found stays the same.

        Args:
            segment: The new segment, if there is to be one.
            fresh: Vectors beside it; what is in the present ``fresh`` and in neither is added.

        Raises:
            StorageError: They lack a vector that only the present segment has; nothing was changed.
        """
        with self._lock:
            new_ids, new_vectors = self._fresh.contents()
            there = new_ids if self._base is None else np.union1d(self._base.segment.ids[self._base.present], new_ids)
            there = np.sort(there)
            base = _whole(segment)
            if base is not None:
                present = membership(base.segment.ids, there)
                base = _Base(base.segment, present, int(np.count_nonzero(present)))
            beside, _ = fresh.contents()
            gone = beside[~membership(beside, there)]
            known = np.sort(beside if base is None else np.union1d(beside, base.segment.ids))
            missing = there[~membership(there, known)]
            if not np.isin(missing, new_ids).all():
                raise StorageError("a rebuilt index lacks vectors that the present one has; it was not taken")
            late = membership(new_ids, missing)
            fresh.change(tuple(ChunkId(int(number)) for number in gone), new_ids[late], new_vectors[late])
            self._base, self._fresh = base, fresh


def _whole(segment: Segment | None) -> _Base | None:
    return None if segment is None else _Base(segment, np.ones(len(segment), dtype=np.bool_), len(segment))
