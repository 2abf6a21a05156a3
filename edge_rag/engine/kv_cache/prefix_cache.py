"""The prefix index: which full page holds which tokens, so that an equal prefix is computed once.

A page's key is a hash of its parent's key and its own tokens, starting from a hash of the trust domain. Equal keys mean
equal prefixes within one domain; pages of another domain cannot be found, so their presence cannot be timed either.

The findable pages of a domain are a tree: the parent of a page is the page before it, and a sequence that holds a page
holds its parent too. Pages without a holder (idle ones) stay findable until their memory is needed. Then the leaf of
least worth is evicted, so no page is evicted before its children. The worth of a page is the tokens that it saves,
times the frequency of its use, by its size. All pages have one size and hold equally many tokens, so only the
frequency counts; a use weighs half as much after ``half_life`` others (uses are counted page by page):

    worth(page) = log2 of the sum over its uses u of 2^(time of u / half_life)

Later uses weigh more instead of earlier ones less, so worths need no update as time passes, and pages used once are
evicted in order of their use. A use of a page is also one of its parent, whose worth is thus no less.

Only full pages have a key, and a sequence writes only from its first pending token on, which is after every full page
it found. So no sequence writes to a page that another can see, and copy-on-write is not needed. Sharing a partly filled
last page would save less than a page of prefill for each request, at the price of copying one; shared prefixes are
many pages long.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from itertools import count
from math import log2
from typing import Final

from edge_rag.engine.sequence import PageId, PageKey


def root_key(trust_domain: str) -> PageKey:
    return PageKey(blake2b(trust_domain.encode(), digest_size=16, person=b"trust domain").digest())


def next_key(parent: PageKey, tokens: Sequence[int]) -> PageKey:
    """Returns the key of a full page."""
    return PageKey(blake2b(array("q", tokens).tobytes(), digest_size=16, key=parent).digest())


def extend_chain(keys: list[PageKey], trust_domain: str, tokens: Sequence[int], page_tokens: int, pages: int) -> None:
    """Appends keys of a sequence's full pages.

    Args:
        keys: Keys of its first pages, which stay valid because tokens are only ever appended.
    """
    for index in range(len(keys), pages):
        start = index * page_tokens
        keys.append(next_key(keys[-1] if keys else root_key(trust_domain), tokens[start : start + page_tokens]))


@dataclass(slots=True, eq=False)
class _Node:
    key: PageKey
    page: PageId
    trust_domain: str
    parent: _Node | None
    worth: float
    children: set[PageKey] = field(default_factory=set)
    idle: bool = False
    version: int = 0


_SLACK: Final = 64
"""Outdated heap entries that are kept at least before the heap is rebuilt."""


class PrefixIndex:
    """Maps keys to pages, and orders idle pages for eviction.

    Args:
        half_life: Uses after which a use weighs half as much, more than 0; near 0 the order is least recently used.
    """

    def __init__(self, half_life: float) -> None:
        self._half_life = half_life
        self._nodes: dict[PageKey, _Node] = {}
        self._by_page: dict[PageId, _Node] = {}
        self._idle = 0
        self._leaves: list[tuple[float, int, int, _Node]] = []
        self._serial = count()
        self._uses = 0

    def find(self, key: PageKey) -> PageId | None:
        """Returns the page of a key, or None."""
        node = self._nodes.get(key)
        return None if node is None else node.page

    def add(self, key: PageKey, parent: PageKey | None, page: PageId, trust_domain: str) -> PageId | None:
        """Adds a held page, unless an equal page is in the index already.

        Args:
            parent: Key of the page before it; None for the first one.

        Returns:
            The page with that key; None if its parent is not in the index.
        """
        known = self._nodes.get(key)
        if known is not None:
            return known.page
        above = None if parent is None else self._nodes.get(parent)
        if parent is not None and above is None:
            return None
        worth = self._now()
        node = self._nodes[key] = self._by_page[page] = _Node(key, page, trust_domain, above, worth)
        if above is not None:
            above.children.add(key)
        return node.page

    def count_use(self, page: PageId) -> None:
        node = self._by_page[page]
        now = self._now()
        high, low = max(node.worth, now), min(node.worth, now)
        node.worth = high + log2(1 + 2 ** (low - high))

    def forget(self, trust_domain: str) -> tuple[PageId, ...]:
        nodes = [node for node in self._nodes.values() if node.trust_domain == trust_domain]
        idle = tuple(node.page for node in nodes if node.idle)
        for node in nodes:
            self._drop(node)
        return idle

    def mark_idle(self, page: PageId) -> bool:
        """Marks a page as without a holder; False if it is not in the index."""
        node = self._by_page.get(page)
        if node is None:
            return False
        node.idle = True
        self._idle += 1
        self._add_candidate(node)
        return True

    def mark_held(self, page: PageId) -> None:
        node = self._by_page[page]
        if node.idle:
            node.idle = False
            node.version += 1
            self._idle -= 1

    def is_idle(self, page: PageId) -> bool:
        node = self._by_page.get(page)
        return node is not None and node.idle

    def evict(self) -> PageId:
        """Removes the idle page of least worth that has no children.

        Raises:
            KeyError: No page is idle.
        """
        while self._leaves:
            _, _, version, node = heappop(self._leaves)
            if node.version == version and node.idle and not node.children:
                parent = node.parent
                self._drop(node)
                if parent is not None and parent.idle and not parent.children:
                    self._add_candidate(parent)
                return node.page
        raise KeyError("no page is idle")

    def _add_candidate(self, node: _Node) -> None:
        if node.children:
            return
        if len(self._leaves) > 2 * self._idle + _SLACK:
            self._leaves = [entry for entry in self._leaves if entry[2] == entry[3].version]
            heapify(self._leaves)
        node.version += 1
        heappush(self._leaves, (node.worth, next(self._serial), node.version, node))

    def _drop(self, node: _Node) -> None:
        self._idle -= node.idle
        node.idle = False
        node.version += 1
        if node.parent is not None:
            node.parent.children.discard(node.key)
        del self._nodes[node.key], self._by_page[node.page]

    def _now(self) -> float:
        self._uses += 1
        return self._uses / self._half_life

    @property
    def parents(self) -> dict[PageId, PageId | None]:
        """Parent of each page in the index, None for a first one. The content of these pages must not change."""
        return {page: None if node.parent is None else node.parent.page for page, node in self._by_page.items()}

    @property
    def domains(self) -> frozenset[str]:
        return frozenset(node.trust_domain for node in self._nodes.values())

    @property
    def idle(self) -> tuple[PageId, ...]:
        return tuple(page for page, node in self._by_page.items() if node.idle)

    def __len__(self) -> int:
        return self._idle
