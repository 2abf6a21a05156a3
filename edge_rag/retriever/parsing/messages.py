"""What the daemon and the parser process say to each other: a JSON header of known size, then raw bytes.

The parser process reads hostile files, so its answers are not trusted either: they are plain JSON, checked field by
field, never unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from edge_rag.core.document import Block, BlockKind, ParsedDocument
from edge_rag.core.metadata import checked_metadata, usable_metadata
from edge_rag.core.metadata_json import decode_metadata, encode_metadata
from edge_rag.errors import (
    BrokenDocument,
    DocumentRejected,
    DocumentTooLarge,
    EmptyDocument,
    EncryptedDocument,
    InvalidRequest,
    UnsupportedFormat,
)
from edge_rag.retriever.parsing.formats import DocumentFormat

_LENGTH_BYTES = 8
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
    """Writes one length-prefixed message."""
    stream.write(len(body).to_bytes(_LENGTH_BYTES, "little"))
    stream.write(body)
    stream.flush()


def read_message(stream: IO[bytes], limit: int) -> bytes | None:
    """Reads one message.

    Args:
        stream: Where from.
        limit: Longest message, bytes.

    Returns:
        Its body, or None where the stream ends before it does.

    Raises:
        ValueError: It is announced to be longer than ``limit``.
    """
    prefix = stream.read(_LENGTH_BYTES)
    if len(prefix) < _LENGTH_BYTES:
        return None
    length = int.from_bytes(prefix, "little")
    if length > limit:
        raise ValueError(f"a message of {length} bytes, at most {limit} are allowed")
    body = stream.read(length)
    return body if len(body) == length else None


def encode_parsed(document_format: DocumentFormat, parsed: ParsedDocument) -> bytes:
    """The answer for a document that was read."""
    blocks = [(block.kind.value, block.start, block.end, block.level, block.page) for block in parsed.blocks]
    answer = {
        "format": document_format.value,
        "title": parsed.title,
        "text": parsed.text,
        "blocks": blocks,
        "pages": parsed.pages,
        "metadata": encode_metadata(usable_metadata(parsed.metadata)),
    }
    return json.dumps(answer, ensure_ascii=False).encode()


def encode_rejection(error: DocumentRejected) -> bytes:
    """The answer for a document that was refused."""
    return json.dumps({"rejected": type(error).__name__, "reason": str(error)}).encode()


OUT_OF_MEMORY = encode_rejection(DocumentTooLarge("reading it takes more memory than is allowed"))
"""The last answer of a process; made in advance, since there is no memory left to make it with."""


def decode_answer(body: bytes) -> tuple[DocumentFormat, ParsedDocument]:
    """Reads an answer.

    Raises:
        DocumentRejected: The parser process refused the document.
        ValueError: The answer is not one that ``encode_parsed`` or ``encode_rejection`` could have made.
    """
    answer = json.loads(body)
    if not isinstance(answer, dict):
        raise ValueError("the answer is no object")
    if "rejected" in answer:
        kind = _REJECTIONS.get(str(answer["rejected"]))
        if kind is None:
            raise ValueError("the answer names no known rejection")
        raise kind(str(answer.get("reason", "")))
    try:
        text, pages = _text(answer["text"]), answer["pages"]
        if pages is not None and not _is_count(pages):
            raise ValueError("the number of pages is none")
        blocks = _blocks(answer["blocks"], len(text), pages)
        metadata = checked_metadata(decode_metadata(_text(answer["metadata"])))
        parsed = ParsedDocument(_text(answer["title"]), text, tuple(blocks), pages, metadata)
        return DocumentFormat(answer["format"]), parsed
    except (KeyError, TypeError, InvalidRequest) as error:
        raise ValueError(f"the answer has the wrong shape: {error}") from error


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


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is none")
    return value.encode("utf-8", "replace").decode()


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
