"""Implements ``Embedding`` over the local embedder and remotes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.placement import OffloadRule
from edge_rag.offload.encoding.bulk_embedding import BulkEmbedding, LocalEmbedder
from edge_rag.offload.encoding.client import EncoderOffload
from edge_rag.offload.routing import Place

Vectors = NDArray[np.float32]


class OffloadingEmbedding:
    """Embeds the passages of documents locally or on remotes."""

    def __init__(self, offload: EncoderOffload, batch_size: int) -> None:
        self._offload = offload
        self._batch_size = batch_size

    def passages(
        self,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule],
        embed_locally: Callable[[Sequence[str]], Vectors],
        yield_to_queries: Callable[[float], None],
        on_progress: Callable[[int], None],
    ) -> Vectors:
        """Embeds the passages of a document; see ``core.ports.Embedding``."""
        if not texts:
            return embed_locally(texts)
        decision = self._offload.place(rule(), len(texts))
        if decision.place is not Place.LOCAL:
            embedder = LocalEmbedder(embed_locally, yield_to_queries, self._batch_size)
            return BulkEmbedding(self._offload, decision, texts, rule, embedder, on_progress).run()
        parts: list[Vectors] = []
        for first in range(0, len(texts), self._batch_size):
            on_progress(first)
            part, started = texts[first : first + self._batch_size], self._offload.clock()
            parts.append(embed_locally(part))
            elapsed = self._offload.clock() - started
            self._offload.measure_local(len(part), elapsed)
            yield_to_queries(elapsed)
        return np.concatenate(parts)
