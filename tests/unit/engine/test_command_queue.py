"""The engine's loop goes round while it works and while it waits, and only while it is not stuck."""

import threading

from edge_rag.engine.command_queue import IDLE_TURN_S
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.telemetry.engine_observer import EngineLiveness, LivenessMonitor
from tests.unit.engine.support import LIMITS, GatedRunner, Recorder, Reports, prompts, request, tiny_decoder


class Heard:
    """Whether a sign of life came."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.count = 0

    def __call__(self) -> None:
        with self.changed:
            self.count += 1
            self.changed.notify_all()

    def again(self, timeout_s: float) -> bool:
        with self.changed:
            before = self.count
            return self.changed.wait_for(lambda: self.count > before, timeout_s)


class WatchedReports(Reports):
    """Reports of an engine that is watched beside others."""

    def __init__(self, monitor: LivenessMonitor) -> None:
        super().__init__()
        self.liveness = EngineLiveness(monitor)

    def on_turn(self) -> None:
        super().on_turn()
        self.liveness.iterated()

    def on_end(self) -> None:
        super().on_end()
        self.liveness.ended()


def test_an_idle_engine_goes_round_again_and_again() -> None:
    reports = Reports()
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=8), observer=reports)
    engine.start()
    with reports.turned:
        assert reports.turned.wait_for(lambda: reports.turns >= 3, timeout=60)
    engine.close()
    assert not reports.steps


def test_a_stuck_model_run_ends_the_turns_until_it_returns() -> None:
    stuck, proceed = threading.Event(), threading.Event()

    def hold(step: PackedStep) -> None:
        stuck.set()
        assert proceed.wait(60)

    reports = Reports()
    engine = Engine(GatedRunner(tiny_decoder(), hold), EngineSettings(LIMITS, max_waiting=8), observer=reports)
    engine.start()
    sink = Recorder()
    engine.submit(request(prompts(1)[0], max_tokens=4), sink)
    assert stuck.wait(60)
    with reports.turned:
        before = reports.turns
        assert not reports.turned.wait_for(lambda: reports.turns > before, timeout=3 * IDLE_TURN_S)
    proceed.set()
    with reports.turned:
        assert reports.turned.wait_for(lambda: reports.turns > before, timeout=60)
    sink.wait()
    engine.close()


def test_every_step_is_a_turn() -> None:
    reports = Reports()
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=8), observer=reports)
    engine.start()
    sink = Recorder()
    engine.submit(request(prompts(1)[0], max_tokens=20), sink)
    sink.wait()
    engine.close()
    assert reports.turns >= len(reports.steps) >= 20
    assert reports.over == 1


def test_of_two_engines_one_that_hangs_is_not_hidden_by_the_other_and_one_that_ended_is_not_waited_for() -> None:
    stuck, proceed = threading.Event(), threading.Event()

    def hold(step: PackedStep) -> None:
        stuck.set()
        assert proceed.wait(60)

    signs = Heard()
    monitor = LivenessMonitor(signs)
    old_reports, new_reports = WatchedReports(monitor), WatchedReports(monitor)
    old = Engine(GatedRunner(tiny_decoder(), hold), EngineSettings(LIMITS, max_waiting=8), observer=old_reports)
    new = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=8), observer=new_reports)
    for engine in (old, new):
        engine.start()
    assert signs.again(60)
    old.submit(request(prompts(1)[0], max_tokens=4), Recorder())
    assert stuck.wait(60)
    signs.again(2 * IDLE_TURN_S)  # turns before it was stuck may still be reported
    turns = new_reports.turns
    assert not signs.again(3 * IDLE_TURN_S)
    assert new_reports.turns > turns
    proceed.set()
    assert signs.again(60)
    old.close()
    assert signs.again(60)
    new.close()
