"""Which full page holds which tokens, so that an equal beginning is computed once.

A page's key is a hash of its parent's key and its own tokens, starting from a hash of the trust domain. Equal keys mean
equal beginnings within one domain; another domain's pages cannot be found, and so not be timed, at all.

The findable pages of a domain are a tree: a page has the one it continues as its parent, and whoever holds a page holds
its parent too. Pages that nobody holds stay findable until their room is needed. Then the leaf of least worth goes, so
that none goes before what continues it. What a page saves is the tokens computed again without it times how often it is
asked for, against its size; all pages have one size and hold as many tokens, which leaves how often, counted so that
a use weighs half as much after ``half_life`` others (uses are counted page by page):

    worth(page) = log2 of the sum over its uses u of 2^(time of u / half_life)

Later uses weigh more instead of earlier ones less, so that nothing has to be recomputed as time goes on, and a page
that was used once goes by how long ago that was. Every use of a page is one of its parent, which is thus worth no less.

Only full pages have a key, and a sequence writes only at positions from its first pending token on, which lie after
every full page it found. So nobody ever writes to a page that another sequence can see, and no page has to be copied
before it is written to. Sharing a partly filled last page would save less than a page of prefill for each request, at
the price of copying one; the prompt's shared beginning is many pages long.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from itertools import count
from math import log2
from typing import Final, NewType

PageId = NewType("PageId", int)
"""Index of a page in the cache, from 0."""

PageKey = NewType("PageKey", bytes)
"""Identity of a page's content together with everything before it."""


def root_key(trust_domain: str) -> PageKey:
    """Returns the key before the first page of a trust domain."""
    return PageKey(blake2b(trust_domain.encode(), digest_size=16, person=b"trust domain").digest())


def next_key(parent: PageKey, tokens: Sequence[int]) -> PageKey:
    """Returns the key of a full page.

    Args:
        parent: Key of the page before it, or the root.
        tokens: The page's tokens.
    """
    return PageKey(blake2b(array("q", tokens).tobytes(), digest_size=16, key=parent).digest())


def extend_chain(keys: list[PageKey], trust_domain: str, tokens: Sequence[int], page_tokens: int, pages: int) -> None:
    """Appends keys of a sequence's full pages until there are as many as asked for.

    Args:
        keys: Keys of its first pages, which stay true because tokens are only ever appended.
        trust_domain: Its trust domain.
        tokens: Its tokens, at least ``pages`` full pages of them.
        page_tokens: Tokens a page holds.
        pages: How many keys there are to be.
    """
    for index in range(len(keys), pages):
        start = index * page_tokens
        keys.append(next_key(keys[-1] if keys else root_key(trust_domain), tokens[start : start + page_tokens]))


@dataclass(frozen=True, slots=True)
class Evicted:
    """A page that is about to be written over by something else.

    Attributes:
        page: The page; its content is still there.
        key: What it could be found by.
        trust_domain: Who could find it.
        uses: How often it was used, its making included.
    """

    page: PageId
    key: PageKey
    trust_domain: str
    uses: int


@dataclass(slots=True, eq=False)
class _Node:
    key: PageKey
    page: PageId
    trust_domain: str
    parent: _Node | None
    worth: float
    uses: int
    children: set[PageKey] = field(default_factory=set)
    idle: bool = False
    version: int = 0


_SLACK: Final = 64
"""Outdated entries of the heap that are kept before they are cleared away, at least."""


class PrefixIndex:
    """Keys to pages, and the pages that can be evicted.

    Args:
        half_life: Uses after which one weighs half as much, more than 0; near 0 the longest unused page goes first.
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

    def add(
        self, key: PageKey, parent: PageKey | None, page: PageId, trust_domain: str, uses: int = 1
    ) -> PageId | None:
        """Makes a held page findable, unless an equal page already is.

        Args:
            key: Its key.
            parent: Key of the page it continues; None for the first one.
            page: The page, which has no key yet.
            trust_domain: Who may find it.
            uses: How often it has been used; one that has not been counts half.

        Returns:
            The page that the key finds now; None if what it continues cannot be found, so that it could not either.
        """
        known = self._nodes.get(key)
        if known is not None:
            return known.page
        above = None if parent is None else self._nodes.get(parent)
        if parent is not None and above is None:
            return None
        worth = self._now() + log2(uses or 0.5)
        node = self._nodes[key] = self._by_page[page] = _Node(key, page, trust_domain, above, worth, uses)
        if above is not None:
            above.children.add(key)
        return node.page

    def use(self, page: PageId) -> None:
        """Counts a use of a findable page."""
        node = self._by_page[page]
        now = self._now()
        high, low = max(node.worth, now), min(node.worth, now)
        node.worth = high + log2(1 + 2 ** (low - high))
        node.uses += 1

    def forget(self, trust_domain: str) -> tuple[PageId, ...]:
        """Makes the pages of a trust domain unfindable; returns those of them that nobody holds."""
        nodes = [node for node in self._nodes.values() if node.trust_domain == trust_domain]
        idle = tuple(node.page for node in nodes if node.idle)
        for node in nodes:
            self._drop(node)
        return idle

    def rest(self, page: PageId) -> bool:
        """Takes a page that nobody holds any more; False if it cannot be found by key and so is of no use."""
        node = self._by_page.get(page)
        if node is None:
            return False
        node.idle = True
        self._idle += 1
        self._offer(node)
        return True

    def wake(self, page: PageId) -> None:
        """Somebody holds the page, again or still."""
        node = self._by_page[page]
        if node.idle:
            node.idle = False
            node.version += 1
            self._idle -= 1

    def is_idle(self, page: PageId) -> bool:
        """Whether nobody holds the page and it can be found."""
        node = self._by_page.get(page)
        return node is not None and node.idle

    def evict(self) -> Evicted:
        """Forgets the page of least worth that nobody holds and nothing continues.

        Raises:
            KeyError: No page is idle.
        """
        while self._leaves:
            _, _, version, node = heappop(self._leaves)
            if node.version == version and node.idle and not node.children:
                parent = node.parent
                self._drop(node)
                if parent is not None and parent.idle and not parent.children:
                    self._offer(parent)
                return Evicted(node.page, node.key, node.trust_domain, node.uses)
        raise KeyError("no page is idle")

    def _offer(self, node: _Node) -> None:
        """Puts an idle page forward for eviction, if nothing continues it."""
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

    def known(self) -> list[Evicted]:
        """Returns all that can be found, held or not, as if it were to go."""
        return [Evicted(node.page, node.key, node.trust_domain, node.uses) for node in self._nodes.values()]

    @property
    def parents(self) -> dict[PageId, PageId | None]:
        """The page that each findable page continues, None for a first one. The content of these must not change."""
        return {page: None if node.parent is None else node.parent.page for page, node in self._by_page.items()}

    @property
    def domains(self) -> frozenset[str]:
        """Trust domains of the findable pages."""
        return frozenset(node.trust_domain for node in self._nodes.values())

    @property
    def idle(self) -> tuple[PageId, ...]:
        """Pages that nobody holds."""
        return tuple(page for page, node in self._by_page.items() if node.idle)

    def __len__(self) -> int:
        """Number of pages that nobody holds; all of them can be evicted, one after the other."""
        return self._idle
