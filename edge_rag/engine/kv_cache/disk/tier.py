"""The disk tier of the prefix cache: evicted pages are written to disk and read back when a request needs them.

    on_evicted       engine's thread copies the page's bytes into a bounded queue      writer thread writes them
    load             pages that a request can use are looked up, and queued            reader thread reads them
    insert_loaded    engine's thread puts them into free pages, idle and findable      the request is scheduled

The engine never waits for the disk: a full queue drops pages, and a request is held only as long as computing its pages
would take. After the first disk error the tier is off, which is reported once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from edge_rag.core.monitoring.status import DiskStats
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.disk.store import PageFileInvalid, PageStore, StoredPage
from edge_rag.engine.kv_cache.prefix_cache import Evicted, PageId, PageKey, extend_chain

ReadPolicy = Callable[[float | None, float | None, int, int, int], bool]
"""As ``should_read_pages``."""


@dataclass(slots=True, eq=False)
class PageLoad:
    """Pages that are being read.

    Attributes:
        keys: Keys of a sequence's first pages, up to the last one that is read.
        first: Index of the first one that is read.
        until: When requests stop waiting for it, seconds.
        found: Pages read so far, in order; fewer than ``keys`` if one is missing.
        done: Whether they were inserted into the cache.
    """

    trust_domain: str
    keys: tuple[PageKey, ...]
    first: int
    until: float
    found: list[StoredPage] = field(default_factory=list)
    done: bool = False


def should_read_pages(read_s: float | None, compute_s: float | None, pages: int, ahead: int, page_tokens: int) -> bool:
    """Returns whether reading pages is expected to be faster than computing them; True until both were measured.

    Args:
        read_s: Time to read a page, seconds; None if not measured.
        compute_s: Time to compute a prompt token, seconds; None if not measured.
        ahead: Pages in the read queue before them.
    """
    if read_s is None or compute_s is None:
        return True
    return (ahead + pages) * read_s < pages * page_tokens * compute_s


MIN_USES: Final = 2
"""Pages used less often are not written: the write would cost more than the page has saved."""

_MAX_QUEUE_BYTES: Final = 64 << 20
_NEWEST: Final = 0.2
"""Weight of the newest measurement in moving averages."""

_MIN_HOLD_S: Final = 0.05
_RETRY_EVERY: Final = 32
"""After so many skipped reads one is tried, because the disk may have become faster."""


class PageBytes(Protocol):
    """Access to the bytes of pages. Called by the engine's thread only."""

    @property
    def page_bytes(self) -> int:
        """Bytes of a page."""
        ...

    def read_page(self, page: int) -> bytes:
        """Returns a page's bytes."""
        ...

    def write_page(self, page: int, content: memoryview) -> None:
        """Replaces a page's bytes."""
        ...


