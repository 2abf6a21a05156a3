"""Vectors from the embedder of this box."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.placement import OffloadRule
from edge_rag.core.ports import Embedder

BATCH_TEXTS: Final = 8
"""Passages embedded at once; a question waits for at most so many."""


class LocalEmbedding:
    """Implements ``Embedding`` with an embedder. May be used from any thread."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def passages(
        self,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule],
        embed_locally: Callable[[Sequence[str]], NDArray[np.float32]],
        yield_to_queries: Callable[[float], None],
        on_progress: Callable[[int], None],
    ) -> NDArray[np.float32]:
        """Embeds passages, a few at a time; see ``Embedding``."""
        vectors: list[NDArray[np.float32]] = []
        for first in range(0, len(texts), BATCH_TEXTS):
            on_progress(first)
            began = time.monotonic()
            vectors.append(embed_locally(texts[first : first + BATCH_TEXTS]))
            yield_to_queries(time.monotonic() - began)
        return np.concatenate(vectors) if vectors else embed_locally(texts)
