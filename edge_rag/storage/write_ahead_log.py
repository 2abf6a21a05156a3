"""SQLite's write-ahead log, looked over before SQLite takes it.

SQLite believes the log up to the first frame whose checksum is wrong, because that is how a write that was cut off
looks. A byte that flipped in a frame further up looks the same to it, and it would drop every transaction from there on
without a word. The difference: behind a cut there is nothing of the same log, behind a flipped byte its frames go on. A
frame's checksum continues the one stored in the frame before, so the frames behind the damage can still be told to be
whole.

Form of the log: https://sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np

from edge_rag.errors import StorageCorrupt

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_ORDERS = {0x377F0682: "<u4", 0x377F0683: ">u4"}
_PAGE_SIZES = frozenset(1 << power for power in range(9, 17))
_USUAL_PAGE_BYTES = 4096
_WORD = 0xFFFFFFFF


def require_whole_log(database: Path) -> None:
    """Refuses a log with damage in front of transactions that were committed; a log that was cut off passes.

    Args:
        database: Path of the database; no connection is open on it.

    Raises:
        StorageCorrupt: Committed transactions lie behind damage.
    """
    path = database.with_name(database.name + "-wal")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        if _is_damaged(file):
            raise StorageCorrupt(
                f"{path} is damaged in front of documents that were acknowledged; restore a backup with `edge-rag "
                f"restore`, or move the file away to go on without what it held"
            )


def _is_damaged(file: BinaryIO) -> bool:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return False
    magic, _, claimed_bytes, _, *log_salts, first, second = _HEADER.unpack(header)
    order = _ORDERS.get(magic, "<u4")
    page_bytes = claimed_bytes if claimed_bytes in _PAGE_SIZES else _USUAL_PAGE_BYTES
    header_agrees = magic in _ORDERS and _sum(header[:24], order, (0, 0)) == (first, second)
    previous, damaged = (first, second), not header_agrees
    while len(frame := file.read(_FRAME.size + page_bytes)) == _FRAME.size + page_bytes:
        _, commit, *salts, first, second = _FRAME.unpack_from(frame)
        # A damaged header's salts are no measure, but a header is synced before a frame is written behind it.
        ours = salts == log_salts
        agrees = (ours or not header_agrees) and _sum(frame[:8] + frame[_FRAME.size :], order, previous) == (
            first,
            second,
        )
        if damaged and commit and (agrees or (ours and not header_agrees)):
            return True
        damaged |= not agrees
        previous = first, second
    return False


def _sum(data: bytes, order: str, start: tuple[int, int]) -> tuple[int, int]:
    first, second = start
    words = np.frombuffer(data, dtype=order).tolist()
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _WORD
        second = (second + odd + first) & _WORD
    return first, second