class PageTier:
    """Moves pages between the cache and the disk.

    Args:
        clock: Monotonic seconds, the engine's.
        should_read: Whether to read pages or to compute them; None for ``should_read_pages``.
        min_hold_s: Shortest time after which a request stops waiting for pages, seconds.
    """

    def __init__(
        self,
        pages: PageBytes,
        failed: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        should_read: ReadPolicy | None = None,
        min_hold_s: float = _MIN_HOLD_S,
    ) -> None:
        self._should_read = should_read or should_read_pages
        self._min_hold_s = min_hold_s
        self._store: PageStore | None = None
        self._pages = pages
        self._on_failed = failed
        self._clock = clock
        self._changed = threading.Condition()
        self._to_write: deque[tuple[Evicted, bytes]] = deque()
        self._to_read: deque[PageLoad] = deque()
        self._loaded: list[PageLoad] = []
        self._read_s: float | None = None  # of a page
        self._compute_s: float | None = None  # of a token
        self._written = self._read = self._dropped = self._damaged = self._slower = 0
        self._off = self._closed = False
        self._on_loaded: Callable[[], None] = lambda: None
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for work, name in ((self._write_all, "kv-writer"), (self._read_all, "kv-reader"))
        ]

    @property
    def stats(self) -> DiskStats:
        """Present counters; any thread."""
        pages = 0 if self._store is None else len(self._store)
        return DiskStats(pages, self._written, self._read, self._dropped, self._damaged, self._slower, self._off)

    def attach(self, store: PageStore) -> None:
        """Sets where pages are kept; without a store none are. Any thread."""
        self._store = store

    def start(self, on_loaded: Callable[[], None]) -> None:
        self._on_loaded = on_loaded
        for thread in self._threads:
            thread.start()

    def on_evicted(self, evicted: Evicted) -> None:
        """Queues a page for writing before its content is overwritten; the engine's thread."""
        store = self._store
        if store is None or self._off or evicted.uses < MIN_USES or store.has(evicted.trust_domain, evicted.key):
            return
        with self._changed:
            if (len(self._to_write) + 1) * self._pages.page_bytes > _MAX_QUEUE_BYTES:
                self._dropped += 1
                return
            self._to_write.append((evicted, self._pages.read_page(evicted.page)))
            self._changed.notify_all()

    def flush(self, pages: Sequence[Evicted], seconds: float) -> None:
        """Writes pages, the most used ones first, for so many seconds; the engine's thread, when it ends."""
        store, until = self._store, self._clock() + seconds
        if store is None:
            return
        most_used = sorted((page for page in pages if page.uses >= MIN_USES), key=lambda each: -each.uses)
        # More than fit would evict one another.
        for page in most_used[: store.capacity]:
            if self._off or self._clock() >= until:
                return
            if not store.touch(page.trust_domain, page.key):
                self._write(store, page, self._pages.read_page(page.page))

    def observe_compute(self, tokens: int, seconds: float) -> None:
        self._compute_s = _average(self._compute_s, seconds / tokens)

    def load(self, pool: BlockPool, trust_domain: str, tokens: Sequence[int], keys: list[PageKey]) -> PageLoad | None:
        """Starts reading the pages of a sequence's beginning that the disk has and the cache has not.

        Args:
            tokens: Its tokens.
            keys: Keys of its first pages, as far as known; extended as far as needed.

        Returns:
            The load; None if there is nothing to read, or computing is expected to be faster.
        """
        store = self._store
        if store is None or self._off or not len(store):
            return None
        first = len(pool.match(trust_domain, tokens, keys))
        end = first
        while end < (len(tokens) - 1) // pool.page_tokens:
            extend_chain(keys, trust_domain, tokens, pool.page_tokens, end + 1)
            if not store.has(trust_domain, keys[end]):
                break
            end += 1
        # Loaded pages must fit without evicting the sequence's own beginning.
        end = min(end, pool.available)
        if end <= first:
            return None
        with self._changed:
            ahead = sum(len(load.keys) - load.first for load in self._to_read)
            compute_s = (end - first) * pool.page_tokens * (self._compute_s or 0.0)
            if not self._should_read(self._read_s, self._compute_s, end - first, ahead, pool.page_tokens):
                self._slower += 1
                if self._slower % _RETRY_EVERY:
                    return None
            until = self._clock() + max(self._min_hold_s, compute_s)
            load = PageLoad(trust_domain, tuple(keys[:end]), first, until)
            self._to_read.append(load)
            self._changed.notify_all()
        return load

    def insert_loaded(self, pool: BlockPool) -> None:
        """Inserts loaded pages into the cache; the engine's thread."""
        store = self._store
        if store is None or not self._loaded:
            return
        with self._changed:
            loaded, self._loaded = self._loaded, []
        for load in loaded:
            load.done = True
            if not store.has_ended(load.trust_domain):
                uses = [page.uses for page in load.found]
                self._read += pool.insert(load.trust_domain, load.keys, load.first, uses, self._put(load))

    def forget(self, collection: str, epoch: int) -> None:
        """Removes the pages of a collection's epochs before this one; any thread."""
        if self._store is None:
            return
        try:
            self._store.forget(collection, epoch)
        except OSError as error:
            self._fail("remove pages of deleted text from", error)

    def close(self) -> None:
        """Writes the queued pages and stops the threads; idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def discard(self) -> None:
        self._off = True
        if self._store is not None:
            self._store.discard()

    def _put(self, load: PageLoad) -> Callable[[int, PageId], None]:
        def put(index: int, page: PageId) -> None:
            self._pages.write_page(page, load.found[index - load.first].content)

        return put

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._to_write or self._closed)
                if not self._to_write:
                    return
                evicted, content = self._to_write.popleft()
            if self._store is not None and not self._off:
                self._write(self._store, evicted, content)

    def _write(self, store: PageStore, evicted: Evicted, content: bytes) -> None:
        try:
            self._written += store.write(evicted.trust_domain, evicted.key, content, evicted.uses)
        except OSError as error:
            self._fail("write to", error)

    def _read_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._to_read or self._closed)
                if self._closed:
                    return
                load = self._to_read[0]
            self._fill(load)
            with self._changed:
                self._to_read.popleft()
                self._loaded.append(load)
            self._on_loaded()

    def _fill(self, load: PageLoad) -> None:
        for key in load.keys[load.first :]:
            if self._store is None or self._off or self._closed:
                return
            began = time.perf_counter()
            try:
                page = self._store.read(load.trust_domain, key)
            except PageFileInvalid:
                self._damaged += 1
                return
            except OSError as error:
                self._fail("read from", error)
                return
            if page is None:
                return
            self._read_s = _average(self._read_s, time.perf_counter() - began)
            load.found.append(page)

    def _fail(self, action: str, error: OSError) -> None:
        with self._changed:
            if self._off:
                return
            self._off = True
        self._on_failed(f"cannot {action} the KV pages on disk, which are no longer used: {error}")


def _average(before: float | None, value: float) -> float:
    return value if before is None else before + _NEWEST * (value - before)
