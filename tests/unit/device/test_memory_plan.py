from hypothesis import given
from hypothesis import strategies as st

from edge_rag.device.memory_plan import kv_page_count
from edge_rag.errors import ConfigurationError


@given(st.integers(1, 1 << 34), st.integers(1, 1 << 20), st.integers(1, 64), st.integers(1, 64), st.integers(1, 8192))
def test_the_planned_pages_fit_the_budget_and_one_full_sequence_or_nothing_is_planned(
    budget: int, page_bytes: int, page_tokens: int, slots: int, context: int
) -> None:
    needed = -(-context // page_tokens)
    try:
        pages = kv_page_count(budget, page_bytes, page_tokens, slots, context)
    except ConfigurationError:
        assert needed * page_bytes > budget
    else:
        assert needed <= pages <= 2 * slots * needed
        assert pages * page_bytes <= budget
