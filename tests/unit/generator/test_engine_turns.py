"""The engine's loop goes round while it works and while it waits, and only while it is not stuck."""

from __future__ import annotations

import threading

from edge_rag.generator.engine import Engine
from edge_rag.generator.inbox import IDLE_TURN_S
from edge_rag.runtime.packed_step import PackedStep
from tests.unit.generator.support import LIMITS, GatedRunner, Recorder, Reports, prompts, request, tiny_decoder


def test_an_idle_engine_goes_round_again_and_again() -> None:
    reports = Reports()
    engine = Engine(tiny_decoder(), LIMITS, max_waiting=8, observer=reports)
    engine.start()
    with reports.turned:
        assert reports.turned.wait_for(lambda: reports.turns >= 3, timeout=60)
    engine.close()
    assert not reports.steps


def test_a_stuck_model_run_ends_the_turns_until_it_returns() -> None:
    stuck, go_on = threading.Event(), threading.Event()

    def hold(step: PackedStep) -> None:
        stuck.set()
        assert go_on.wait(60)

    reports = Reports()
    engine = Engine(GatedRunner(tiny_decoder(), hold), LIMITS, max_waiting=8, observer=reports)
    engine.start()
    sink = Recorder()
    engine.submit(request(prompts(1)[0], max_tokens=4), sink)
    assert stuck.wait(60)
    with reports.turned:
        before = reports.turns
        assert not reports.turned.wait_for(lambda: reports.turns > before, timeout=3 * IDLE_TURN_S)
    go_on.set()
    with reports.turned:
        assert reports.turned.wait_for(lambda: reports.turns > before, timeout=60)
    sink.wait()
    engine.close()


def test_every_step_is_a_turn() -> None:
    reports = Reports()
    engine = Engine(tiny_decoder(), LIMITS, max_waiting=8, observer=reports)
    engine.start()
    sink = Recorder()
    engine.submit(request(prompts(1)[0], max_tokens=20), sink)
    sink.wait()
    engine.close()
    assert reports.turns >= len(reports.steps) >= 20
