"""SQLite's file format, read without SQLite: headers, page checksums, the write-ahead log, and rows of B-tree pages.

SQLite refuses a database as a whole where a page on the way to a row is damaged. Here each page is read for itself, so
that one damaged page costs no more than its own rows. Formats: https://sqlite.org/fileformat2.html; the checksum of a
page: https://sqlite.org/cksumvfs.html.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count, zip_longest
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import numpy as np
from numpy.typing import NDArray

from edge_rag.storage.migrations import CHECKSUMS_SINCE

RESERVED_BYTES: Final = 8
"""Bytes that the checksum takes of each page."""

HEADER_BYTES: Final = 100
"""Length of the header at the start of the first page."""

_MAGIC: Final = b"SQLite format 3\0"
_PAGE_SIZES: Final = frozenset(1 << power for power in range(9, 17))
_USUAL_PAGE_BYTES: Final = 4096
_BLOCK_BYTES: Final = 1 << 20
_LARGEST_PAGE: Final = 1
"""Stands in the header for 65,536 bytes, which do not fit its two bytes."""

Value = int | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a database file."""

    page_bytes: int
    reserved_bytes: int
    pages: int
    schema: int
    application: int

    @classmethod
    def of(cls, start: bytes) -> Header | None:
        """Returns the header at the start of a file, or None if it is not one of SQLite."""
        if len(start) < HEADER_BYTES or not start.startswith(_MAGIC):
            return None
        (page_bytes,) = struct.unpack_from(">H", start, 16)
        page_bytes = 1 << 16 if page_bytes == _LARGEST_PAGE else page_bytes
        if page_bytes not in _PAGE_SIZES:
            return None
        (pages,), (schema,), (application,) = (struct.unpack_from(">I", start, at) for at in (28, 60, 68))
        return cls(page_bytes, start[20], pages, schema, application)


@cache
def _weights(words: int, order: str) -> tuple[NDArray[np.uint32], NDArray[np.uint32], tuple[int, int, int, int]]:
    """What each word counts for in the two sums, and what the sums at the start count for; all modulo 2 ** 32."""
    first, second = np.zeros(words, order), np.zeros(words, order)
    # A pair of words (x, y) turns the sums (s, t) into (s + t + x, s + 2 t + x + y).
    from_first, from_second = (1, 0), (0, 1)
    for at in range(words - 2, -1, -2):
        (a, b), (c, d) = from_first, from_second
        first[at], first[at + 1] = (a + b) & _WORD, b & _WORD
        second[at], second[at + 1] = (c + d) & _WORD, d & _WORD
        from_first, from_second = ((a + b) & _WORD, (a + 2 * b) & _WORD), ((c + d) & _WORD, (c + 2 * d) & _WORD)
    return first.astype(np.uint32), second.astype(np.uint32), (*from_first, *from_second)


_WORD = 0xFFFFFFFF


