from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.offload.generation.routing import RoutingInputs, choose
from edge_rag.offload.remotes.latency_model import Estimate
from edge_rag.offload.routing import (
    BOUND,
    AffinityCandidate,
    Place,
    RemoteInputs,
    RoutingDecision,
    affinity,
    documents_key,
)


def remote(
    name: str = "big", finish: float | None = 1.0, *, allowed: bool = True, supported: bool = True
) -> RemoteInputs:
    estimate = Estimate() if finish is None else Estimate(finish / 4, finish, 0.01)
    return RemoteInputs(AffinityCandidate(name, None, 0), estimate, allowed, supported)


INPUTS = RoutingInputs(
    mode=OffloadMode.OVERFLOW,
    rule=OffloadRule.ALLOWED,
    can_redact=False,
    deadline_in_s=10.0,
    prompt_tokens=300,
    documents=b"d",
    waiting=0,
    constrained=False,
    local=Estimate(1.0, 4.0, 0.1),
    remotes=(remote(),),
)

LOCAL, REMOTE = Place.LOCAL, Place.REMOTE
LATE = Estimate(5.0, 20.0, 0.1)


@pytest.mark.parametrize(
    ("inputs", "place"),
    [
        (INPUTS, LOCAL),
        (replace(INPUTS, local=LATE), REMOTE),
        (replace(INPUTS, local=Estimate(1.0, 8.5, 0.1)), REMOTE),  # in time by less than the margin
        (replace(INPUTS, deadline_in_s=None, local=LATE), LOCAL),
        (replace(INPUTS, local=Estimate()), LOCAL),
        (replace(INPUTS, local=Estimate(), waiting=3), REMOTE),
        (replace(INPUTS, constrained=True), REMOTE),
        (replace(INPUTS, constrained=True, remotes=(remote(finish=30.0),)), LOCAL),
        (replace(INPUTS, local=LATE, remotes=(remote(finish=30.0),)), LOCAL),
        (replace(INPUTS, local=LATE, remotes=(remote(finish=15.0),)), REMOTE),
        (replace(INPUTS, local=LATE, remotes=(remote(finish=None),)), REMOTE),
        (replace(INPUTS, local=LATE, remotes=(remote(allowed=False),)), LOCAL),
        (replace(INPUTS, local=LATE, remotes=(remote(supported=False),)), LOCAL),
        (replace(INPUTS, local=LATE, remotes=()), LOCAL),
        (replace(INPUTS, local=LATE, rule=OffloadRule.REDACTED), LOCAL),
        (replace(INPUTS, local=LATE, rule=OffloadRule.REDACTED, can_redact=True), REMOTE),
        (replace(INPUTS, mode=OffloadMode.PREFER_REMOTE), REMOTE),
        (replace(INPUTS, mode=OffloadMode.PREFER_REMOTE, remotes=(remote(finish=30.0),)), LOCAL),
        (replace(INPUTS, mode=OffloadMode.NEVER, local=LATE), LOCAL),
    ],
)
def test_the_place_follows_from_the_inputs(inputs: RoutingInputs, place: Place) -> None:
    assert choose(inputs).place is place


seconds = st.none() | st.floats(0, 100)
estimates = st.builds(Estimate, seconds, seconds, seconds)
remotes = st.lists(
    st.builds(
        RemoteInputs,
        st.builds(
            AffinityCandidate, st.sampled_from("abcdef"), seconds, st.integers(0, 99), st.none() | st.integers(-9, 9)
        ),
        estimates,
        st.booleans(),
        st.booleans(),
    ),
    max_size=4,
    unique_by=lambda each: each.candidate.name,
)
every = st.builds(
    RoutingInputs,
    st.sampled_from(OffloadMode),
    st.sampled_from(OffloadRule),
    st.booleans(),
    st.none() | st.floats(0.001, 1000),
    st.integers(1, 9999),
    st.binary(max_size=8),
    st.integers(0, 99),
    st.booleans(),
    estimates,
    remotes.map(tuple),
)


@given(every)
def test_a_forbidden_request_is_always_placed_locally(inputs: RoutingInputs) -> None:
    local = RoutingDecision(Place.LOCAL, (), "")
    for forbidden in (
        replace(inputs, rule=OffloadRule.NEVER),
        replace(inputs, mode=OffloadMode.NEVER),
        replace(inputs, rule=OffloadRule.REDACTED, can_redact=False),
    ):
        assert replace(choose(forbidden), reason="") == local


@given(every)
def test_only_remotes_that_support_and_allow_it_are_named(inputs: RoutingInputs) -> None:
    decision = choose(inputs)
    usable = {each.candidate.name for each in inputs.remotes if each.supported and each.allowed}
    assert usable >= set(decision.remotes)
    assert (decision.place is Place.LOCAL) or decision.remotes
    assert decision.reason


THREE = tuple(AffinityCandidate(name, 1.0, 0) for name in ("a", "b", "c"))
KEYS = [documents_key([f"document {n}"]) for n in range(600)]


def test_requests_about_the_same_documents_go_to_the_same_remote() -> None:
    assert documents_key(["x", "y", "x"]) == documents_key(["y", "x"])
    assert {affinity(KEYS[0], order) for order in (THREE, THREE[::-1])} == {affinity(KEYS[0], THREE)}


def test_removing_a_remote_moves_only_its_own_requests() -> None:
    for key in KEYS:
        before, after = affinity(key, THREE), affinity(key, THREE[:2])
        assert after == tuple(name for name in before if name != "c")


def test_documents_are_distributed_by_measured_speed() -> None:
    even = Counter(affinity(key, THREE)[0] for key in KEYS)
    assert min(even.values()) > 150
    faster = Counter(affinity(key, (replace(THREE[0], speed=4.0), *THREE[1:]))[0] for key in KEYS)
    assert faster["a"] > 1.5 * (faster["b"] + faster["c"])


def test_a_remote_over_its_share_or_without_spare_slots_is_skipped() -> None:
    first = affinity(KEYS[0], THREE)[0]
    loaded = tuple(replace(each, in_flight=9 if each.name == first else 1) for each in THREE)
    assert affinity(KEYS[0], loaded)[0] != first
    full = tuple(replace(each, spare=0 if each.name == first else 3) for each in THREE)
    assert affinity(KEYS[0], full)[0] != first


@given(st.lists(st.sampled_from(KEYS[:5]), min_size=1, max_size=200))
def test_no_remote_exceeds_its_bounded_share_for_similar_requests(keys: list[bytes]) -> None:
    in_flight = Counter[str]()
    for count, key in enumerate(keys, start=1):
        chosen = affinity(key, [replace(each, in_flight=in_flight[each.name]) for each in THREE])[0]
        in_flight[chosen] += 1
        assert in_flight[chosen] <= BOUND * count / len(THREE) + 1


def test_if_all_are_full_the_least_loaded_is_first() -> None:
    full = tuple(replace(each, spare=0, in_flight=n) for n, each in enumerate(THREE, start=1))
    assert affinity(KEYS[0], full) == ("a", "b", "c")
