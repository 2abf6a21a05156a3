"""What the engine reports of steps and requests, on a clock that only the model's runs move: one second each."""

import threading
from dataclasses import replace

import pytest

from edge_rag.core.answer import FinishReason
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.query import Priority
from edge_rag.engine.constraint import Constraint
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.generator.constraints.plain import NoGeneration
from edge_rag.runtime.decoder.model_input import PackedStep
from tests.unit.engine.recorded_events import RecordedEvents
from tests.unit.engine.support import (
    LIMITS,
    GatedRunner,
    Recorder,
    Reports,
    Runs,
    prompts,
    request,
    submit_all,
    tiny_decoder,
)


class Clocked:
    """An engine whose every step takes a second."""

    def __init__(self, limits: SchedulerLimits = LIMITS, pages: int = 64) -> None:
        self.reports = Reports()
        self.audit = RecordedEvents()
        self.seconds = 0.0
        self.hold = threading.Event()
        self.hold.set()
        self.inside = threading.Event()
        runner = GatedRunner(tiny_decoder(pages=pages), self._run)
        self.engine = Engine(runner, EngineSettings(limits, 100), self.reports, self.audit, clock=lambda: self.seconds)

    def run(self, *requests: TokenRequest) -> list[Recorder]:
        sinks = submit_all(self.engine, requests)
        self.engine.start()
        for sink in sinks:
            sink.wait()
        self.engine.close()
        return sinks

    def _run(self, step: PackedStep) -> None:
        self.inside.set()
        assert self.hold.wait(60)
        self.seconds += 1.0


def one_sentence() -> Constraint:
    return Runs((tuple(range(10, 30)),))


def test_each_token_after_the_first_is_a_gap_of_its_step() -> None:
    clocked = Clocked()
    clocked.run(request(prompts(1, 10, 10)[0], max_tokens=6))
    assert [step.token_gaps_s for step in clocked.reports.steps] == [(), *[(1.0,)] * 5]
    (report,) = clocked.reports.requests
    assert (report.queue_s, report.first_token_s, report.last_token_s, report.slot_s) == (0.0, 1.0, 6.0, 6.0)
    assert report.per_token_s == 1.0
    assert report.completed


def test_a_forced_run_comes_at_once_and_makes_no_gaps_between_its_tokens() -> None:
    clocked = Clocked()
    clocked.run(request(prompts(1, 10, 10)[0], constraint=one_sentence(), max_tokens=64))
    (report,) = clocked.reports.requests
    assert report.usage.generated_tokens >= 20
    assert sum(len(step.token_gaps_s) for step in clocked.reports.steps) <= 1


def test_waiting_counts_as_queue_time_and_not_as_slot_time() -> None:
    clocked = Clocked(replace(LIMITS, max_slots=1))
    first, second = prompts(2, 10, 10)
    clocked.run(request(first, 4, client="first"), request(second, 3, client="second"))
    assert [(r.client, r.queue_s, r.slot_s) for r in clocked.reports.requests] == [
        ("first", 0.0, 4.0),
        ("second", 4.0, 3.0),
    ]


def test_time_between_preemption_and_resumption_is_no_slot_time() -> None:
    clocked = Clocked(replace(LIMITS, max_slots=1))
    clocked.hold.clear()
    low, high = (prompt for prompt in prompts(2, 10, 10))
    sinks = [Recorder(), Recorder()]
    clocked.engine.submit(request(low, 5, priority=Priority.BATCH, client="low"), sinks[0])
    clocked.engine.start()
    assert clocked.inside.wait(60)
    clocked.engine.submit(request(high, 3, priority=Priority.INTERACTIVE, client="high"), sinks[1])
    clocked.hold.set()
    for sink in sinks:
        sink.wait()
    clocked.engine.close()
    reports = {report.client: report for report in clocked.reports.requests}
    ended = {client: report.last_token_s for client, report in reports.items()}
    assert (reports["high"].slot_s, reports["low"].slot_s) == (3.0, 5.0)
    assert ended["low"] == 8.0
    gaps = [gap for step in clocked.reports.steps for gap in step.token_gaps_s]
    assert max(gaps) == 4.0


def test_a_request_that_never_had_a_slot_cost_nothing_but_its_wait() -> None:
    clocked = Clocked(replace(LIMITS, max_slots=1))
    clocked.hold.clear()
    running, waiting = prompts(2, 10, 10)
    sinks = [Recorder(), Recorder()]
    clocked.engine.submit(request(running, 4), sinks[0])
    clocked.engine.start()
    assert clocked.inside.wait(60)
    cancelled = clocked.engine.submit(request(waiting, 4, client="gone"), sinks[1])
    clocked.engine.cancel(cancelled)
    clocked.hold.set()
    for sink in sinks:
        sink.wait()
    clocked.engine.close()
    report = next(report for report in clocked.reports.requests if report.client == "gone")
    assert not report.completed
    assert (report.usage.prompt_tokens, report.usage.generated_tokens, report.slot_s) == (0, 0, 0.0)
    assert report.queue_s == 1.0
    assert (report.first_token_s, report.per_token_s) == (None, None)


def test_an_answer_that_needs_no_model_is_reported_without_cost() -> None:
    clocked = Clocked()
    clocked.run(request((), constraint=NoGeneration(FinishReason.NOT_FOUND)))
    (report,) = clocked.reports.requests
    assert report.completed
    assert (report.usage.prompt_tokens, report.usage.model_steps, report.slot_s) == (0, 0, 0.0)
    assert clocked.reports.steps == []


def test_what_the_prefix_cache_gave_is_reported_with_the_step_that_takes_it() -> None:
    clocked = Clocked(replace(LIMITS, max_slots=1))
    page_tokens = tiny_decoder().page_tokens
    beginning = prompts(1, 2 * page_tokens, 2 * page_tokens)[0]
    clocked.run(request((*beginning, 5), 2), request((*beginning, 6), 2))
    entered = [
        (step.cache_query_tokens, step.cache_hit_tokens) for step in clocked.reports.steps if step.cache_query_tokens
    ]
    assert entered == [(len(beginning) + 1, 0), (len(beginning) + 1, len(beginning))]
    assert [report.usage.cached_prompt_tokens for report in clocked.reports.requests] == [0, len(beginning)]


@pytest.mark.parametrize("slots", [1, 3])
def test_a_slot_counts_as_busy_up_to_the_step_that_ends_its_request(slots: int) -> None:
    clocked = Clocked(replace(LIMITS, max_slots=slots))
    clocked.run(*(request(prompt, 4) for prompt in prompts(6, 4, 4)))
    assert {(step.slots_busy, step.slots) for step in clocked.reports.steps} == {(slots, slots)}


def test_a_request_that_arrives_during_a_step_has_waited_since_its_arrival() -> None:
    clocked = Clocked()
    clocked.hold.clear()
    sinks = [Recorder(), Recorder()]
    clocked.engine.submit(request(prompts(1, 10, 10)[0], 4), sinks[0])
    clocked.engine.start()
    assert clocked.inside.wait(60)
    clocked.engine.submit(request(prompts(1, 12, 12)[0], 4, request_id="late"), sinks[1])
    clocked.hold.set()
    for sink in sinks:
        sink.wait()
    clocked.engine.close()
    admitted = [d for d in clocked.audit.events if d.kind is AuditEventKind.ADMITTED and d.request_id == "late"]
    assert [event.numbers["waited_s"] for event in admitted] == [1.0]
