"""The pages of the KV cache and who holds them.

    free       on the free list                       no holder, content worthless
    cached     in the prefix index's idle list        no holder, content can be found by key
    held       in one or more block tables            reference count = number of tables
    reserved   in a running step's reservation        reference count 1, in no table yet

Every page is in exactly one of the four. A page moves free/cached -> reserved -> held within a step, held -> cached or
free when its last holder leaves, cached -> held when another sequence begins with the same tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.core.monitoring.status import PageMap
from edge_rag.engine.kv_cache.prefix_cache import Evicted, PageId, PageKey, PrefixIndex, extend_chain
from edge_rag.engine.sequence import SequenceId

HALF_LIFE_POOLS: Final = 8.0
"""Uses of as many pages as the pool has, times this, after which a use weighs half as much. Short ones forget what is
asked for often, long ones keep what no longer is; ``python -m scripts.bench.engine.page_reuse`` compares."""


class PagesExhausted(RuntimeError):
    """More pages were asked for than can be had: the plan and the pool disagree, which is a defect."""


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """Everything the pool knows, for invariants and status.

    Attributes:
        pages: Number of pages.
        page_tokens: Tokens a page holds.
        free: Pages on the free list.
        cached: Pages nobody holds that can still be found.
        parents: The page that each findable page continues, held or not; None for one that a prompt begins with.
        references: Holders of each page, by page.
        tables: Block table of each sequence.
        leases: Pages that each sequence copies from.
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
    """Counts pages; knows nothing of what is in them.

    Args:
        pages: Number of pages, at least 1.
        page_tokens: Tokens a page holds, at least 1.
        on_evicted: Told of every cached page that is about to be used for something else, while its content is there.
        half_life_pools: How many times all pages are used until a use weighs half as much.
    """

    def __init__(
        self,
        pages: int,
        page_tokens: int,
        on_evicted: Callable[[Evicted], None] | None = None,
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
        self._on_evicted = on_evicted

    @property
    def available(self) -> int:
        """Pages that can be had at once, by eviction where need be."""
        return len(self._free) + len(self._prefixes)

    @property
    def cached(self) -> int:
        """Pages that nobody holds but that can still be found."""
        return len(self._prefixes)

    def pages_for(self, tokens: int) -> int:
        """Returns how many pages a sequence of that many tokens takes."""
        return -(-tokens // self.page_tokens)

    def table(self, sequence: SequenceId) -> tuple[PageId, ...]:
        """Returns a sequence's pages in order; empty if it holds none."""
        return tuple(self._tables.get(sequence, ()))

    def held(self, sequence: SequenceId) -> int:
        """Returns how many pages a sequence holds."""
        return len(self._tables.get(sequence, ()))

    def match(self, trust_domain: str, tokens: Sequence[int], keys: list[PageKey]) -> tuple[PageId, ...]:
        """Finds the longest beginning of a sequence that the cache already holds, in full pages.

        The last token is never part of it: it has to be computed for its logits.

        Args:
            trust_domain: Whose pages may be found.
            tokens: The sequence's tokens.
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
        """Returns how many pages could be had if some sequences let go of theirs and some pages were not to be taken.

        Args:
            leaving: Sequences that would let go.
            kept: Pages that are spoken for.
        """
        holders = Counter(page for sequence in leaving for page in self._tables.get(sequence, ()))
        freed = sum(count == self._references[page] for page, count in holders.items() if page not in kept)
        return self.available + freed - sum(self._prefixes.is_idle(page) for page in kept)

    def share(self, sequence: SequenceId, pages: Sequence[PageId]) -> None:
        """Begins a sequence's block table with pages that ``match`` found."""
        for page in pages:
            self._prefixes.wake(page)
            self._prefixes.use(page)
            self._references[page] += 1
        self._tables[sequence] = list(pages)
        self._registered[sequence] = len(pages)

    def idle(self, pages: Sequence[PageId]) -> int:
        """Returns how many of some pages nobody holds."""
        return sum(self._prefixes.is_idle(page) for page in pages)

    def pin(self, sequence: SequenceId, pages: Sequence[PageId]) -> None:
        """Keeps pages that ``match`` found until the sequence has copied from them."""
        for page in pages:
            self._prefixes.wake(page)
            self._prefixes.use(page)
            self._references[page] += 1
        self._pinned.setdefault(sequence, []).extend(pages)

    def unpin(self, sequence: SequenceId) -> None:
        """Lets go of the pages that a sequence copies from; nothing happens if there are none."""
        self.free(self._pinned.pop(sequence, []))

    def take(self, count: int) -> list[PageId]:
        """Takes pages out of the free list, then out of the cache, those of least worth first.

        Raises:
            PagesExhausted: There are not that many; nothing was taken.
        """
        if count > self.available:
            raise PagesExhausted(f"{count} pages asked for, {self.available} available")
        taken = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        for page in taken:
            self._references[page] = 1
        return taken

    def _evict(self) -> PageId:
        evicted = self._prefixes.evict()
        if self._on_evicted is not None:
            self._on_evicted(evicted)
        return evicted.page

    def free(self, pages: Sequence[PageId]) -> None:
        """Lets go of pages, last one first."""
        for page in reversed(pages):
            self._references[page] -= 1
            if self._references[page] == 0 and not self._prefixes.rest(page):
                self._free.append(page)

    def extend(self, sequence: SequenceId, pages: Sequence[PageId]) -> None:
        """Appends taken pages to a sequence's block table."""
        self._tables.setdefault(sequence, []).extend(pages)

    def register_full(
        self,
        sequence: SequenceId,
        trust_domain: str,
        tokens: Sequence[int],
        computed: int,
        keys: list[PageKey],
        asked: bool = True,
    ) -> None:
        """Makes the sequence's full pages findable; their content does not change any more.

        Where an equal page is findable already, that one takes its place in the block table and this one is free: two
        sequences that computed the same beginning side by side hold it once from then on.

        Args:
            sequence: Whose pages.
            trust_domain: Who may find them.
            tokens: The sequence's tokens.
            computed: How many of them the cache holds.
            keys: Keys of its first pages, as far as known; extended as far as needed.
            asked: Whether somebody asked for them; those computed ahead are worth less until somebody does.
        """
        full = computed // self.page_tokens
        registered = self._registered.get(sequence, 0)
        if full > registered:
            extend_chain(keys, trust_domain, tokens, self.page_tokens, full)
            table = self._tables[sequence]
            for index in range(registered, full):
                parent = keys[index - 1] if index else None
                found = self._prefixes.add(keys[index], parent, table[index], trust_domain, int(asked))
                if found is not None and found != table[index]:
                    self._prefixes.wake(found)
                    self._prefixes.use(found)
                    self._references[found] += 1
                    self.free([table[index]])
                    table[index] = found
            self._registered[sequence] = full

    def insert(
        self,
        trust_domain: str,
        keys: Sequence[PageKey],
        first: int,
        uses: Sequence[int],
        put: Callable[[int, PageId], None],
    ) -> int:
        """Makes pages findable that nobody computed here; they are idle afterwards.

        Args:
            trust_domain: Who may find them.
            keys: Keys of a sequence's first pages, these at the end.
            first: Index of the first of these; pages before it must be findable for them to be.
            uses: How often each of these has been used, at most as many as there are keys for.
            put: Writes the content of the page with an index, given the page.

        Returns:
            How many were brought: those up to the first one that had no room.
        """
        held: list[PageId] = []
        inserted = 0
        for index, key in enumerate(keys[: first + len(uses)]):
            page = self._prefixes.find(key)
            if page is not None:
                self._prefixes.wake(page)
                self._references[page] += 1
            elif index < first or not self.available:
                break
            else:
                (page,) = self.take(1)
                put(index, page)
                self._prefixes.add(
                    key, keys[index - 1] if index else None, page, trust_domain, max(1, uses[index - first])
                )
                inserted += 1
            held.append(page)
        self.free(held)
        return inserted

    @property
    def known(self) -> list[Evicted]:
        """Everything that can be found, held or not, as if it were to go."""
        return self._prefixes.known()

    @property
    def domains(self) -> frozenset[str]:
        """Trust domains that something is cached of."""
        return self._prefixes.domains

    def forget(self, trust_domain: str) -> None:
        """Makes what the cache holds of a trust domain unfindable; pages that nobody holds are free at once."""
        self._free.extend(self._prefixes.forget(trust_domain))

    def drop_cached(self) -> tuple[PageId, ...]:
        """Forgets every page that nobody holds; returns all free pages, whose content is worthless.

        ``on_evicted`` is not told: to keep a copy would take the memory that is to be given back.
        """
        while len(self._prefixes):
            self._free.append(self._prefixes.evict().page)
        return tuple(self._free)

    def release(self, sequence: SequenceId) -> None:
        """Lets go of everything a sequence holds; nothing happens if it holds nothing."""
        self._registered.pop(sequence, None)
        self.unpin(sequence)
        self.free(self._tables.pop(sequence, []))

    def map(self, cells: int) -> PageMap:
        """Returns who has the pages, in at most so many cells."""
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
