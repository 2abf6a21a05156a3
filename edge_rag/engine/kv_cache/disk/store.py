"""Pages in files, within a budget.

    <folder>/<identity>/<collection>-<epoch>/<key>      one file a page

One file a page, so that each removal is one call: unlink for a page, removing a folder for an epoch, and the space is
free at once. A single file of slots would keep the bytes of a removed collection until they are overwritten; SQLite
would write each page twice and sync without need.

Nothing is synced. A file half written at a power loss has a wrong digest and is removed when it is read. Deleted text
cannot come back: a page is looked up only under its collection's current epoch, the transaction that removes text ends
the epoch, and folders of other epochs are removed before the first page is read.

The format of a file, which is verified before use:

    magic, format       8 bytes
    uses                uint32, how often the page had been used when it was written
    length              uint32, bytes of the content
    content             keys and values of the page's tokens in all layers, as the model runner gave them
    digest              32 bytes, BLAKE2b over all of the above and over the page's name

The name (identity of the cache, trust domain, key) is not read from the file: the reader supplies it. A file that was
changed, cut off, or belongs to another model, domain or key has another digest.
"""

from __future__ import annotations

import os
import shutil
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from edge_rag.engine.kv_cache.prefix_cache import PageKey

_HEADER: Final = struct.Struct("<8sII")
_MAGIC: Final = b"erKVpg\x00\x01"
_DIGEST_BYTES: Final = 32
_MAX_USES: Final = (1 << 32) - 1


class PageFileInvalid(Exception):
    """The file is not the expected page."""


@dataclass(frozen=True, slots=True)
class PageName:
    """Identity of a page."""

    identity: bytes
    trust_domain: str
    key: PageKey


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page that was read and verified.

    Attributes:
        content: Its bytes.
    """

    content: memoryview
    uses: int


def file_bytes(page_bytes: int) -> int:
    """Returns the file size for a page size, bytes."""
    return _HEADER.size + page_bytes + _DIGEST_BYTES


def encode_page(name: PageName, content: bytes, uses: int) -> bytes:
    """Returns the bytes of a page's file."""
    head = _HEADER.pack(_MAGIC, min(uses, _MAX_USES), len(content))
    return b"".join((head, content, _digest(name, head, content)))


def decode_page(name: PageName, data: bytes, page_bytes: int) -> StoredPage:
    """Verifies a page's file and returns the page.

    Raises:
        PageFileInvalid: It is not that page.
    """
    if len(data) != file_bytes(page_bytes):
        raise PageFileInvalid(f"{len(data)} bytes, {file_bytes(page_bytes)} expected")
    view = memoryview(data)
    head, content, digest = view[: _HEADER.size], view[_HEADER.size : -_DIGEST_BYTES], view[-_DIGEST_BYTES:]
    magic, uses, length = _HEADER.unpack(head)
    if magic != _MAGIC or length != page_bytes:
        raise PageFileInvalid("its header has another format")
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


_NAME_BYTES: Final = 16
_Entry = tuple[str, str]  # folder of the collection's epoch, file name


