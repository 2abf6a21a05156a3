"""Scores of pairs that a cross-encoder has read already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.encoder.cross_encoder import PairEncoder


class RememberedScores:
    """Scores a pair once; allowed, as its score does not depend on its neighbours."""

    def __init__(self, encoder: PairEncoder) -> None:
        self._encoder = encoder
        self._known: dict[tuple[str, str], float] = {}

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Returns the score of each pair, in order."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        self._known.update(zip(new, self._encoder.score(new).tolist(), strict=True))
        return np.array([self._known[pair] for pair in pairs], dtype=np.float32)
