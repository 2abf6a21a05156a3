from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.core.query import Priority
from edge_rag.offload.encoding.routing import (
    EncoderFacts,
    EncodingFacts,
    Waiting,
    Work,
    batch_texts,
    choose_encoder,
    numbers,
    waiting,
)
from edge_rag.offload.generation.routing import Candidate, Place
from edge_rag.offload.remotes.latency_model import Pace

UNKNOWN = Pace()


def pace(per_text_s: float, round_trip_s: float = 0.0) -> Pace:
    return Pace(round_trip_s, 0.0, per_text_s)


def remote(speed: Pace = UNKNOWN, name: str = "big", *, lets: bool = True, able: bool = True) -> EncoderFacts:
    return EncoderFacts(Candidate(name, speed.texts_per_s, 0), speed, lets, able)


FACTS = EncodingFacts(
    work=Work.RANKS,
    mode=OffloadMode.OVERFLOW,
    rule=OffloadRule.ALLOWED,
    sendable=True,
    priority=Priority.INTERACTIVE,
    within_s=1.0,
    texts=20,
    ahead=0,
    longest_s=10.0,
    key=b"k",
    strained=False,
    local=pace(0.01),
    remotes=(remote(pace(0.001, 0.01)),),
)
SLOW = pace(0.1)
BULK = replace(FACTS, work=Work.PASSAGES, texts=1000, within_s=None, priority=None, local=SLOW)

HERE, THERE, BOTH = Place.LOCAL, Place.REMOTE, Place.BOTH


@pytest.mark.parametrize(
    ("facts", "place"),
    [
        (FACTS, HERE),
        (replace(FACTS, local=SLOW), THERE),
        (replace(FACTS, local=pace(0.045)), THERE),  # in time by less than the margin
        (replace(FACTS, ahead=100), THERE),
        (replace(FACTS, local=UNKNOWN), HERE),
        (replace(FACTS, local=UNKNOWN, ahead=1), THERE),
        (replace(FACTS, local=SLOW, within_s=None), HERE),
        (replace(FACTS, strained=True), THERE),
        (replace(FACTS, strained=True, remotes=(remote(pace(1.0)),)), HERE),
        (replace(FACTS, local=SLOW, remotes=(remote(pace(0.5)),)), HERE),
        (replace(FACTS, local=pace(0.5), remotes=(remote(SLOW),)), THERE),
        (replace(FACTS, mode=OffloadMode.PREFER_REMOTE), THERE),
        (replace(FACTS, mode=OffloadMode.PREFER_REMOTE, remotes=(remote(),)), THERE),
        (replace(FACTS, mode=OffloadMode.PREFER_REMOTE, remotes=(remote(pace(1.0)),)), HERE),
        (replace(FACTS, mode=OffloadMode.RACE), BOTH),
        (replace(FACTS, mode=OffloadMode.RACE, priority=Priority.BATCH), HERE),
        (replace(FACTS, mode=OffloadMode.RACE, remotes=(remote(lets=False),)), HERE),
        (replace(FACTS, mode=OffloadMode.PREFER_REMOTE, sendable=False), HERE),
        (BULK, BOTH),
        (replace(BULK, local=UNKNOWN), BOTH),
        (replace(BULK, remotes=(remote(),)), BOTH),
        (replace(BULK, mode=OffloadMode.PREFER_REMOTE), THERE),
        (replace(BULK, strained=True), THERE),
        (replace(BULK, texts=5, remotes=(remote(pace(0.001, 2.0)),)), HERE),  # done before one way there and back
        (replace(BULK, texts=15, remotes=(remote(pace(0.2)),)), HERE),
        (replace(BULK, texts=1000, remotes=(remote(pace(0.2)),)), BOTH),
    ],
)
def test_where_texts_are_encoded(facts: EncodingFacts, place: Place) -> None:
    choice = choose_encoder(facts)
    assert choice.place is place, choice.reason
    assert bool(choice.remotes) == (place is not HERE)


ANY_PACE = st.builds(Pace, st.floats(0, 10), st.floats(0, 10), st.none() | st.floats(1e-6, 10), st.floats(0, 5))


@st.composite
def any_facts(draw: st.DrawFn) -> EncodingFacts:
    remotes = tuple(
        remote(draw(ANY_PACE), name, lets=draw(st.booleans()), able=draw(st.booleans()))
        for name in draw(st.sets(st.sampled_from(["a", "b", "c"])))
    )
    return EncodingFacts(
        work=draw(st.sampled_from(Work)),
        mode=draw(st.sampled_from(OffloadMode)),
        rule=draw(st.sampled_from(OffloadRule)),
        sendable=draw(st.booleans()),
        priority=draw(st.none() | st.sampled_from(Priority)),
        within_s=draw(st.none() | st.floats(0.001, 1000)),
        texts=draw(st.integers(1, 5000)),
        ahead=draw(st.integers(0, 100)),
        longest_s=draw(st.floats(0.01, 600)),
        key=draw(st.binary(max_size=4)),
        strained=draw(st.booleans()),
        local=draw(ANY_PACE),
        remotes=remotes,
    )


@given(facts=any_facts())
def test_only_text_that_may_leave_as_it_is_goes_to_machines_that_are_up_to_it(facts: EncodingFacts) -> None:
    choice = choose_encoder(facts)
    fit = {each.candidate.name for each in facts.remotes if each.able and each.lets_through}
    assert set(choice.remotes) <= fit
    assert (choice.place is HERE) == (not choice.remotes)
    if facts.mode is OffloadMode.NEVER or facts.rule is not OffloadRule.ALLOWED or not facts.sendable:
        assert choice.place is HERE
    assert all(math.isfinite(number) for number in numbers(facts).values())


@given(
    texts=st.integers(1, 1000),
    within=st.none() | st.floats(0.01, 1000),
    longest=st.floats(0.01, 600),
    there=ANY_PACE,
    here=ANY_PACE,
)
def test_a_remote_is_given_up_while_there_is_time_left_for_this_box(
    texts: int, within: float | None, longest: float, there: Pace, here: Pace
) -> None:
    patience = waiting(texts, within, longest, there, here)
    assert 0 < patience.give_up_s <= longest
    assert patience.hedge_s is None or 0 < patience.hedge_s < patience.give_up_s
    needed = here.expected_s(texts)
    if within is not None and needed is not None and needed < within / 2:
        assert patience.give_up_s + needed <= within * (1 + 1e-9)


def test_a_remote_that_takes_longer_than_it_mostly_does_is_not_waited_for_alone() -> None:
    assert waiting(20, 10.0, 10.0, pace(0.01), pace(0.1)) == Waiting(hedge_s=0.4, give_up_s=7.0)
    assert waiting(1, None, 10.0, pace(0.001), pace(0.1)).hedge_s == 0.1
    assert waiting(20, None, 10.0, UNKNOWN, pace(0.1)) == Waiting(None, 10.0)


def test_a_remote_is_not_given_up_for_a_box_that_would_be_late_anyway() -> None:
    assert waiting(20, 2.0, 10.0, UNKNOWN, pace(0.2)).give_up_s == 2.0
    assert waiting(20, 2.0, 10.0, UNKNOWN, pace(0.05)).give_up_s == 0.5


def test_a_batch_is_what_a_remote_does_in_two_seconds_and_small_before_that_is_known() -> None:
    assert batch_texts(UNKNOWN, 10) == 16
    assert batch_texts(pace(0.001), 10) == 64
    assert batch_texts(pace(0.1), 10) == 20
    assert batch_texts(pace(0.1), 2) == 4
    assert batch_texts(pace(30), 10) == 4
