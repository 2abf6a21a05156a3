"""Ranges of stored texts, read without loading the whole text."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final

import apsw
import numpy as np

STEP: Final = 16_384
"""Characters between two known byte offsets of a text."""

_BLOCK_BYTES: Final = 256 << 10
_MAX_TEXTS: Final = 64
"""Texts whose offsets are kept; those of a text of 20 million characters take 50 KB."""


def character_offsets(blocks: Iterable[bytes]) -> list[int]:
    """Returns the byte offset of every ``STEP``-th character of a UTF-8 text, from the first one on."""
    offsets: list[int] = []
    characters = position = 0
    for block in blocks:
        starts = np.flatnonzero((np.frombuffer(block, dtype=np.uint8) & 0xC0) != 0x80)
        offsets.extend((starts[-characters % STEP :: STEP] + position).tolist())
        characters += len(starts)
        position += len(block)
    return offsets


class TextReader:
    """Reads ranges of the texts of documents. May be used from any thread.

    A text is read through SQLite's incremental I/O, so that a range costs the memory of the range. Where its characters
    begin is found in one pass over the text and remembered; a row number stands for one text for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offsets: OrderedDict[int, list[int]] = OrderedDict()

    def read(
        self, connection: apsw.Connection, document: int, start: int, end: int | None, max_bytes: int | None = None
    ) -> str:
        """Returns a range of a text, or as much from its start as ``max_bytes`` allow.

        Args:
            connection: In a transaction.
            document: Row number of the document.
            start: First character.
            end: One past the last character; None for the end of the text.
            max_bytes: Most bytes of UTF-8, at least 4; None for no bound.
        """
        with closing(connection.blob_open("main", "documents", "text", document, False)) as blob:
            size = blob.length()
            offsets = self._offsets_of(document, blob)
            step, skipped = divmod(start, STEP)
            if step >= len(offsets) or (end is not None and end <= start):
                return ""
            following = step + 1
            last = len(offsets) if end is None else -(-end // STEP)
            until = size if last >= len(offsets) else offsets[last]
            if max_bytes is not None:
                until = min(until, max_bytes + (offsets[following] if following < len(offsets) else size))
            blob.seek(offsets[step])
            # A bound may cut a character.
            read: bytes = blob.read(until - offsets[step])
        text = read.decode(errors="ignore" if until < size else "strict")
        text = text[skipped : None if end is None else skipped + end - start]
        return text if max_bytes is None else text.encode()[:max_bytes].decode(errors="ignore")

    def _offsets_of(self, document: int, blob: apsw.Blob) -> list[int]:
        with self._lock:
            offsets = self._offsets.get(document)
            if offsets is not None:
                self._offsets.move_to_end(document)
                return offsets
        offsets = character_offsets(_blocks(blob))
        with self._lock:
            self._offsets[document] = offsets
            if len(self._offsets) > _MAX_TEXTS:
                self._offsets.popitem(last=False)
        return offsets


def _blocks(blob: apsw.Blob) -> Iterator[bytes]:
    while block := blob.read(_BLOCK_BYTES):
        yield block
