from hypothesis import given
from hypothesis import strategies as st

from edge_rag.engine.drafter import SHORTEST_MATCH, Drafter, PromptLookup, Proposal, StepCost

few_words = st.lists(st.integers(0, 4), max_size=60)


@given(few_words, few_words, st.integers(1, 10))
def test_what_is_proposed_followed_the_longest_match_the_latest_time(
    prompt: list[int], answer: list[int], most: int
) -> None:
    lookup = PromptLookup()
    lookup.index(prompt)
    text = [*prompt, *answer]
    expected = Proposal()
    for length in range(SHORTEST_MATCH, min(4, len(text)) + 1):
        places = [i for i in range(length, len(text)) if text[i - length : i] == text[len(text) - length :]]
        if places:
            expected = Proposal(tuple(text[places[-1] : places[-1] + most]), length)
    assert lookup.propose(text, most) == expected


def cost_of(fixed: float, token: float) -> StepCost:
    cost = StepCost()
    for n in range(300):
        cost.observe(1 + n % 9, fixed + token * (1 + n % 9))
    return cost


@given(st.floats(1e-4, 1), st.floats(1e-5, 1))
def test_the_cost_of_a_token_is_learnt_from_steps_of_different_sizes(fixed: float, token: float) -> None:
    cost = cost_of(fixed, token)
    assert abs(cost.step_s(20) - (fixed + 20 * token)) < 1e-6 + 0.01 * (fixed + 20 * token)


def test_a_step_that_took_absurdly_long_is_not_believed() -> None:
    cost = cost_of(0.01, 0.001)
    cost.observe(4, 60.0)
    assert cost.step_s(4) < 0.016


@given(st.floats(0, 1), st.integers(1, 64), st.integers(0, 16), st.floats(1e-3, 1), st.floats(1e-5, 1))
def test_drafts_grow_with_how_often_they_are_right_and_shrink_with_the_batch(
    acceptance: float, sequences: int, most: int, fixed: float, token: float
) -> None:
    cost = cost_of(fixed, token)
    length = cost.worthwhile(acceptance, sequences, most)
    assert 0 <= length <= most
    assert length <= cost.worthwhile(min(1.0, acceptance + 0.05), sequences, most)
    assert length >= cost.worthwhile(acceptance, sequences + 8, most)


def test_where_each_token_costs_as_much_as_the_next_nothing_is_drafted() -> None:
    assert cost_of(0.0, 0.01).worthwhile(1.0, 1, 8) == 0
    assert cost_of(0.1, 0.0001).worthwhile(0.9, 1, 8) == 8


def test_nothing_is_drafted_before_a_step_was_seen() -> None:
    assert StepCost().worthwhile(1.0, 1, 8) == 0


def test_a_request_that_never_copies_stops_drafting_and_begins_again_when_it_does() -> None:
    cost = cost_of(0.01, 0.003)
    text = [1, 2, 3, 4, 5, 6, 7, 8] * 2
    drafter = Drafter(text)
    assert drafter.draft(text, 6, 1, cost)
    for _ in range(40):
        drafter.draft(text, 6, 1, cost)
        drafter.learn([99])
    assert drafter.draft(text, 6, 1, cost) == ()
    for _ in range(40):
        drafter.draft(text, 6, 1, cost)
        drafter.learn([1])
    assert drafter.draft(text, 6, 1, cost) == (1, 2, 3, 4, 5, 6)
