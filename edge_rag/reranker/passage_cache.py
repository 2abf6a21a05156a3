"""What was read of passages that were compared lately, so that a passage in demand is encoded once."""

from __future__ import annotations

from collections import OrderedDict

from edge_rag.core.ids import ChunkId
from edge_rag.core.passage import Passage
from edge_rag.reranker.candidate import ReadPassage, model_text


class PassageCache:
    """Bounded; the passage that was used the longest ago goes first. For one thread at a time.

    A passage is known by its chunk as well as its text, so that equal texts in two collections are two entries and
    nobody can time what is asked of another collection.

    Args:
        capacity_bytes: Most memory that passages may take; 0 keeps nothing.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._entries: OrderedDict[tuple[ChunkId, str], ReadPassage] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Memory that passages take, about."""
        return self._bytes

    def get(self, passage: Passage) -> ReadPassage | None:
        """Returns what was read of a passage if it is kept."""
        key = _key(passage)
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, passage: Passage, read: ReadPassage) -> None:
        """Keeps what was read of a passage, making room for it; not if it alone is too large."""
        key, size = _key(passage), read.bytes
        if size > self._capacity_bytes:
            return
        if (replaced := self._entries.pop(key, None)) is not None:
            self._bytes -= replaced.bytes
        self._entries[key] = read
        self._bytes += size
        while self._bytes > self._capacity_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.bytes


def _key(passage: Passage) -> tuple[ChunkId, str]:
    return passage.chunk_id, model_text(passage)
