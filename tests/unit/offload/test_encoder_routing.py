from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.offload.encoding.routing import (
    EncoderInputs,
    EncoderRoutingInputs,
    EncoderTimeouts,
    EncoderWork,
    batch_texts,
    choose_encoder,
    encoder_timeouts,
    numbers,
)
from edge_rag.offload.generation.routing import AffinityCandidate, Place
from edge_rag.offload.remotes.latency_model import EncoderLatency

UNKNOWN = EncoderLatency()


def latency(per_text_s: float, round_trip_s: float = 0.0) -> EncoderLatency:
    return EncoderLatency(round_trip_s, 0.0, per_text_s)


def remote(
    measured: EncoderLatency = UNKNOWN, name: str = "big", *, allowed: bool = True, supported: bool = True
) -> EncoderInputs:
    return EncoderInputs(AffinityCandidate(name, measured.texts_per_s, 0), measured, allowed, supported)


INPUTS = EncoderRoutingInputs(
    work=EncoderWork.RANKS,
    mode=OffloadMode.OVERFLOW,
    rule=OffloadRule.ALLOWED,
    sendable=True,
    within_s=1.0,
    texts=20,
    ahead=0,
    timeout_s=10.0,
    key=b"k",
    constrained=False,
    local=latency(0.01),
    remotes=(remote(latency(0.001, 0.01)),),
)
SLOW = latency(0.1)
BACKGROUND = replace(INPUTS, work=EncoderWork.PASSAGES, texts=1000, within_s=None, local=SLOW)

LOCAL, REMOTE, BOTH = Place.LOCAL, Place.REMOTE, Place.BOTH


@pytest.mark.parametrize(
    ("inputs", "place"),
    [
        (INPUTS, LOCAL),
        (replace(INPUTS, local=SLOW), REMOTE),
        (replace(INPUTS, local=latency(0.045)), REMOTE),  # in time by less than the margin
        (replace(INPUTS, ahead=100), REMOTE),
        (replace(INPUTS, local=UNKNOWN), LOCAL),
        (replace(INPUTS, local=UNKNOWN, ahead=1), REMOTE),
        (replace(INPUTS, local=SLOW, within_s=None), LOCAL),
        (replace(INPUTS, constrained=True), REMOTE),
        (replace(INPUTS, constrained=True, remotes=(remote(latency(1.0)),)), LOCAL),
        (replace(INPUTS, local=SLOW, remotes=(remote(latency(0.5)),)), LOCAL),
        (replace(INPUTS, local=latency(0.5), remotes=(remote(SLOW),)), REMOTE),
        (replace(INPUTS, mode=OffloadMode.PREFER_REMOTE), REMOTE),
        (replace(INPUTS, mode=OffloadMode.PREFER_REMOTE, remotes=(remote(),)), REMOTE),
        (replace(INPUTS, mode=OffloadMode.PREFER_REMOTE, remotes=(remote(latency(1.0)),)), LOCAL),
        (replace(INPUTS, mode=OffloadMode.PREFER_REMOTE, sendable=False), LOCAL),
        (BACKGROUND, BOTH),
        (replace(BACKGROUND, local=UNKNOWN), BOTH),
        (replace(BACKGROUND, remotes=(remote(),)), BOTH),
        (replace(BACKGROUND, mode=OffloadMode.PREFER_REMOTE), REMOTE),
        (replace(BACKGROUND, constrained=True), REMOTE),
        (
            replace(BACKGROUND, texts=5, remotes=(remote(latency(0.001, 2.0)),)),
            LOCAL,
        ),  # done before one round trip
        (replace(BACKGROUND, texts=15, remotes=(remote(latency(0.2)),)), LOCAL),
        (replace(BACKGROUND, texts=1000, remotes=(remote(latency(0.2)),)), BOTH),
    ],
)
def test_where_texts_are_encoded(inputs: EncoderRoutingInputs, place: Place) -> None:
    decision = choose_encoder(inputs)
    assert decision.place is place, decision.reason
    assert bool(decision.remotes) == (place is not LOCAL)


