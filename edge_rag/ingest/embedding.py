"""Vectors from this box's own embedder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.placement import OffloadRule
from edge_rag.core.ports import Embedder
from edge_rag.core.query import Question

TEXTS_AT_ONCE: Final = 8
"""Passages that are embedded at once, so that a question never waits for more than so many."""


class LocalEmbedding:
    """Implements ``Embedding`` with an embedder. May be used from any thread.

    Args:
        embedder: Turns text into vectors.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def questions(self, questions: Sequence[Question]) -> NDArray[np.float32]:
        """Embeds questions; see ``Embedding``."""
        return self._embedder.embed_questions([question.text for question in questions])

    def passages(
        self,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule],
        here: Callable[[Sequence[str]], NDArray[np.float32]],
        yield_to_queries: Callable[[float], None],
        told: Callable[[int], None],
    ) -> NDArray[np.float32]:
        """Embeds passages, a few at a time; see ``Embedding``."""
        parts: list[NDArray[np.float32]] = []
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            told(first)
            began = time.monotonic()
            parts.append(here(texts[first : first + TEXTS_AT_ONCE]))
            yield_to_queries(time.monotonic() - began)
        return np.concatenate(parts) if parts else here(texts)
