"""Ranges of stored texts, read without loading the whole text."""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final

import apsw
import numpy as np

from edge_rag.core.documents.parts import ChunkPlace

STEP: Final = 16_384
"""Characters between two known byte offsets of a text."""

MAX_AROUND: Final = 2_000
"""Most characters on each side of a passage that are read with it."""

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


def whole_lines(text: str, start: int, end: int, from_begin: bool, to_end: bool) -> tuple[int, int]:
    """Returns the largest range of a text around another one that begins and ends between two blocks, or two lines.

    Args:
        start: First character of the range that is wanted.
        end: One past its last character.
    """
    first, past = (0 if from_begin else start), (len(text) if to_end else end)
    for separator in ("\n\n", "\n"):
        if first == start and (found := text.find(separator, 0, start)) >= 0:
            first = 0 if from_begin else found + len(separator)
        if past == end and (found := text.rfind(separator, end)) >= 0:
            past = len(text) if to_end else found
    return first, past


def chunk_reaching(connection: apsw.Connection, document: int, chunks: int, position: int) -> int:
    """Returns the ordinal of the first chunk of a document with text after a position; ``chunks`` if there is none."""

    def past(ordinal: int) -> int:
        row = connection.execute(
            "SELECT past FROM chunks WHERE document = ? AND ordinal = ?", (document, ordinal)
        ).fetchone()
        return int(row[0])

    # Chunks are in the order of the text, and a row is large.
    return bisect_right(range(chunks), position, key=past)


def chunk_places(
    connection: apsw.Connection, document: int, chunks: int, start: int, end: int
) -> tuple[ChunkPlace, ...]:
    """Returns the chunks of a document with text in a range, and the next one, in order.

    Args:
        end: One past the last character.
    """
    ordinal = chunk_reaching(connection, document, chunks, start)
    rows = connection.execute(
        "SELECT first, past, context, page FROM chunks WHERE document = ? AND ordinal >= ? ORDER BY ordinal",
        (document, ordinal),
    )
    found: list[ChunkPlace] = []
    with closing(rows):
        for first, until, context, page in rows:
            found.append(ChunkPlace(first, until, tuple(json.loads(context)), page))
            if first >= end:
                break
    return tuple(found)


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