def checksum(data: bytes, order: str = "<u4", start: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Returns the two sums that SQLite keeps of pages and of frames of its log.

    They are linear in the words, so one product with a row of weights gives what SQLite computes word by word.

    Args:
        data: A multiple of eight bytes.
        order: How words are stored: ``<u4`` or ``>u4``.
    """
    words = np.frombuffer(data, dtype=order).astype(np.uint32)
    first, second, (a, b, c, d) = _weights(len(words), order)
    s, t = start
    return (
        (int((first * words).sum(dtype=np.uint32)) + a * s + b * t) & _WORD,
        (int((second * words).sum(dtype=np.uint32)) + c * s + d * t) & _WORD,
    )


def whole_pages(pages: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Returns for each of many pages of a database whether its checksum is right, [pages].

    Args:
        pages: Pages with checksums, uint8 [pages, bytes].
    """
    words = pages.view("<u4").astype(np.uint32, copy=False)
    content, stored = words[:, : -RESERVED_BYTES // 4], words[:, -RESERVED_BYTES // 4 :]
    first, second, _ = _weights(content.shape[1], "<u4")
    whole: NDArray[np.bool_] = (np.einsum("pw,w->p", content, first) == stored[:, 0]) & (
        np.einsum("pw,w->p", content, second) == stored[:, 1]
    )
    return whole


_LOG_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_ORDERS = {0x377F0682: "<u4", 0x377F0683: ">u4"}


@dataclass(frozen=True, slots=True)
class Log:
    """The content of a write-ahead log.

    Attributes:
        pages: Offset in the file of the latest committed version of each page; None if that is damaged. Pages have
            no checksum of their own here, since frames have one.
        size: Number of the database's pages after the last commit; 0 without a commit.
        is_damaged: Whether commits follow the damage. A log with an interrupted write at its end is not damaged.
    """

    pages: dict[int, int | None]
    size: int
    is_damaged: bool


def read_log(file: BinaryIO) -> Log:
    """Reads a write-ahead log.

    SQLite takes the log up to the first frame with a wrong checksum, because an interrupted write looks like that. A
    byte that flipped in an earlier frame looks the same, and SQLite would silently drop every later transaction. The
    two differ in what follows: nothing of the same log follows an interrupted write, while valid frames follow a
    flipped byte. The checksum of a frame continues the one stored in the frame before it, so the frames after the
    damage can still be verified.
    """
    header = file.read(_LOG_HEADER.size)
    if len(header) < _LOG_HEADER.size:
        return Log({}, 0, is_damaged=False)
    magic, _, stated_bytes, _, *log_salts, first, second = _LOG_HEADER.unpack(header)
    order = _ORDERS.get(magic, "<u4")
    page_bytes = stated_bytes if stated_bytes in _PAGE_SIZES else _USUAL_PAGE_BYTES
    header_is_valid = magic in _ORDERS and checksum(header[:24], order) == (first, second)
    previous, damaged = (first, second), not header_is_valid
    pages: dict[int, int | None] = {}
    uncommitted: dict[int, int | None] = {}
    size, is_damaged = 0, False
    for at in count(_LOG_HEADER.size, _FRAME.size + page_bytes):
        frame = file.read(_FRAME.size + page_bytes)
        if len(frame) < _FRAME.size + page_bytes:
            return Log(pages, size, is_damaged)
        number, commit, *salts, first, second = _FRAME.unpack_from(frame)
        # The salts of a damaged header prove nothing, but a header is synced before a frame is written after it.
        same_log = salts == log_salts
        is_valid = (same_log or not header_is_valid) and checksum(
            frame[:8] + frame[_FRAME.size :], order, previous
        ) == (first, second)
        is_damaged |= damaged and commit > 0 and (is_valid or (same_log and not header_is_valid))
        damaged |= not is_valid
        uncommitted[number] = at + _FRAME.size if is_valid else None
        if commit and is_valid:
            pages |= uncommitted
            uncommitted, size = {}, commit
        previous = first, second
    raise AssertionError("a count does not end")


_TABLE_LEAF, _TABLE_INTERIOR, _INDEX_LEAF, _INDEX_INTERIOR = 13, 5, 10, 2
_MAX_DEPTH: Final = 20
_INTEGER_BYTES: Final = (0, 1, 2, 3, 4, 6, 8)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table.

    Attributes:
        types: Type of each column: ``n`` null, ``i`` integer, ``r`` real, ``t`` text, ``b`` blob.
        values: Values of the first columns; less than there are types where a page that the row continues on is
            damaged.
    """

    number: int
    types: str
    values: tuple[Value, ...]

    @property
    def is_whole(self) -> bool:
        return len(self.values) == len(self.types)


class PageReader:
    """Reads the pages of a database and of its log that are whole; writes nothing.

    Attributes:
        count: Number of pages that the database has, or had before it was cut off.
        header: The header; None if the file does not start with one.
    """

    def __init__(self, path: Path) -> None:
        """Opens the files."""
        self._file = path.open("rb")
        try:
            self._log_file: BinaryIO = path.with_name(f"{path.name}-wal").open("rb")
        except FileNotFoundError:
            self._log_file = io.BytesIO()
        log = read_log(self._log_file)
        self._in_log = log.pages
        start = self._file.read(HEADER_BYTES)
        first = log.pages.get(1)
        if first is not None:
            self._log_file.seek(first)
            start = self._log_file.read(HEADER_BYTES)
        self.header = header = Header.of(start)
        self._has_checksums = header is None or header.reserved_bytes > 0 or header.schema >= CHECKSUMS_SINCE
        self._page_bytes = _USUAL_PAGE_BYTES if header is None else header.page_bytes
        self.count = 1
        if header is None or self.page(1) is None:
            header, self._page_bytes = None, _USUAL_PAGE_BYTES  # a damaged page is not relied on
        self._usable = self._page_bytes - (RESERVED_BYTES if self._has_checksums else 0)
        in_file = -(-os.fstat(self._file.fileno()).st_size // self._page_bytes)
        self.count = log.size or (in_file if header is None else header.pages or in_file)

    def close(self) -> None:
        self._file.close()
        self._log_file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def page(self, number: int) -> bytes | None:
        """Returns a page; None if it is damaged or missing."""
        if not 1 <= number <= self.count:
            return None
        if number in self._in_log:
            offset = self._in_log[number]
            return None if offset is None else self._read(self._log_file, offset)
        page = self._read(self._file, (number - 1) * self._page_bytes)
        if page is None or not self._has_checksums:
            return page
        return page if checksum(page[:-RESERVED_BYTES]) == struct.unpack("<2I", page[-RESERVED_BYTES:]) else None

    def _read(self, file: BinaryIO, offset: int) -> bytes | None:
        file.seek(offset)
        page = file.read(self._page_bytes)
        return page if len(page) == self._page_bytes else None

    def damaged(self) -> Iterator[int]:
        """Yields the numbers of damaged and missing pages."""
        block = _BLOCK_BYTES // self._page_bytes
        for first in range(1, self.count + 1, block):
            numbers = range(first, min(first + block, self.count + 1))
            # One by one: pages of the log and pages without a checksum, and all of those whose checksum looks wrong.
            for number, whole in zip_longest(numbers, self._whole(first, len(numbers)), fillvalue=False):
                if (not whole or number in self._in_log) and self.page(number) is None:
                    yield number

    def _whole(self, first: int, count: int) -> list[bool]:
        if not self._has_checksums:
            return []
        self._file.seek((first - 1) * self._page_bytes)
        content = self._file.read(count * self._page_bytes)
        rows = len(content) // self._page_bytes
        pages = np.frombuffer(content, np.uint8, rows * self._page_bytes).reshape(rows, self._page_bytes)
        whole: list[bool] = whole_pages(pages).tolist()
        return whole

    def rows(self, first: int = 1, last: int | None = None) -> Iterator[Row]:
        """Yields the rows of all tables, by page; what table a row is of shows in its types only.

        Args:
            last: Number of the last one; None for the last of all.
        """
        for number in range(first, (last or self.count) + 1):
            page = self.page(number)
            if page is not None and page[_start(number)] == _TABLE_LEAF:
                yield from self._rows_of(number, page)

    def entries(self, root: int, depth: int = 0) -> Iterator[tuple[Value, ...]]:
        """Yields the entries of an index in order, without those that only a damaged page leads to."""
        page = self.page(root)
        if page is None or depth > _MAX_DEPTH or page[_start(root)] not in (_INDEX_LEAF, _INDEX_INTERIOR):
            return
        is_leaf = page[_start(root)] == _INDEX_LEAF
        for cell in _cells(root, page):
            if not is_leaf:
                yield from self.entries(_int(page, cell, 4), depth + 1)
            try:
                size, at = _varint(page, cell if is_leaf else cell + 4)
                _, values = _record(self._payload(page, at, size, is_table=False))
            except (IndexError, struct.error, UnicodeDecodeError):
                continue
            yield values
        if not is_leaf:
            yield from self.entries(_int(page, _start(root) + 8, 4), depth + 1)

    def _rows_of(self, number: int, page: bytes) -> Iterator[Row]:
        for cell in _cells(number, page):
            try:
                size, at = _varint(page, cell)
                key, at = _varint(page, at)
                types, values = _record(self._payload(page, at, size, is_table=True))
            except (IndexError, struct.error, UnicodeDecodeError):
                continue
            yield Row(key - (1 << 64) if key >> 63 else key, types, values)

    def _payload(self, page: bytes, at: int, size: int, *, is_table: bool) -> bytes:
        """Returns the readable part of a payload: all of it, or the part before a damaged page."""
        most = self._usable - 35 if is_table else (self._usable - 12) * 64 // 255 - 23
        if size <= most:
            return page[at : at + size]
        least = (self._usable - 12) * 32 // 255 - 23
        here = least + (size - least) % (self._usable - 4)
        here = here if here <= most else least
        parts, following, left = [page[at : at + here]], _int(page, at + here, 4), size - here
        while left > 0 and (overflow := self.page(following)) is not None:
            parts.append(overflow[4 : min(self._usable, 4 + left)])
            left -= len(parts[-1])
            following = _int(overflow, 0, 4)
        return b"".join(parts)


def _start(number: int) -> int:
    return HEADER_BYTES if number == 1 else 0


def _cells(number: int, page: bytes) -> Iterator[int]:
    start = _start(number)
    pointers = start + (8 if page[start] in (_TABLE_LEAF, _INDEX_LEAF) else 12)
    for cell in range(_int(page, start + 3, 2)):
        yield _int(page, pointers + 2 * cell, 2)


def _int(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(8):
        byte = data[at + place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    return value << 8 | data[at + 8], at + 9


def _record(payload: bytes) -> tuple[str, tuple[Value, ...]]:
    """Decodes a record: the type of each column, and the values as far as the payload goes."""
    past, at = _varint(payload, 0)
    codes = []
    while at < past:
        code, at = _varint(payload, at)
        codes.append(code)
    values: list[Value] = []
    for code in codes:
        size = (code - 12) // 2 if code >= 12 else 8 if code == 7 else 0 if code > 7 else _INTEGER_BYTES[code]
        if at + size > len(payload):
            break
        values.append(_value(code, payload[at : at + size]))
        at += size
    return "".join(map(_type, codes)), tuple(values)


def _type(code: int) -> str:
    if code >= 12:
        return "bt"[code % 2]
    return "n" if code == 0 else "r" if code == 7 else "i"


def _value(code: int, data: bytes) -> Value:
    if code >= 12:
        return data.decode() if code % 2 else data
    match code:
        case 0:
            return None
        case 7:
            (value,) = struct.unpack(">d", data)
            return float(value)
        case 8 | 9:
            return code - 8
    return int.from_bytes(data, "big", signed=True)
