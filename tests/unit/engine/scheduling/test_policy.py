import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.engine.scheduling.policy import SchedulerLimits, split_tokens
from edge_rag.errors import ConfigurationError

limits_and_pending = st.tuples(st.integers(1, 12), st.integers(1, 40), st.integers(0, 60)).flatmap(
    lambda n: st.tuples(
        st.just(SchedulerLimits(n[0], n[0] + n[1] + n[2], n[1])),
        st.lists(st.integers(1, 300), min_size=1, max_size=n[0]),
    )
)


def test_decodes_go_first_and_prefill_takes_the_rest_in_order() -> None:
    assert split_tokens([1, 300, 1, 50], SchedulerLimits(4, 64, 16)) == [1, 62, 1, 0]


def test_prefill_that_needs_less_than_its_share_takes_no_more() -> None:
    assert split_tokens([1, 5, 7], SchedulerLimits(4, 64, 16)) == [1, 5, 7]


@given(limits_and_pending)
def test_a_step_stays_within_its_budget_and_no_sequence_gets_more_than_it_needs(
    case: tuple[SchedulerLimits, list[int]],
) -> None:
    limits, pending = case
    counts = split_tokens(pending, limits)
    assert sum(counts) <= limits.max_step_tokens
    assert all(0 <= count <= n for count, n in zip(counts, pending, strict=True))


@given(limits_and_pending)
def test_every_decode_advances_in_every_step(case: tuple[SchedulerLimits, list[int]]) -> None:
    limits, pending = case
    assert all(count == 1 for count, n in zip(split_tokens(pending, limits), pending, strict=True) if n == 1)


@given(limits_and_pending)
def test_prefill_gets_its_share_however_many_decode(case: tuple[SchedulerLimits, list[int]]) -> None:
    limits, pending = case
    counts = split_tokens(pending, limits)
    prefilled = sum(count for count, n in zip(counts, pending, strict=True) if n > 1)
    assert prefilled >= min(limits.prefill_tokens, sum(n for n in pending if n > 1))


@given(limits_and_pending)
def test_no_token_of_the_budget_is_wasted(case: tuple[SchedulerLimits, list[int]]) -> None:
    limits, pending = case
    assert sum(split_tokens(pending, limits)) == min(limits.max_step_tokens, sum(pending))


@pytest.mark.parametrize(("slots", "tokens", "prefill"), [(8, 10, 4), (0, 10, 4), (4, 10, 0)])
def test_limits_under_which_something_would_starve_are_refused(slots: int, tokens: int, prefill: int) -> None:
    with pytest.raises(ConfigurationError):
        SchedulerLimits(slots, tokens, prefill)
