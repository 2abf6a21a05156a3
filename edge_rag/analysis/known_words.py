"""Whether passages have the words of a question, so that a ranking by words says something about it; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LEAST_HELD: Final = 0.3
"""Least share of a question's term weight that a passage holds where BM25 counts, 0 to 1."""


def knows_words(total: float, held: Iterable[float]) -> bool:
    """Whether one passage holds at least 0.3 of a question's term weight.

    A question in another language than the passages shares only names, numbers and chance words with them; a ranking by
    these would take half of the places. Such weights predict the quality of a ranking by words (He and Ounis, Query
    Performance Prediction, Information Systems 31, 2006). The threshold was chosen on XQuAD in twelve languages.
    """
    return max(held, default=0.0) >= LEAST_HELD * total
