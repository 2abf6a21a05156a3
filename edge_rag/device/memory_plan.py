"""What the memory of a box is used for."""

from __future__ import annotations

from edge_rag.errors import ConfigurationError


def kv_page_count(budget_bytes: int, page_bytes: int, page_tokens: int, max_slots: int, max_context: int) -> int:
    """Plans the KV cache.

    Args:
        budget_bytes: Memory it may take.
        page_bytes: Size of one page over all layers.
        page_tokens: Tokens a page holds.
        max_slots: Sequences that run at once.
        max_context: Longest sequence, tokens.

    Returns:
        Pages: as many as fit the budget, at most twice what full slots need (the rest could only hold cold prefixes).

    Raises:
        ConfigurationError: Not even one sequence of full length fits.
    """
    pages_per_sequence = -(-max_context // page_tokens)
    affordable = budget_bytes // page_bytes
    if affordable < pages_per_sequence:
        need = pages_per_sequence * page_bytes
        raise ConfigurationError(
            f"generator.kv_memory_mib: {budget_bytes >> 20} MiB hold {affordable} pages, one sequence of {max_context}"
            f" tokens needs {pages_per_sequence} ({-(-need >> 20)} MiB)"
        )
    return min(affordable, 2 * max_slots * pages_per_sequence)
