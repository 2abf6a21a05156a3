"""Which full page holds which tokens, so that an equal beginning is computed once.

A page's key is a hash of its parent's key and its own tokens, starting from a hash of the trust domain. Equal keys mean
equal beginnings within one domain; another domain's pages cannot be found, and so not be timed, at all.

Pages that nobody holds stay findable until their room is needed, least recently released first. A sequence gives its
pages back last page first, so a page goes before the one it continues. (Where two sequences computed the same page at
the same time only one copy is findable; what continues the other may outlive it, unfindable, until its turn comes.)

Only full pages have a key, and a sequence writes only at positions from its first pending token on, which lie after
every full page it found. So nobody ever writes to a page that another sequence can see, and no page has to be copied
before it is written to. Sharing a partly filled last page would save less than a page of prefill for each request, at
the price of copying one; the prompt's shared beginning is many pages long.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import NewType

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


class PrefixIndex:
    """Keys to pages, and the pages that can be evicted."""

    def __init__(self) -> None:
        self._pages: dict[PageKey, PageId] = {}
        self._keys: dict[PageId, PageKey] = {}
        self._idle: OrderedDict[PageId, None] = OrderedDict()
        self._domains: dict[PageId, str] = {}

    def find(self, key: PageKey) -> PageId | None:
        """Returns the page of a key, or None."""
        return self._pages.get(key)

    def add(self, key: PageKey, page: PageId, trust_domain: str) -> None:
        """Makes a held page findable, unless an equal page already is."""
        if key not in self._pages and page not in self._keys:
            self._pages[key] = page
            self._keys[page] = key
            self._domains[page] = trust_domain

    def forget(self, trust_domain: str) -> tuple[PageId, ...]:
        """Makes the pages of a trust domain unfindable; returns those of them that nobody holds."""
        pages = [page for page, domain in self._domains.items() if domain == trust_domain]
        idle = tuple(page for page in pages if page in self._idle)
        for page in pages:
            self._drop(page)
        return idle

    def rest(self, page: PageId) -> bool:
        """Takes a page that nobody holds any more; False if it cannot be found by key and so is of no use."""
        if page not in self._keys:
            return False
        self._idle[page] = None
        return True

    def wake(self, page: PageId) -> None:
        """Somebody holds the page again."""
        self._idle.pop(page, None)

    def is_idle(self, page: PageId) -> bool:
        """Whether nobody holds the page and it can be found."""
        return page in self._idle

    def evict(self) -> PageId:
        """Forgets the page that was released the longest ago.

        Raises:
            KeyError: No page is idle.
        """
        page = next(iter(self._idle), None)
        if page is None:
            raise KeyError("no page is idle")
        self._drop(page)
        return page

    def _drop(self, page: PageId) -> None:
        self._idle.pop(page, None)
        del self._domains[page]
        del self._pages[self._keys.pop(page)]

    @property
    def findable(self) -> frozenset[PageId]:
        """Pages with a key; their content must not change."""
        return frozenset(self._keys)

    @property
    def idle(self) -> tuple[PageId, ...]:
        """Pages that can be evicted, the next one first."""
        return tuple(self._idle)

    def __len__(self) -> int:
        """Number of pages that can be evicted."""
        return len(self._idle)
