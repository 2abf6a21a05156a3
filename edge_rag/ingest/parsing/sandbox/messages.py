"""Messages between the daemon and the parser process: length-prefixed JSON or raw bytes.

Before its first document the process sends the media types it can return. The daemon then sends a request and the bytes
of a document. The process answers with the result: the parsed document, a picture of a page or the boxes of
characters, or with the reason for a rejection. Before that it may send scanned pages; the daemon answers each one with
the recognized words.

The process parses hostile files, so its answers are not trusted: they are plain JSON and numbers, checked field by
field, never unpickled, and pictures are pixels. Each answer repeats the token of its request, so a message sent too
early is not accepted as an answer.
"""

from __future__ import annotations

import json
import struct
import unicodedata
from collections.abc import Collection, Mapping
from typing import IO, Any

from edge_rag.core.documents.document import Block, BlockKind, ParsedDocument
from edge_rag.core.documents.lines import LineMap
from edge_rag.core.documents.metadata import decode_metadata, encode_metadata, usable_metadata, validate_metadata
from edge_rag.errors import (
    BrokenDocument,
    DocumentRejected,
    DocumentTooLarge,
    EmptyDocument,
    EncryptedDocument,
    InvalidRequest,
    UnsupportedFormat,
)
from edge_rag.ingest.parsing.document_builder import LONGEST_TITLE
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.pages import MAX_PIXELS, DocumentBoxes, PageBoxes, Picture
from edge_rag.ingest.parsing.pdf.ocr import Scan
from edge_rag.ingest.parsing.sandbox.confinement import Protection

_LENGTH_BYTES = 8
_ANSWER, _SCAN, _PICTURE, _BOXES = b"A", b"S", b"P", b"B"
_PICTURE_SIZES = struct.Struct("<II")
_BOXES_HEAD = struct.Struct("<32sI")
_PAGE_HEAD = struct.Struct("<IffI")
_SCAN_SIZES = struct.Struct("<III")
_LONGEST_REASON = 500
_LONGEST_EDGE = 1e6
_BYTES_A_CHARACTER = 8
"""A character takes up to four bytes, and the mark of a line that begins with it as many."""

_BYTES_A_BLOCK = 80
_BYTES_BESIDE = 2**20
_REJECTIONS: Mapping[str, type[DocumentRejected]] = {
    kind.__name__: kind
    for kind in (
        DocumentRejected,
        UnsupportedFormat,
        EncryptedDocument,
        BrokenDocument,
        EmptyDocument,
        DocumentTooLarge,
    )
}


def write_message(stream: IO[bytes], body: bytes) -> None:
    stream.write(len(body).to_bytes(_LENGTH_BYTES, "little"))
    stream.write(body)
    stream.flush()


def read_message(stream: IO[bytes], limit: int) -> bytes | None:
    """Reads one message.

    Args:
        limit: Longest message, bytes.

    Returns:
        The body, or None if the stream ends first.

    Raises:
        ValueError: Its length prefix exceeds ``limit``.
    """
    prefix = stream.read(_LENGTH_BYTES)
    if len(prefix) < _LENGTH_BYTES:
        return None
    length = int.from_bytes(prefix, "little")
    if length > limit:
        raise ValueError(f"a message of {length} bytes, at most {limit} are allowed")
    body = stream.read(length)
    return body if len(body) == length else None


def encode_ready(media_types: Collection[str], missing: Collection[Protection]) -> bytes:
    return json.dumps({"media_types": sorted(media_types), "missing": list(missing)}).encode()


def decode_ready(body: bytes) -> tuple[frozenset[str], tuple[Protection, ...]]:
    """Decodes the first message of a process.

    Raises:
        ValueError: It is not such a message.
    """
    ready = json.loads(body)
    try:
        media_types, missing = frozenset(ready["media_types"]), tuple(map(Protection, ready["missing"]))
    except (KeyError, TypeError) as error:
        raise ValueError("the first message is not one of a parser process") from error
    return media_types, missing