ANY_LATENCY = st.builds(
    EncoderLatency, st.floats(0, 10), st.floats(0, 10), st.none() | st.floats(1e-6, 10), st.floats(0, 5)
)


@st.composite
def any_inputs(draw: st.DrawFn) -> EncoderRoutingInputs:
    remotes = tuple(
        remote(draw(ANY_LATENCY), name, allowed=draw(st.booleans()), supported=draw(st.booleans()))
        for name in draw(st.sets(st.sampled_from(["a", "b", "c"])))
    )
    return EncoderRoutingInputs(
        work=draw(st.sampled_from(EncoderWork)),
        mode=draw(st.sampled_from(OffloadMode)),
        rule=draw(st.sampled_from(OffloadRule)),
        sendable=draw(st.booleans()),
        within_s=draw(st.none() | st.floats(0.001, 1000)),
        texts=draw(st.integers(1, 5000)),
        ahead=draw(st.integers(0, 100)),
        timeout_s=draw(st.floats(0.01, 600)),
        key=draw(st.binary(max_size=4)),
        constrained=draw(st.booleans()),
        local=draw(ANY_LATENCY),
        remotes=remotes,
    )


@given(inputs=any_inputs())
def test_only_allowed_text_goes_to_remotes_that_support_it(inputs: EncoderRoutingInputs) -> None:
    decision = choose_encoder(inputs)
    fit = {each.candidate.name for each in inputs.remotes if each.supported and each.allowed}
    assert set(decision.remotes) <= fit
    assert (decision.place is LOCAL) == (not decision.remotes)
    if inputs.mode is OffloadMode.NEVER or inputs.rule is not OffloadRule.ALLOWED or not inputs.sendable:
        assert decision.place is LOCAL
    assert all(math.isfinite(number) for number in numbers(inputs).values())


@given(
    texts=st.integers(1, 1000),
    within=st.none() | st.floats(0.01, 1000),
    longest=st.floats(0.01, 600),
    remote_latency=ANY_LATENCY,
    local_latency=ANY_LATENCY,
)
def test_a_call_times_out_while_there_is_time_for_the_local_encoder(
    texts: int, within: float | None, longest: float, remote_latency: EncoderLatency, local_latency: EncoderLatency
) -> None:
    timeouts = encoder_timeouts(texts, within, longest, remote_latency, local_latency)
    assert 0 < timeouts.timeout_s <= longest
    assert timeouts.hedge_s is None or 0 < timeouts.hedge_s < timeouts.timeout_s
    local_s = local_latency.expected_s(texts)
    if within is not None and local_s is not None and local_s < within / 2:
        assert timeouts.timeout_s + local_s <= within * (1 + 1e-9)


def test_an_unusually_slow_remote_is_hedged() -> None:
    assert encoder_timeouts(20, 10.0, 10.0, latency(0.01), latency(0.1)) == EncoderTimeouts(hedge_s=0.4, timeout_s=7.0)
    assert encoder_timeouts(1, None, 10.0, latency(0.001), latency(0.1)).hedge_s == 0.1
    assert encoder_timeouts(20, None, 10.0, UNKNOWN, latency(0.1)) == EncoderTimeouts(None, 10.0)


def test_a_remote_gets_all_of_the_time_if_the_local_encoder_would_be_late() -> None:
    assert encoder_timeouts(20, 2.0, 10.0, UNKNOWN, latency(0.2)).timeout_s == 2.0
    assert encoder_timeouts(20, 2.0, 10.0, UNKNOWN, latency(0.05)).timeout_s == 0.5


def test_a_batch_is_what_a_remote_does_in_two_seconds_and_small_before_a_measurement() -> None:
    assert batch_texts(UNKNOWN, 10) == 16
    assert batch_texts(latency(0.001), 10) == 64
    assert batch_texts(latency(0.1), 10) == 20
    assert batch_texts(latency(0.1), 2) == 4
    assert batch_texts(latency(30), 10) == 4
