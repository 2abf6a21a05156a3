"""Invariants of the page accounting between two steps; checked in tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from edge_rag.engine.kv_cache.block_pool import PoolSnapshot
from edge_rag.engine.kv_cache.prefix_cache import PageId
from edge_rag.engine.sequence import SequenceId


def violations(snapshot: PoolSnapshot, computed: Mapping[SequenceId, int]) -> list[str]:
    """Returns the invariants that a snapshot violates.

    Args:
        snapshot: The pool between two steps.
        computed: Tokens the cache holds of each running sequence.

    Returns:
        One sentence for each violation.
    """
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
