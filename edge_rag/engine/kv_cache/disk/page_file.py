"""A page as a file: bytes that say what they are and are checked before any of them is used.

    magic, format       8 bytes
    uses                uint32, how often the page had been used when it was written
    length              uint32, bytes of the content
    content             keys and values of the page's tokens in all layers, as the model runner gave them
    digest              32 bytes, BLAKE2b over all of the above and over what the file is to be

What it is to be is never read from the file: identity of the cache, trust domain and key are the reader's own. A file
that was altered, cut off, or belongs to another model, domain or key has another digest.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from edge_rag.engine.kv_cache.prefix_cache import PageKey

_HEADER: Final = struct.Struct("<8sII")
_MAGIC: Final = b"erKVpg\x00\x01"
_DIGEST_BYTES: Final = 32
_MOST_USES: Final = (1 << 32) - 1


class PageFileInvalid(Exception):
    """The bytes are not the page that was asked for."""


@dataclass(frozen=True, slots=True)
class PageName:
    """What a page file is to be.

    Attributes:
        identity: Of the model, the layout of its pages and the data directory.
        trust_domain: Who may find it.
        key: What it is found by.
    """

    identity: bytes
    trust_domain: str
    key: PageKey


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page that was read and is what it is to be.

    Attributes:
        content: Its bytes.
        uses: How often it had been used.
    """

    content: memoryview
    uses: int


def file_bytes(page_bytes: int) -> int:
    """Returns the size of a file for pages of a size, bytes."""
    return _HEADER.size + page_bytes + _DIGEST_BYTES


def encode_page(name: PageName, content: bytes, uses: int) -> bytes:
    """Returns a page as a file's bytes."""
    head = _HEADER.pack(_MAGIC, min(uses, _MOST_USES), len(content))
    return b"".join((head, content, _digest(name, head, content)))


def decode_page(name: PageName, data: bytes, page_bytes: int) -> StoredPage:
    """Reads a page.

    Args:
        name: What it is to be.
        data: The file.
        page_bytes: Bytes of a page.

    Raises:
        PageFileInvalid: It is something else.
    """
    if len(data) != file_bytes(page_bytes):
        raise PageFileInvalid(f"{len(data)} bytes, {file_bytes(page_bytes)} expected")
    view = memoryview(data)
    head, content, digest = view[: _HEADER.size], view[_HEADER.size : -_DIGEST_BYTES], view[-_DIGEST_BYTES:]
    magic, uses, length = _HEADER.unpack(head)
    if magic != _MAGIC or length != page_bytes:
        raise PageFileInvalid("its header is another format's")
    if _digest(name, head, content) != digest:
        raise PageFileInvalid("its digest does not match")
    return StoredPage(content, uses)


def _digest(name: PageName, head: bytes | memoryview, content: bytes | memoryview) -> bytes:
    digest = blake2b(digest_size=_DIGEST_BYTES, key=name.key, person=b"edge-rag KV page")
    domain = name.trust_domain.encode()
    for part in (name.identity, domain):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    digest.update(head)
    digest.update(content)
    return digest.digest()