class PageStore:
    """Keeps pages on disk. Any thread; methods raise OSError where the disk fails.

    Args:
        folder: Folder of the files; created if absent, used by nothing else.
        identity: Differs wherever equal tokens give other bytes. Pages of another identity are removed.
        budget_bytes: Most bytes of all files.
    """

    def __init__(
        self, folder: Path, identity: bytes, page_bytes: int, budget_bytes: int, epochs: Mapping[str, int]
    ) -> None:
        self._identity = identity
        self._page_bytes = page_bytes
        self._capacity = budget_bytes // file_bytes(page_bytes)
        self._root = folder / identity.hex()[: 2 * _NAME_BYTES]
        self._epochs = {_collection_name(name): epoch for name, epoch in epochs.items()}
        self._files: OrderedDict[_Entry, None] = OrderedDict()
        self._changing = threading.Lock()
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sweep(folder)

    @property
    def identity(self) -> bytes:
        return self._identity

    def __len__(self) -> int:
        return len(self._files)

    @property
    def capacity(self) -> int:
        return self._capacity

    def touch(self, trust_domain: str, key: PageKey) -> bool:
        entry = self._entry(trust_domain, key)
        with self._changing:
            if entry is None or entry not in self._files:
                return False
            self._files.move_to_end(entry)
            return True

    def has(self, trust_domain: str, key: PageKey) -> bool:
        entry = self._entry(trust_domain, key)
        return entry is not None and entry in self._files

    def has_ended(self, trust_domain: str) -> bool:
        entry = self._entry(trust_domain, PageKey(b""))
        return entry is not None and self._is_over(entry)

    def write(self, trust_domain: str, key: PageKey, content: bytes, uses: int) -> bool:
        """Writes a page; removes the least recently used ones when the budget is used up.

        Returns:
            False if the collection's epoch has ended or the budget is less than a page.
        """
        entry = self._entry(trust_domain, key)
        if entry is None or not self._capacity:
            return False
        data = encode_page(PageName(self._identity, trust_domain, key), content, uses)
        with self._changing:
            if self._is_over(entry):
                return False
            while len(self._files) >= self._capacity and entry not in self._files:
                self._remove(next(iter(self._files)))
            path = self._path(entry)
            path.parent.mkdir(exist_ok=True, mode=0o700)
            try:
                path.write_bytes(data)
            except OSError:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                raise
            self._files[entry] = None
            self._files.move_to_end(entry)
        return True

    def read(self, trust_domain: str, key: PageKey) -> StoredPage | None:
        """Reads a page; None if it does not exist."""
        entry = self._entry(trust_domain, key)
        if entry is None or entry not in self._files or self._is_over(entry):
            return None
        try:
            with self._path(entry).open("rb") as file:
                data = file.read(file_bytes(self._page_bytes) + 1)
            os.utime(self._path(entry))
        except FileNotFoundError:
            with self._changing:
                self._files.pop(entry, None)
            return None
        try:
            page = decode_page(PageName(self._identity, trust_domain, key), data, self._page_bytes)
        except PageFileInvalid:
            with self._changing:
                self._remove(entry)
            raise
        with self._changing:
            if self._is_over(entry):
                return None
            if entry in self._files:
                self._files.move_to_end(entry)
        return page

    def forget(self, collection: str, epoch: int) -> None:
        """Removes the pages of a collection's epochs before this one; no more of them are written or read."""
        name = _collection_name(collection)
        with self._changing:
            self._epochs[name] = max(epoch, self._epochs.get(name, 0))
            ended = {entry for entry in self._files if entry[0].startswith(name) and self._is_over(entry)}
            for entry in ended:
                del self._files[entry]
            for folder in {entry[0] for entry in ended}:
                shutil.rmtree(self._root / folder)

    def discard(self) -> None:
        with self._changing:
            self._capacity = 0
            self._files.clear()
            shutil.rmtree(self._root, ignore_errors=True)

    def _sweep(self, folder: Path) -> None:
        """Lists the files by time of use, and removes those that are of no use or unknown."""
        for other in folder.iterdir():
            if other != self._root and other.is_dir():
                shutil.rmtree(other)
        found: list[tuple[int, _Entry]] = []
        for domain in self._root.iterdir():
            name, _, epoch = domain.name.partition("-")
            if not domain.is_dir() or epoch != str(self._epochs.get(name)):
                shutil.rmtree(domain) if domain.is_dir() and not domain.is_symlink() else domain.unlink()
                continue
            found += [(when, (domain.name, file)) for file, when in _files_in(domain)]
        found.sort()
        for _, entry in found:
            self._files[entry] = None
        while len(self._files) > self._capacity:
            self._remove(next(iter(self._files)))

    def _entry(self, trust_domain: str, key: PageKey) -> _Entry | None:
        """Returns a page's place; None for the trust domain of a single request."""
        parts = trust_domain.split("\0")
        return (f"{_collection_name(parts[0])}-{parts[1]}", key.hex()) if len(parts) == 2 else None

    def _is_over(self, entry: _Entry) -> bool:
        name, _, epoch = entry[0].partition("-")
        return int(epoch) < self._epochs.get(name, 0)

    def _path(self, entry: _Entry) -> Path:
        return self._root.joinpath(*entry)

    def _remove(self, entry: _Entry) -> None:
        self._files.pop(entry, None)
        self._path(entry).unlink(missing_ok=True)


def _collection_name(collection: str) -> str:
    return blake2b(collection.encode(), digest_size=_NAME_BYTES, person=b"collection").hexdigest()


def _files_in(folder: Path) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif not entry.is_file(follow_symlinks=False) or len(entry.name) != 2 * _NAME_BYTES:
                Path(entry.path).unlink()
            else:
                yield entry.name, entry.stat().st_mtime_ns
