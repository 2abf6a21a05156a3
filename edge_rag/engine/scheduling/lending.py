"""Who copies passages from which pages, and when those pages are wanted back."""

from __future__ import annotations

from collections.abc import Iterable

from edge_rag.engine.kv_cache.block_pool import PagePool
from edge_rag.engine.kv_cache.page_copy import Loan
from edge_rag.engine.sequence import Sequence


def lend(sequence: Sequence, pool: PagePool, spare: int) -> None:
    """Gives a sequence that has just entered loans of what the cache holds of its passages.

    What is not held is computed. A page that is lent cannot be taken for anything else until it has been copied.

    Args:
        sequence: Who enters; what the cache holds of its beginning is its own already.
        pool: The pages.
        spare: Pages that can be had beside those that the sequence and the others need.
    """
    sequence.loans, sequence.exact_until = (), None
    loans: list[Loan] = []
    for span in sequence.spans:
        start = max(span.start, sequence.computed)
        pages = pool.match(sequence.trust_domain, span.alone, [])
        offset = span.offset + start - span.start
        length = min(span.end, sequence.prompt_tokens - 1) - start
        length = min(length, len(pages) * pool.page_tokens - offset)
        if length <= 0:
            continue
        spare -= pool.idle(pages)
        if spare < 0:
            break
        pool.lease(sequence.id, pages)
        loans.append(Loan(start, length, pages, offset))
    if loans:
        sequence.loans, sequence.exact_until = tuple(loans), loans[0].start


def call_in(sequences: Iterable[Sequence], pool: PagePool) -> bool:
    """Takes loans back that are not copied yet: the sequences compute these passages themselves.

    Returns:
        Whether there were any.
    """
    borrowers = [sequence for sequence in sequences if sequence.loans]
    for sequence in borrowers:
        pool.end_lease(sequence.id)
        sequence.loans = ()
    return bool(borrowers)
