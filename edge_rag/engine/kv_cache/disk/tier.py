"""The page cache's second floor: what is evicted goes to disk, what is asked for again comes back before it is needed.

    evicted      engine's thread copies the page's bytes into a bounded queue       writer thread writes them
    wanted       pages a request could use are looked up, their reading begins      reader thread reads them
    arrived      engine's thread puts them into free pages, findable and idle       the request is scheduled

The engine never waits for the disk: a full queue drops pages, and a request is held back only as long as computing its
pages would take. Where the disk fails, it is left alone from then on, and that is said once.

Pages on their way from the disk, and when it pays to fetch them.
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

ReadingPays = Callable[[float | None, float | None, int, int, int], bool]
"""As ``reading_pays``."""


@dataclass(slots=True, eq=False)
class Reading:
    """Pages on their way from the disk.

    Attributes:
        trust_domain: Whose.
        keys: Keys of a sequence's first pages, up to the last one that is read.
        first: Index of the first one that is read.
        until: When it is no longer waited for, seconds.
        found: Those that were read, in order; fewer than wanted where one was missing.
        done: Whether they are in the cache.
    """

    trust_domain: str
    keys: tuple[PageKey, ...]
    first: int
    until: float
    found: list[StoredPage] = field(default_factory=list)
    done: bool = False


def reading_pays(read_s: float | None, compute_s: float | None, pages: int, ahead: int, page_tokens: int) -> bool:
    """Decides whether to read pages or to compute them again; what was not measured yet is taken for fast.

    Args:
        read_s: To read a page, seconds; None if not measured.
        compute_s: To compute a token of a prompt, seconds; None if not measured.
        pages: Pages that could be read.
        ahead: Pages that are read before.
        page_tokens: Tokens of a page.
    """
    if read_s is None or compute_s is None:
        return True
    return (ahead + pages) * read_s < pages * page_tokens * compute_s


HOT_USES: Final = 2
"""A page that was used less often is not written: it would cost the disk more than it has saved."""

_QUEUE_BYTES: Final = 64 << 20
_NEWEST: Final = 0.2
"""Weight of the newest measurement in moving averages."""

_LEAST_HOLD_S: Final = 0.05
_MEASURE_EVERY: Final = 32
"""Times that reading was found too slow, after which one is tried again: the disk may have become faster."""


class PageBytes(Protocol):
    """Gives and takes the bytes of pages. Called by the engine's thread only."""

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
        pages: The pages in memory.
        failed: Told once, in words, that the disk is left alone from now on.
        clock: Monotonic seconds, the engine's.
        pays: Decides whether to read pages or to compute them; see ``reading_pays``.
        least_hold_s: A request is held back at least this long for pages that are read, seconds.
    """

    def __init__(
        self,
        pages: PageBytes,
        failed: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        pays: ReadingPays | None = None,
        least_hold_s: float = _LEAST_HOLD_S,
    ) -> None:
        self._pays = pays or reading_pays
        self._least_hold_s = least_hold_s
        self._store: PageStore | None = None
        self._pages = pages
        self._on_failed = failed
        self._clock = clock
        self._changed = threading.Condition()
        self._to_write: deque[tuple[Evicted, bytes]] = deque()
        self._to_read: deque[Reading] = deque()
        self._arrived: list[Reading] = []
        self._read_s: float | None = None  # of a page
        self._compute_s: float | None = None  # of a token
        self._written = self._read = self._dropped = self._damaged = self._slower = 0
        self._off = self._closed = False
        self._arrival: Callable[[], None] = lambda: None
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for work, name in ((self._write_all, "kv-writer"), (self._read_all, "kv-reader"))
        ]

    @property
    def stats(self) -> DiskStats:
        """Counts; any thread."""
        pages = 0 if self._store is None else len(self._store)
        return DiskStats(pages, self._written, self._read, self._dropped, self._damaged, self._slower, self._off)

    def use(self, store: PageStore) -> None:
        """Begins to keep pages in a store; before, nothing is kept. Any thread."""
        self._store = store

    def start(self, arrival: Callable[[], None]) -> None:
        """Starts the threads.

        Args:
            arrival: Called when a reading is done, on the reader's thread.
        """
        self._arrival = arrival
        for thread in self._threads:
            thread.start()

    def evicted(self, evicted: Evicted) -> None:
        """Takes a page whose content is about to be written over; the engine's thread."""
        store = self._store
        if store is None or self._off or evicted.uses < HOT_USES or store.has(evicted.trust_domain, evicted.key):
            return
        with self._changed:
            if (len(self._to_write) + 1) * self._pages.page_bytes > _QUEUE_BYTES:
                self._dropped += 1
                return
            self._to_write.append((evicted, self._pages.read_page(evicted.page)))
            self._changed.notify_all()

    def keep(self, pages: Sequence[Evicted], seconds: float) -> None:
        """Writes pages of a cache that is about to go, the most used ones first; the engine's thread, at its end."""
        store, until = self._store, self._clock() + seconds
        if store is None:
            return
        hottest = sorted((page for page in pages if page.uses >= HOT_USES), key=lambda each: -each.uses)
        # No more than there is room for: one of them would put out another.
        for page in hottest[: store.most]:
            if self._off or self._clock() >= until:
                return
            if not store.touch(page.trust_domain, page.key):
                self._write(store, page, self._pages.read_page(page.page))

    def computed(self, tokens: int, seconds: float) -> None:
        """Notes how long a step took that computed mostly prompts."""
        self._compute_s = _average(self._compute_s, seconds / tokens)

    def want(self, pool: BlockPool, trust_domain: str, tokens: Sequence[int], keys: list[PageKey]) -> Reading | None:
        """Begins to read what the disk has of a sequence's beginning beyond what the cache has.

        Args:
            pool: The cache.
            trust_domain: The sequence's.
            tokens: Its tokens.
            keys: Keys of its first pages, as far as known; extended as far as needed.

        Returns:
            What is on its way; None if there is nothing, or computing it is expected to be faster.
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
        # What is read must find room without putting out what the sequence begins with.
        end = min(end, pool.available)
        if end <= first:
            return None
        with self._changed:
            ahead = sum(len(reading.keys) - reading.first for reading in self._to_read)
            compute_s = (end - first) * pool.page_tokens * (self._compute_s or 0.0)
            if not self._pays(self._read_s, self._compute_s, end - first, ahead, pool.page_tokens):
                self._slower += 1
                if self._slower % _MEASURE_EVERY:
                    return None
            until = self._clock() + max(self._least_hold_s, compute_s)
            reading = Reading(trust_domain, tuple(keys[:end]), first, until)
            self._to_read.append(reading)
            self._changed.notify_all()
        return reading

    def arrived(self, pool: BlockPool) -> None:
        """Puts what was read into the cache; the engine's thread."""
        store = self._store
        if store is None or not self._arrived:
            return
        with self._changed:
            arrived, self._arrived = self._arrived, []
        for reading in arrived:
            reading.done = True
            if not store.has_ended(reading.trust_domain):
                uses = [page.uses for page in reading.found]
                self._read += pool.insert(reading.trust_domain, reading.keys, reading.first, uses, self._put(reading))

    def forget(self, collection: str, epoch: int) -> None:
        """Removes the pages of a collection's epochs before this one; any thread."""
        if self._store is None:
            return
        try:
            self._store.forget(collection, epoch)
        except OSError as error:
            self._fail("remove pages of deleted text from", error)

    def close(self) -> None:
        """Lets the writer finish what it has, and ends; idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def discard(self) -> None:
        """Leaves the disk alone from now on and removes what is there."""
        self._off = True
        if self._store is not None:
            self._store.discard()

    def _put(self, reading: Reading) -> Callable[[int, PageId], None]:
        def put(index: int, page: PageId) -> None:
            self._pages.write_page(page, reading.found[index - reading.first].content)

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
                reading = self._to_read[0]
            self._fill(reading)
            with self._changed:
                self._to_read.popleft()
                self._arrived.append(reading)
            self._arrival()

    def _fill(self, reading: Reading) -> None:
        for key in reading.keys[reading.first :]:
            if self._store is None or self._off or self._closed:
                return
            began = time.perf_counter()
            try:
                page = self._store.read(reading.trust_domain, key)
            except PageFileInvalid:
                self._damaged += 1
                return
            except OSError as error:
                self._fail("read from", error)
                return
            if page is None:
                return
            self._read_s = _average(self._read_s, time.perf_counter() - began)
            reading.found.append(page)

    def _fail(self, what: str, error: OSError) -> None:
        with self._changed:
            if self._off:
                return
            self._off = True
        self._on_failed(f"cannot {what} the disk's KV pages, they are left alone from now on: {error}")


def _average(before: float | None, value: float) -> float:
    return value if before is None else before + _NEWEST * (value - before)
