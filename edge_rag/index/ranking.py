"""Scores and ids of a search, before they become its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId


@dataclass(frozen=True, slots=True)
class Ranking:
    """What was found for each of n questions, in any order.

    Attributes:
        scores: Inner products, float32 [n, k].
        ids: Chunk ids, int64 [n, k]; -1 where nothing was found.
    """

    scores: NDArray[np.float32]
    ids: NDArray[np.int64]

    def repeated(self, times: int) -> Ranking:
        """Returns the ranking of one question for so many."""
        return Ranking(np.repeat(self.scores, times, axis=0), np.repeat(self.ids, times, axis=0))

    def beside(self, other: Ranking) -> Ranking:
        """Returns what either found, for the same questions in different vectors."""
        return Ranking(np.hstack((self.scores, other.scores)), np.hstack((self.ids, other.ids)))

    def best(self, limit: int) -> list[tuple[ChunkId, ...]]:
        """Returns up to ``limit`` ids for each question, by falling score and then by id."""
        return [_ordered(scores, ids)[:limit] for scores, ids in zip(self.scores, self.ids, strict=True)]


def _ordered(scores: NDArray[np.float32], ids: NDArray[np.int64]) -> tuple[ChunkId, ...]:
    # One index alone finds them in order but for equal scores. Nothing found has the lowest score, so that it is last.
    ordered = ids if (scores[1:] < scores[:-1]).all() else ids[np.lexsort((ids, -scores))]
    present = ordered[ordered >= 0] if ordered.size and ordered[-1] < 0 else ordered
    return tuple(cast(list[ChunkId], present.tolist()))


NOTHING: Final = Ranking(np.empty((1, 0), dtype=np.float32), np.empty((1, 0), dtype=np.int64))
"""What is found for a question where there is nothing."""
