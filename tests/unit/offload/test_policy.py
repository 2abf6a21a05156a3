from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.core.query import Priority
from edge_rag.offload.generation.routing import Candidate, Choice, Facts, Place, RemoteFacts, choose, numbers
from edge_rag.offload.remotes.latency_model import Estimate


def remote(name: str = "big", finish: float | None = 1.0, *, lets: bool = True, able: bool = True) -> RemoteFacts:
    outlook = Estimate() if finish is None else Estimate(finish / 4, finish, 0.01)
    return RemoteFacts(Candidate(name, None, 0), outlook, lets, able)


FACTS = Facts(
    mode=OffloadMode.OVERFLOW,
    rule=OffloadRule.ALLOWED,
    can_redact=False,
    priority=Priority.INTERACTIVE,
    deadline_in_s=10.0,
    prompt_tokens=300,
    documents=b"d",
    waiting=0,
    strained=False,
    local=Estimate(1.0, 4.0, 0.1),
    remotes=(remote(),),
)

HERE, THERE, BOTH = Place.LOCAL, Place.REMOTE, Place.BOTH
LATE = Estimate(5.0, 20.0, 0.1)


@pytest.mark.parametrize(
    ("facts", "place"),
    [
        (FACTS, HERE),
        (replace(FACTS, local=LATE), THERE),
        (replace(FACTS, local=Estimate(1.0, 8.5, 0.1)), THERE),  # in time by less than the margin
        (replace(FACTS, deadline_in_s=None, local=LATE), HERE),
        (replace(FACTS, local=Estimate()), HERE),
        (replace(FACTS, local=Estimate(), waiting=3), THERE),
        (replace(FACTS, strained=True), THERE),
        (replace(FACTS, strained=True, remotes=(remote(finish=30.0),)), HERE),
        (replace(FACTS, local=LATE, remotes=(remote(finish=30.0),)), HERE),
        (replace(FACTS, local=LATE, remotes=(remote(finish=15.0),)), THERE),
        (replace(FACTS, local=LATE, remotes=(remote(finish=None),)), THERE),
        (replace(FACTS, local=LATE, remotes=(remote(lets=False),)), HERE),
        (replace(FACTS, local=LATE, remotes=(remote(able=False),)), HERE),
        (replace(FACTS, local=LATE, remotes=()), HERE),
        (replace(FACTS, local=LATE, rule=OffloadRule.REDACTED), HERE),
        (replace(FACTS, local=LATE, rule=OffloadRule.REDACTED, can_redact=True), THERE),
        (replace(FACTS, mode=OffloadMode.PREFER_REMOTE), THERE),
        (replace(FACTS, mode=OffloadMode.PREFER_REMOTE, remotes=(remote(finish=30.0),)), HERE),
        (replace(FACTS, mode=OffloadMode.RACE), BOTH),
        (replace(FACTS, mode=OffloadMode.RACE, priority=Priority.NORMAL), HERE),
        (replace(FACTS, mode=OffloadMode.RACE, priority=Priority.NORMAL, local=LATE), THERE),
        (replace(FACTS, mode=OffloadMode.NEVER, local=LATE), HERE),
    ],
)
def test_the_place_follows_from_the_facts(facts: Facts, place: Place) -> None:
    assert choose(facts).place is place


seconds = st.none() | st.floats(0, 100)
outlooks = st.builds(Estimate, seconds, seconds, seconds)
remotes = st.lists(
    st.builds(
        RemoteFacts,
        st.builds(Candidate, st.sampled_from("abcdef"), seconds, st.integers(0, 99), st.none() | st.integers(-9, 9)),
        outlooks,
        st.booleans(),
        st.booleans(),
    ),
    max_size=4,
    unique_by=lambda each: each.candidate.name,
)
every = st.builds(
    Facts,
    st.sampled_from(OffloadMode),
    st.sampled_from(OffloadRule),
    st.booleans(),
    st.sampled_from(Priority),
    st.none() | st.floats(0.001, 1000),
    st.integers(1, 9999),
    st.binary(max_size=8),
    st.integers(0, 99),
    st.booleans(),
    outlooks,
    remotes.map(tuple),
)


@given(every)
def test_what_may_not_leave_never_does(facts: Facts) -> None:
    here = Choice(Place.LOCAL, (), "")
    for forbidden in (
        replace(facts, rule=OffloadRule.NEVER),
        replace(facts, mode=OffloadMode.NEVER),
        replace(facts, rule=OffloadRule.REDACTED, can_redact=False),
    ):
        assert replace(choose(forbidden), reason="") == here


@given(every)
def test_only_remotes_that_are_able_and_let_through_are_named(facts: Facts) -> None:
    choice = choose(facts)
    usable = {each.candidate.name for each in facts.remotes if each.able and each.lets_through}
    assert usable >= set(choice.remotes)
    assert (choice.place is Place.LOCAL) or choice.remotes
    assert choice.reason


@given(every)
def test_the_numbers_of_a_decision_are_numbers(facts: Facts) -> None:
    assert all(isinstance(value, int | float) for value in numbers(facts).values())
