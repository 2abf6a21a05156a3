"""Accounting of the KV cache's pages (blocks in vLLM): reference counts, block tables, the free list.

    free       on the free list                       no holder, content undefined
    cached     idle in the prefix index               no holder, content can be found by key
    held       in block tables or pinned              reference count = number of tables and pins
    reserved   in a running step's reservation        reference count 1, in no table yet

Every page is in exactly one of the four. A page moves free/cached -> reserved -> held within a step, held -> cached or
free when its last holder leaves, cached -> held when another sequence begins with the same tokens.

A step's pages are a transaction:

    enter       the pages that the plan needs are allocated        block tables unchanged
    commit      they join the block tables                         the step counts
    leave       pages that were not committed are freed            without commit, the step is undone
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from edge_rag.core.monitoring.status import PageMap
from edge_rag.engine.kv_cache.prefix_cache import PrefixIndex, extend_chain
from edge_rag.engine.sequence import PageId, PageKey, SequenceId

HALF_LIFE_POOLS: Final = 8.0
"""Half-life of a use, in uses of as many pages as the pool has. A short one forgets frequent pages, a long one keeps
pages that are no longer used."""


class PagesExhausted(RuntimeError):
    """More pages were requested than are available: the plan and the pool disagree, which is a defect."""


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """The pool's state, for invariants and tests.

    Attributes:
        cached: Pages without a holder that can be found.
        parents: Parent of each findable page, held or not; None for the first page of a prompt.
    """

    pages: int
    page_tokens: int
    free: tuple[PageId, ...]
    cached: tuple[PageId, ...]
    parents: Mapping[PageId, PageId | None]
    references: tuple[int, ...]
    tables: dict[SequenceId, tuple[PageId, ...]]
    pinned: dict[SequenceId, tuple[PageId, ...]]


class BlockPool:
    """Allocates, shares and frees pages; the model runner owns their bytes."""

    def __init__(
        self,
        pages: int,
        page_tokens: int,
        half_life_pools: float = HALF_LIFE_POOLS,
    ) -> None:
        self.pages = pages
        self.page_tokens = page_tokens
        self._free = [PageId(page) for page in reversed(range(pages))]
        self._references = [0] * pages
        self._tables: dict[SequenceId, list[PageId]] = {}
        self._registered: dict[SequenceId, int] = {}
        self._pinned: dict[SequenceId, list[PageId]] = {}
        self._prefixes = PrefixIndex(half_life_pools * pages)

    @property
    def available(self) -> int:
        return len(self._free) + len(self._prefixes)

    @property
    def cached(self) -> int:
        """Pages without a holder that can be found."""
        return len(self._prefixes)

    def pages_for(self, tokens: int) -> int:
        """Returns how many pages a sequence of that many tokens takes."""
        return -(-tokens // self.page_tokens)

    def table(self, sequence: SequenceId) -> tuple[PageId, ...]:
        """Returns a sequence's pages in order; empty if it holds none."""
        return tuple(self._tables.get(sequence, ()))

    def held(self, sequence: SequenceId) -> int:
        return len(self._tables.get(sequence, ()))

    def match(self, trust_domain: str, tokens: Sequence[int], keys: list[PageKey]) -> tuple[PageId, ...]:
        """Returns the pages of the longest cached prefix of a sequence.

        The last token is never part of it: it has to be computed for its logits.

        Args:
            keys: Keys of its first pages, as far as known; extended as far as needed.
        """
        found: list[PageId] = []
        for index in range((len(tokens) - 1) // self.page_tokens):
            extend_chain(keys, trust_domain, tokens, self.page_tokens, index + 1)
            page = self._prefixes.find(keys[index])
            if page is None:
                break
            found.append(page)
        return tuple(found)

    def available_without(self, leaving: Collection[SequenceId], kept: Sequence[PageId]) -> int:
        holders = Counter(page for sequence in leaving for page in self._tables.get(sequence, ()))
        freed = sum(count == self._references[page] for page, count in holders.items() if page not in kept)
        return self.available + freed - sum(self._prefixes.is_idle(page) for page in kept)

    def share(self, sequence: SequenceId, pages: Sequence[PageId]) -> None:
        for page in pages:
            self._prefixes.mark_held(page)
            self._prefixes.count_use(page)
            self._references[page] += 1
        self._tables[sequence] = list(pages)
        self._registered[sequence] = len(pages)

    def count_idle(self, pages: Sequence[PageId]) -> int:
        return sum(self._prefixes.is_idle(page) for page in pages)

    def pin(self, sequence: SequenceId, pages: Sequence[PageId]) -> None:
        """Holds pages that ``match`` found until the sequence has copied from them."""
        for page in pages:
            self._prefixes.mark_held(page)
            self._prefixes.count_use(page)
            self._references[page] += 1
        self._pinned.setdefault(sequence, []).extend(pages)

    def unpin(self, sequence: SequenceId) -> None:
        self.free(self._pinned.pop(sequence, []))

    def allocate(self, count: int) -> list[PageId]:
        """Takes pages from the free list, then evicts cached ones, those of least worth first.

        Raises:
            PagesExhausted: There are not that many; none was taken.
        """
        if count > self.available:
            raise PagesExhausted(f"{count} pages requested, {self.available} available")
        allocated = [self._free.pop() if self._free else self._prefixes.evict() for _ in range(count)]
        for page in allocated:
            self._references[page] = 1
        return allocated

    def free(self, pages: Sequence[PageId]) -> None:
        """Drops one reference of each page, last page first; pages without a holder become cached or free."""
        for page in reversed(pages):
            self._references[page] -= 1
            if self._references[page] == 0 and not self._prefixes.mark_idle(page):
                self._free.append(page)

    def extend(self, sequence: SequenceId, pages: Sequence[PageId]) -> None:
        self._tables.setdefault(sequence, []).extend(pages)

    def register_full(
        self,
        sequence: SequenceId,
        trust_domain: str,
        tokens: Sequence[int],
        computed: int,
        keys: list[PageKey],
    ) -> None:
        """Registers a sequence's full pages in the prefix index; their content no longer changes.

        If an equal page is registered already, it replaces this one in the block table and this one is freed: two
        sequences that computed the same prefix side by side share it from then on.

        Args:
            keys: Keys of its first pages, as far as known; extended as far as needed.
        """
        full = computed // self.page_tokens
        registered = self._registered.get(sequence, 0)
        if full > registered:
            extend_chain(keys, trust_domain, tokens, self.page_tokens, full)
            table = self._tables[sequence]
            for index in range(registered, full):
                parent = keys[index - 1] if index else None
                found = self._prefixes.add(keys[index], parent, table[index], trust_domain)
                if found is not None and found != table[index]:
                    self._prefixes.mark_held(found)
                    self._prefixes.count_use(found)
                    self._references[found] += 1
                    self.free([table[index]])
                    table[index] = found
            self._registered[sequence] = full

    @property
    def domains(self) -> frozenset[str]:
        return self._prefixes.domains

    def forget(self, trust_domain: str) -> None:
        """Removes a trust domain's pages from the prefix index; those without a holder are free at once."""
        self._free.extend(self._prefixes.forget(trust_domain))

    def drop_cached(self) -> tuple[PageId, ...]:
        """Evicts all cached pages; returns all free pages."""
        while len(self._prefixes):
            self._free.append(self._prefixes.evict())
        return tuple(self._free)

    def release(self, sequence: SequenceId) -> None:
        self._registered.pop(sequence, None)
        self.unpin(sequence)
        self.free(self._tables.pop(sequence, []))

    def map(self, cells: int) -> PageMap:
        """Returns the holders of the pages, in at most ``cells`` cells."""
        size = max(1, -(-self.pages // cells))
        counts = [[0] * -(-self.pages // size) for _ in range(3)]
        held, shared, cached = counts
        for page, holders in enumerate(self._references):
            if holders:
                (held if holders == 1 else shared)[page // size] += 1
        for page in self._prefixes.idle:
            cached[page // size] += 1
        return PageMap(size, tuple(held), tuple(shared), tuple(cached))

    def snapshot(self) -> PoolSnapshot:
        """Returns the state as a value."""
        return PoolSnapshot(
            pages=self.pages,
            page_tokens=self.page_tokens,
            free=tuple(self._free),
            cached=self._prefixes.idle,
            parents=self._prefixes.parents,
            references=tuple(self._references),
            tables={sequence: tuple(table) for sequence, table in self._tables.items()},
            pinned={sequence: tuple(pages) for sequence, pages in self._pinned.items()},
        )


class Reservation:
    """Pages for one step; see the chart above.

    Args:
        ends: Position of each sequence of the step after its last token, drafted ones included.
    """

    def __init__(self, pool: BlockPool, ends: Mapping[SequenceId, int]) -> None:
        self._pool = pool
        self._ends = ends
        self._reserved: dict[SequenceId, list[PageId]] = {}

    def __enter__(self) -> Reservation:
        """Takes the pages."""
        needs = {sequence: self._missing(sequence, end) for sequence, end in self._ends.items()}
        pages = self._pool.allocate(sum(needs.values()))
        for sequence, count in needs.items():
            self._reserved[sequence] = pages[:count]
            del pages[:count]
        return self

    @property
    def tables(self) -> Mapping[SequenceId, tuple[PageId, ...]]:
        return {sequence: (*self._pool.table(sequence), *reserved) for sequence, reserved in self._reserved.items()}

    def commit(self, ends: Mapping[SequenceId, int] | None = None) -> None:
        """Appends the reserved pages to the block tables; those that held only rejected drafts are freed on leaving.

        Args:
            ends: Position of each sequence after the last token that it keeps; None if it keeps all.
        """
        for sequence, end in (self._ends if ends is None else ends).items():
            kept = self._missing(sequence, end)
            self._pool.extend(sequence, self._reserved[sequence][:kept])
            del self._reserved[sequence][:kept]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Frees the pages that were not committed."""
        for reserved in self._reserved.values():
            self._pool.free(reserved)
        self._reserved.clear()

    def _missing(self, sequence: SequenceId, tokens: int) -> int:
        return max(0, self._pool.pages_for(tokens) - self._pool.held(sequence))


def violations(snapshot: PoolSnapshot, computed: Mapping[SequenceId, int]) -> list[str]:
    """Returns the invariants that a snapshot violates."""
    wrong: list[str] = []
    held = (*snapshot.tables.values(), *snapshot.pinned.values())
    holders = Counter(page for pages in held for page in pages)
    free, cached = Counter(snapshot.free), Counter(snapshot.cached)
    for page in map(PageId, range(snapshot.pages)):
        states = free[page] + cached[page] + (holders[page] > 0)
        if states != 1:
            wrong.append(
                f"page {page} is {free[page]} times free, {cached[page]} times cached and has {holders[page]} holders"
            )
        if snapshot.references[page] != holders[page]:
            wrong.append(f"page {page} counts {snapshot.references[page]} references, {holders[page]} tables hold it")
    for unknown in sorted({*free, *cached, *holders} - set(map(PageId, range(snapshot.pages)))):
        wrong.append(f"page {unknown} does not exist")
    for sequence in snapshot.pinned:
        if sequence not in computed:
            wrong.append(f"sequence {sequence} copies from pages but does not run")
    idle = set(snapshot.cached)
    for page, parent in snapshot.parents.items():
        if free[page]:
            wrong.append(f"page {page} can be found and is free")
        if parent is not None and parent not in snapshot.parents:
            wrong.append(f"page {page} can be found, page {parent} before it cannot")
        if parent in idle and page not in idle:
            wrong.append(f"page {page} is held, page {parent} before it is not")
    for sequence, table in snapshot.tables.items():
        if len(set(table)) != len(table):
            wrong.append(f"sequence {sequence} holds a page twice: {table}")
        if sequence not in computed:
            wrong.append(f"sequence {sequence} holds {len(table)} pages but does not run")
    for sequence, tokens in computed.items():
        pages = len(snapshot.tables.get(sequence, ()))
        if pages != -(-tokens // snapshot.page_tokens):
            wrong.append(f"sequence {sequence} has {tokens} tokens in {pages} pages of {snapshot.page_tokens}")
    return wrong
