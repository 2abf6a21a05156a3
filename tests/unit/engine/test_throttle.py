"""An engine that is to do less lets fewer in, answers the same, and takes up all its slots again."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.scheduling.policy import SchedulerLimits, throttled_limits
from edge_rag.runtime.decoder.model_input import PackedStep
from tests.unit.engine.support import LIMITS, GatedRunner, generate, prompts, request, submit_all, tiny_decoder


@given(st.integers(1, 64), st.integers(1, 64), st.integers(0, 2000), st.floats(0.001, 1))
def test_limits_held_back_are_legal_smaller_and_leave_every_slot_its_token(
    slots: int, prefill: int, more: int, share: float
) -> None:
    full = SchedulerLimits(slots, slots + prefill + more, prefill)
    less = throttled_limits(full, share)
    assert 1 <= less.max_slots <= max(1, slots * share + 1e-6)
    assert less.prefill_tokens <= prefill
    assert less.max_step_tokens <= full.max_step_tokens
    assert less.max_step_tokens - less.prefill_tokens >= slots
    assert throttled_limits(full, 1.0) == full


def test_a_restrained_engine_uses_its_share_and_answers_the_same() -> None:
    items = [request(prompt, max_tokens=8) for prompt in prompts(12)]
    free = [sink.tokens for sink in generate(tiny_decoder(pages=256), items)]
    widths: list[int] = []
    engine = Engine(
        GatedRunner(tiny_decoder(pages=256), lambda step: widths.append(step.cumulative_sequence_lengths.size - 1)),
        EngineSettings(LIMITS, max_waiting=64),
    )
    engine.set_throttle(0.25)
    sinks = submit_all(engine, items)
    engine.start()
    assert [sink.wait().tokens for sink in sinks] == free
    assert max(widths) == LIMITS.max_slots // 4
    widths.clear()
    engine.set_throttle(1.0)
    for sink in submit_all(engine, items):
        sink.wait()
    engine.close()
    assert max(widths) == LIMITS.max_slots
    assert engine.stats().preemptions == 0


def test_whoever_runs_when_the_engine_is_restrained_keeps_its_slot() -> None:
    full, proceed = threading.Event(), threading.Event()

    def hold(step: PackedStep) -> None:
        if step.cumulative_sequence_lengths.size - 1 == LIMITS.max_slots and not proceed.is_set():
            full.set()
            assert proceed.wait(60)

    engine = Engine(GatedRunner(tiny_decoder(pages=256), hold), EngineSettings(LIMITS, max_waiting=64))
    sinks = submit_all(engine, (request(prompt, max_tokens=24) for prompt in prompts(LIMITS.max_slots, longest=16)))
    engine.start()
    assert full.wait(60)
    engine.set_throttle(0.01)
    proceed.set()
    for sink in sinks:
        assert sink.wait().error is None
    assert engine.stats().slots == 1
    assert engine.stats().preemptions == 0
    engine.close()


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_an_engine_that_is_restrained_before_it_starts_begins_so(share: float) -> None:
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=8))
    engine.set_throttle(share)
    engine.start()
    engine.snapshot()
    assert engine.stats().slots == int(LIMITS.max_slots * share)
    engine.close()