def encode_parsed(media_type: str, parsed: ParsedDocument) -> bytes:
    """Encodes the answer for a parsed document."""
    blocks = [(block.kind.value, block.start, block.end, block.level, block.page) for block in parsed.blocks]
    answer = {
        "format": media_type,
        "title": parsed.title,
        "text": parsed.text,
        "blocks": blocks,
        "pages": parsed.pages,
        "metadata": encode_metadata(usable_metadata(parsed.metadata)),
        "note": parsed.note[:_LONGEST_REASON],
        "lines": parsed.lines.steps(),
    }
    return _ANSWER + json.dumps(answer, ensure_ascii=False).encode()


def encode_rejection(error: DocumentRejected) -> bytes:
    return _ANSWER + json.dumps({"rejected": type(error).__name__, "reason": str(error)[:_LONGEST_REASON]}).encode()


def encode_scan(scan: Scan) -> bytes:
    return _SCAN + _SCAN_SIZES.pack(scan.width, scan.height, scan.dots_per_inch) + scan.grey


def encode_picture(picture: Picture) -> bytes:
    return _PICTURE + _PICTURE_SIZES.pack(picture.width, picture.height) + picture.pixels


def decode_picture(body: bytes, width: int) -> Picture:
    """Decodes an answer for a page that was drawn.

    Raises:
        ValueError: The answer is no picture of that width.
    """
    _raise_rejection(body)
    start = len(_PICTURE) + _PICTURE_SIZES.size
    if not body.startswith(_PICTURE) or len(body) < start:
        raise ValueError("the answer is no picture")
    found, height = _PICTURE_SIZES.unpack(body[len(_PICTURE) : start])
    if found != width or not 0 < width * height <= MAX_PIXELS or 3 * width * height != len(body) - start:
        raise ValueError("a picture of another size")
    return Picture(width, height, body[start:])


def encode_boxes(boxes: DocumentBoxes) -> bytes:
    """Encodes the answer for boxes of characters."""
    parts = [_BOXES, _BOXES_HEAD.pack(bytes.fromhex(boxes.text_sha256), len(boxes.pages))]
    for page in boxes.pages:
        parts += (_PAGE_HEAD.pack(page.page, page.width, page.height, len(page.packed)), page.packed)
    return b"".join(parts)


def decode_boxes(body: bytes, limits: ParsingLimits) -> DocumentBoxes:
    """Decodes an answer for boxes of characters.

    Raises:
        ValueError: The answer is not one that ``encode_boxes`` could have made.
    """
    _raise_rejection(body)
    if not body.startswith(_BOXES):
        raise ValueError("the answer has no boxes")
    try:
        digest, count = _BOXES_HEAD.unpack_from(body, len(_BOXES))
        at = len(_BOXES) + _BOXES_HEAD.size
        pages: list[PageBoxes] = []
        for _ in range(count):
            number, width, height, size = _PAGE_HEAD.unpack_from(body, at)
            at += _PAGE_HEAD.size
            page = PageBoxes(number, width, height, body[at : at + size])
            if not 1 <= number <= limits.max_pages or not (0 < width < _LONGEST_EDGE and 0 < height < _LONGEST_EDGE):
                raise ValueError("a page of an impossible size or number")
            if len(page.packed) != size:
                raise ValueError("fewer boxes than announced")
            _check_order(page, limits)
            pages.append(page)
            at += size
    except struct.error as error:
        raise ValueError("boxes that are cut off") from error
    if at != len(body):
        raise ValueError("more bytes than boxes")
    return DocumentBoxes(digest.hex(), tuple(pages))


def _check_order(page: PageBoxes, limits: ParsingLimits) -> None:
    reached = -1
    for each in page.characters():
        left, top, right, bottom = each.box
        if not reached < each.position < limits.max_characters or left >= right or top >= bottom:
            raise ValueError("a box out of order or without extent")
        reached = each.position


