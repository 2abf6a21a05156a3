"""Pages on their way from the disk, and when it pays to fetch them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from edge_rag.engine.kv_cache.disk.page_file import StoredPage
from edge_rag.engine.kv_cache.prefix_cache import PageKey

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
