import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.offload.encoding.routing import (
    EncoderInputs,
    EncoderRoutingInputs,
    batch_texts,
    choose_encoders,
    late_after_s,
    numbers,
)
from edge_rag.offload.remotes.latency_model import EncoderLatency
from edge_rag.offload.routing import Place

UNKNOWN = EncoderLatency()


def latency(per_text_s: float, round_trip_s: float = 0.0) -> EncoderLatency:
    return EncoderLatency(round_trip_s, 0.0, per_text_s)


def remote(
    measured: EncoderLatency = UNKNOWN, name: str = "big", *, allowed: bool = True, supported: bool = True
) -> EncoderInputs:
    return EncoderInputs(name, 0, measured, allowed, supported)


SLOW = latency(0.1)
INPUTS = EncoderRoutingInputs(
    mode=OffloadMode.OVERFLOW,
    rule=OffloadRule.ALLOWED,
    texts=1000,
    timeout_s=10.0,
    constrained=False,
    local=SLOW,
    remotes=(remote(latency(0.001, 0.01)),),
)

LOCAL, REMOTE, BOTH = Place.LOCAL, Place.REMOTE, Place.BOTH


@pytest.mark.parametrize(
    ("inputs", "place"),
    [
        (INPUTS, BOTH),
        (replace(INPUTS, local=UNKNOWN), BOTH),
        (replace(INPUTS, remotes=(remote(),)), BOTH),
        (replace(INPUTS, remotes=(remote(allowed=False),)), LOCAL),
        (replace(INPUTS, remotes=(remote(supported=False),)), LOCAL),
        (replace(INPUTS, mode=OffloadMode.PREFER_REMOTE), REMOTE),
        (replace(INPUTS, mode=OffloadMode.NEVER), LOCAL),
        (replace(INPUTS, constrained=True), REMOTE),
        (replace(INPUTS, texts=5, remotes=(remote(latency(0.001, 2.0)),)), LOCAL),  # done before one round trip
        (replace(INPUTS, texts=15, remotes=(remote(latency(0.2)),)), LOCAL),
        (replace(INPUTS, texts=1000, remotes=(remote(latency(0.2)),)), BOTH),
    ],
)
def test_where_texts_are_encoded(inputs: EncoderRoutingInputs, place: Place) -> None:
    decision = choose_encoders(inputs)
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
        mode=draw(st.sampled_from(OffloadMode)),
        rule=draw(st.sampled_from(OffloadRule)),
        texts=draw(st.integers(1, 5000)),
        timeout_s=draw(st.floats(0.01, 600)),
        constrained=draw(st.booleans()),
        local=draw(ANY_LATENCY),
        remotes=remotes,
    )


@given(inputs=any_inputs())
def test_only_allowed_text_goes_to_remotes_that_support_it(inputs: EncoderRoutingInputs) -> None:
    decision = choose_encoders(inputs)
    fit = {each.name for each in inputs.remotes if each.supported and each.allowed}
    assert set(decision.remotes) <= fit
    assert (decision.place is LOCAL) == (not decision.remotes)
    if inputs.mode is OffloadMode.NEVER or inputs.rule is not OffloadRule.ALLOWED:
        assert decision.place is LOCAL
    assert all(math.isfinite(number) for number in numbers(inputs).values())


def test_a_batch_is_late_after_an_unusual_time_and_never_after_its_timeout() -> None:
    assert late_after_s(20, 10.0, latency(0.01)) == 0.4
    assert late_after_s(1, 10.0, latency(0.001)) == 0.1
    assert late_after_s(20, 10.0, UNKNOWN) == math.inf
    assert late_after_s(20, 0.3, latency(0.01)) == math.inf


def test_a_batch_is_what_a_remote_does_in_two_seconds_and_small_before_a_measurement() -> None:
    assert batch_texts(UNKNOWN, 10) == 16
    assert batch_texts(latency(0.001), 10) == 64
    assert batch_texts(latency(0.1), 10) == 20
    assert batch_texts(latency(0.1), 2) == 4
    assert batch_texts(latency(30), 10) == 4