def decode_scan(body: bytes, limits: ParsingLimits) -> Scan | None:
    """Decodes a request to recognize a scanned page; None if the message is not one.

    Raises:
        ValueError: Width and height do not match the bytes, or exceed the limit.
    """
    if not body.startswith(_SCAN):
        return None
    start = len(_SCAN) + _SCAN_SIZES.size
    try:
        width, height, dots_per_inch = _SCAN_SIZES.unpack(body[len(_SCAN) : start])
    except struct.error as error:
        raise ValueError("a scan without sizes") from error
    if width * height != len(body) - start or not 0 < width * height <= limits.max_scan_pixels:
        raise ValueError("a scan whose size is wrong or above the limit")
    return Scan(width, height, dots_per_inch, body[start:])


def longest_answer(limits: ParsingLimits) -> int:
    """Longest message of a sound process, bytes."""
    document = _BYTES_A_CHARACTER * limits.max_characters + _BYTES_A_BLOCK * limits.max_blocks
    return max(document, limits.max_scan_pixels) + _BYTES_BESIDE


OUT_OF_MEMORY = encode_rejection(DocumentTooLarge("reading it takes more memory than is allowed"))
"""Last answer of a process; encoded in advance, because no memory is left when it is needed."""


def decode_answer(body: bytes, limits: ParsingLimits, media_types: Collection[str]) -> tuple[str, ParsedDocument]:
    """Decodes an answer.

    Args:
        limits: Limits that the document must keep.

    Raises:
        ValueError: The answer is not one that ``encode_parsed`` or ``encode_rejection`` could have made.
    """
    answer = _raise_rejection(body)
    try:
        if answer["format"] not in media_types:
            raise ValueError("the answer has a media type that the process did not announce")
        return answer["format"], _parsed(answer, limits)
    except (KeyError, TypeError, RecursionError, InvalidRequest) as error:
        raise ValueError(f"the answer has the wrong shape: {error}") from error


def _raise_rejection(body: bytes) -> dict[str, Any]:
    """Returns the JSON of an answer; empty if it is of another kind."""
    if not body.startswith(_ANSWER):
        return {}
    try:
        answer = json.loads(body[len(_ANSWER) :])
    except RecursionError as error:
        raise ValueError("the answer is nested too deeply") from error
    if not isinstance(answer, dict):
        raise ValueError("the answer is not a JSON object")
    if "rejected" in answer:
        kind = _REJECTIONS.get(str(answer["rejected"]))
        if kind is None:
            raise ValueError("the answer names an unknown rejection")
        raise kind(_readable(str(answer.get("reason", ""))))
    return answer


def _parsed(answer: dict[str, Any], limits: ParsingLimits) -> ParsedDocument:
    text, pages = _text(answer["text"]), answer["pages"]
    if pages is not None and not (_is_count(pages) and pages <= limits.max_pages):
        raise ValueError("the number of pages is wrong")
    if len(text) > limits.max_characters or len(answer["blocks"]) > limits.max_blocks:
        raise ValueError("the document exceeds a limit")
    blocks = _blocks(answer["blocks"], len(text), pages)
    metadata = validate_metadata(decode_metadata(_text(answer["metadata"])))
    title, note = _text(answer["title"])[:LONGEST_TITLE], _readable(_text(answer["note"]))
    lines = LineMap.of_steps(answer["lines"])
    if len(lines.part(0, len(text))) != len(lines):
        raise ValueError("a line begins behind the end of the text")
    return ParsedDocument(title, text, tuple(blocks), pages, metadata, note, lines)


def _blocks(values: Any, length: int, pages: int | None) -> list[Block]:
    blocks: list[Block] = []
    reached = 0
    for kind, start, end, level, page in values:
        in_order = _is_count(start) and _is_count(end) and reached <= start < end <= length
        on_page = page is None if pages is None else _is_count(page) and 1 <= page <= pages
        if not in_order or not on_page or not _is_count(level):
            raise ValueError("a block is out of order or out of range")
        blocks.append(Block(BlockKind(kind), start, end, level, page))
        reached = end
    return blocks


def _readable(reason: str) -> str:
    """Removes characters that move a terminal's cursor or change the direction of text."""
    shown = (" " if unicodedata.category(character)[0] in "CZ" else character for character in reason[:_LONGEST_REASON])
    return "".join(shown).strip()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is not a string")
    return value.encode("utf-8", "replace").decode()


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
