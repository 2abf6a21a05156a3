"""Token vectors of passages that were compared lately, so that a passage in demand is encoded once."""

from __future__ import annotations

from collections import OrderedDict

from edge_rag.core.ids import ChunkId
from edge_rag.core.passage import Passage
from edge_rag.reranker.candidate import model_text
from edge_rag.runtime.token_vectors import TokenVectors


class VectorCache:
    """Bounded; the passage that was used the longest ago goes first. For one thread at a time.

    A passage is known by its chunk as well as its text, so that equal texts in two collections are two entries and
    nobody can time what is asked of another collection.

    Args:
        capacity_bytes: Most memory that vectors and offsets may take; 0 keeps nothing.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._entries: OrderedDict[tuple[ChunkId, str], TokenVectors] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Memory that vectors and offsets take."""
        return self._bytes

    def get(self, passage: Passage) -> TokenVectors | None:
        """Returns a passage's vectors if they are kept."""
        key = _key(passage)
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, passage: Passage, vectors: TokenVectors) -> None:
        """Keeps a passage's vectors, making room for them; not if they alone are too large."""
        key, size = _key(passage), _bytes(vectors)
        if size > self._capacity_bytes:
            return
        if (replaced := self._entries.pop(key, None)) is not None:
            self._bytes -= _bytes(replaced)
        self._entries[key] = vectors
        self._bytes += size
        while self._bytes > self._capacity_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= _bytes(oldest)


def _key(passage: Passage) -> tuple[ChunkId, str]:
    return passage.chunk_id, model_text(passage)


def _bytes(vectors: TokenVectors) -> int:
    return vectors.vectors.nbytes + vectors.offsets.nbytes
