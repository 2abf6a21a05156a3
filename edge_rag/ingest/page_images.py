"""Pages of stored PDFs as pictures, and where a range of the text is on them."""

from __future__ import annotations

import hashlib
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from edge_rag.core.documents.document import DocumentInfo
from edge_rag.errors import DocumentRejected, InvalidRequest, PageUnavailable
from edge_rag.ingest.parsing.pages import BOX_SCALE, CharacterBox, PageBoxes, Picture, RelativeBox
from edge_rag.ingest.parsing.sandbox.pool import ParserPool
from edge_rag.ingest.parsing.sandbox.process import ParserProcess
from edge_rag.storage.documents import DocumentStore

CACHE_BYTES: Final = 4 << 20
"""Capacity of the caches of pictures and of boxes together, bytes."""

MAX_WIDTH: Final = 2_000
"""Largest width of a picture, pixels."""

DEFAULT_WIDTH: Final = 1_000
"""Width of a picture unless another is asked for, pixels."""

_PDF: Final = "application/pdf"
_PAGE_BYTES: Final = 256  # of an entry without its contents
_TEXT_BYTES: Final = 1 << 20
_T = TypeVar("_T")

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, 0 to 1 of the page as it is shown, y downwards."""


@dataclass(frozen=True, slots=True)
class PagePicture:
    """A picture of a page.

    Attributes:
        page: 1-based page number.
    """

    info: DocumentInfo
    page: int
    png: bytes


@dataclass(frozen=True, slots=True)
class MarkedPage:
    """A page and where a range of the text is on it.

    Attributes:
        page: 1-based page number.
        boxes: One for each stretch of a line that is in the range, in the order of the text.
        continues: Whether the range has text after the last of the page.
    """

    info: DocumentInfo
    page: int
    width: float
    height: float
    boxes: tuple[Box, ...]
    continues: bool


class PageImages:
    """Draws pages of stored PDFs, and finds ranges of the text on them. May be used from any thread.

    Documents are opened by the confined parser processes that also read them. The boxes of a document are found by
    reading it again, and are returned only if that gives the stored text.
    """

    def __init__(self, store: DocumentStore, parsers: ParserPool, capacity_bytes: int = CACHE_BYTES) -> None:
        self._store = store
        self._parsers = parsers
        self._pictures: _Cache[bytes] = _Cache(capacity_bytes // 2, lambda png: len(png) + _PAGE_BYTES)
        self._boxes: _Cache[PageBoxes] = _Cache(capacity_bytes // 2, lambda page: len(page.packed) + _PAGE_BYTES)

    def picture(
        self, collection: str, document: str, page: int, width: int, marked: tuple[int, int] | None = None
    ) -> PagePicture:
        """Draws a page.

        Args:
            page: 1-based page number.
            width: Width of the picture, 1 to ``MAX_WIDTH`` pixels.
            marked: Range of the text that is marked on it; None for none.
        """
        if not 1 <= width <= MAX_WIDTH:
            raise InvalidRequest("width", f"must be 1 to {MAX_WIDTH:,} pixels, is {width:,}")
        info = self._require(collection, document, page)
        found = () if marked is None else stretches(self._page(info, page), *marked)
        key = (*_key(info, page), width, *found)
        png = self._pictures.get(key)
        if png is None:
            drawn = self._with_parser(
                info, lambda parser, content: parser.draw(content, page, width, found, collection)
            )
            png = encode_png(drawn)
            self._pictures.put(key, png)
        return PagePicture(info, page, png)

    def boxes(self, collection: str, document: str, page: int, start: int, end: int) -> MarkedPage:
        """Finds a range of a document's text on a page.

        Args:
            page: 1-based page number.
            end: One past the last one.
        """
        info = self._require(collection, document, page)
        found = self._page(info, page)
        boxes = tuple(_relative(box) for box in stretches(found, start, end))
        last = max((each.position for each in found.characters()), default=-1)
        continues = page < (info.pages or 0) and last < min(end, info.characters) - 1
        return MarkedPage(info, page, found.width, found.height, boxes, continues)

    def forget(self, collection: str) -> None:
        self._pictures.drop(collection)
        self._boxes.drop(collection)

    def _require(self, collection: str, document: str, page: int) -> DocumentInfo:
        info, _ = self._store.get(collection, document, 0, 0)
        if info.media_type != _PDF or info.pages is None:
            raise PageUnavailable(f"document {info.name!r} has no pages: its format is {info.media_type}, not PDF")
        if not 1 <= page <= info.pages:
            raise InvalidRequest("page", f"must be 1 to {info.pages:,}, the pages of {info.name!r}; is {page:,}")
        return info

    def _page(self, info: DocumentInfo, page: int) -> PageBoxes:
        known = self._boxes.get(_key(info, page))
        if known is not None:
            return known
        found = self._with_parser(info, lambda parser, content: parser.boxes(content, page, info.collection))
        if found.text_sha256 != self._text_sha256(info):
            raise PageUnavailable(
                f"the text of {info.name!r} was made by another version or with other settings, so its places on pages "
                "are not known; delete the document and ingest it again"
            )
        wanted = None
        for each in found.pages:
            self._boxes.put(_key(info, each.page), each)
            wanted = each if each.page == page else wanted
        if wanted is None:
            raise PageUnavailable(f"the boxes of page {page:,} of {info.name!r} could not be read")
        return wanted

    def _with_parser(self, info: DocumentInfo, work: Callable[[ParserProcess, bytes], _T]) -> _T:
        _, file = self._store.open_original(info.collection, info.document_id)
        with closing(file):
            content = file.read(0, file.size_bytes)
        try:
            with self._parsers.acquire(info.collection) as parser:
                return work(parser, content)
        except DocumentRejected as error:
            raise PageUnavailable(f"{info.name!r} cannot be shown: {error}") from error

    def _text_sha256(self, info: DocumentInfo) -> str:
        digest, at = hashlib.sha256(), 0
        while at < info.characters:
            _, text = self._store.get(info.collection, info.document_id, at, None, _TEXT_BYTES)
            if not text:
                break
            digest.update(text.encode())
            at += len(text)
        return digest.hexdigest()


def stretches(page: PageBoxes, start: int, end: int) -> tuple[RelativeBox, ...]:
    """Returns one box for each stretch of a line that is in a range of the text, in the order of the text."""
    found: list[RelativeBox] = []
    before: CharacterBox | None = None
    for each in page.characters():
        if not start <= each.position < end:
            continue
        if before is not None and each.line == before.line and _is_beside(before.box, each.box):
            (left, top, right, bottom), box = found[-1], each.box
            found[-1] = min(left, box[0]), min(top, box[1]), max(right, box[2]), max(bottom, box[3])
        else:
            found.append(each.box)
        before = each
    return tuple(found)


def _is_beside(one: RelativeBox, other: RelativeBox) -> bool:
    """Whether two characters are on one line, in whichever direction it runs: a stretch may end on the next one."""
    return _overlap(one[0], one[2], other[0], other[2]) or _overlap(one[1], one[3], other[1], other[3])


def _overlap(start: int, end: int, other_start: int, other_end: int) -> bool:
    shorter = min(end - start, other_end - other_start)
    return 2 * (min(end, other_end) - max(start, other_start)) >= shorter


def encode_png(picture: Picture) -> bytes:
    """Encodes a picture as PNG (ISO/IEC 15948): 8 bits a channel, no interlacing, no filter."""
    packer = zlib.compressobj(6)
    row = 3 * picture.width
    parts = [
        packer.compress(b"\0" + picture.pixels[start : start + row]) for start in range(0, len(picture.pixels), row)
    ]
    header = struct.pack(">IIBBBBB", picture.width, picture.height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", b"".join((*parts, packer.flush()))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


_Key = tuple[object, ...]


class _Cache(Generic[_T]):
    """The latest values that fit, by keys that begin with a collection. Any thread."""

    def __init__(self, capacity_bytes: int, size: Callable[[_T], int]) -> None:
        self._capacity_bytes = capacity_bytes
        self._size = size
        self._lock = threading.Lock()
        self._values: OrderedDict[_Key, _T] = OrderedDict()
        self._bytes = 0

    def get(self, key: _Key) -> _T | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: _Key, value: _T) -> None:
        with self._lock:
            self._pop([key])
            if self._size(value) > self._capacity_bytes:
                return
            self._values[key] = value
            self._bytes += self._size(value)
            while self._bytes > self._capacity_bytes:
                self._pop([next(iter(self._values))])

    def drop(self, collection: str) -> None:
        with self._lock:
            self._pop([key for key in self._values if key[0] == collection])

    def _pop(self, keys: Sequence[_Key]) -> None:
        for key in keys:
            if key in self._values:
                self._bytes -= self._size(self._values.pop(key))


def _key(info: DocumentInfo, page: int) -> _Key:
    return info.collection, info.document_id, info.ingested_at, page


def _relative(box: RelativeBox) -> Box:
    left, top, right, bottom = (round(side / BOX_SCALE, 5) for side in box)
    return left, top, right, bottom
