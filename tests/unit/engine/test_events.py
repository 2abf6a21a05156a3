import random
from dataclasses import replace

import pytest

from edge_rag.core.answer import FinishReason
from edge_rag.core.ids import RequestId, require_recognized
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.query import Priority
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import DeadlineExceeded, EdgeRagError, InvalidRequest, NotReady, Overloaded, RequestTooLarge
from edge_rag.generator.constraints.plain import NoGeneration
from edge_rag.runtime.decoder.model_input import PackedStep
from tests.unit.engine.recorded_events import RecordedEvents, assert_legal
from tests.unit.engine.support import LIMITS, GatedRunner, Recorder, prompts, request, submit_all, tiny_decoder


def run(engine: Engine, items: list[TokenRequest]) -> list[Recorder]:
    sinks = submit_all(engine, items)
    engine.start()
    for sink in sinks:
        sink.wait()
    engine.close()
    return sinks


def test_every_request_has_a_legal_order_of_events() -> None:
    chance = random.Random(3)
    audit = RecordedEvents()
    steps = 0

    def trouble(step: PackedStep) -> None:
        nonlocal steps
        steps += 1
        if steps % 5 == 0:
            engine.cancel(chance.choice(handles))
        if steps % 37 == 0:
            raise RuntimeError("the accelerator hiccuped")

    runner = GatedRunner(tiny_decoder(pages=6), trouble)
    engine = Engine(
        runner,
        EngineSettings(SchedulerLimits(4, 64, 16), max_waiting=1000, aging_s=300.0),
        audit=audit,
        clock=lambda: steps,
    )
    sinks, handles = [], []
    for n, prompt in enumerate(prompts(200, 3, 60)):
        item = request(
            prompt, chance.randrange(1, 60), priority=Priority(n % 3), request_id=str(n), client=f"client {n % 5}"
        )
        sinks.append(Recorder())
        handles.append(engine.submit(item, sinks[-1]))
    engine.start()
    for sink in sinks:
        sink.wait()
    engine.close()
    kinds = {event.kind for event in audit.events}
    assert kinds >= {AuditEventKind.PREEMPTED, AuditEventKind.RESUMED, AuditEventKind.DEFERRED, AuditEventKind.FAILED}
    for n, sink in enumerate(sinks):
        events = audit.of(str(n))
        assert_legal([require_recognized(event.kind) for event in events], ended=True)
        assert (events[-1].kind is AuditEventKind.FINISHED) == (sink.error is None)
        assert [event.at_s for event in events] == sorted(event.at_s for event in events)
        assert {event.client for event in events} == {f"client {n % 5}"}


def test_a_preemption_names_the_request_it_was_for_and_its_cost() -> None:
    audit = RecordedEvents()
    growing = [request(p, max_tokens=150, request_id=n) for p, n in zip(prompts(2, 40, 40), "ab", strict=True)]
    run(Engine(tiny_decoder(pages=9), EngineSettings(LIMITS, max_waiting=10), audit=audit), growing)
    preempted = next(d for d in audit.of("b") if d.kind is AuditEventKind.PREEMPTED)
    assert preempted.preempted_for == "a"
    assert preempted.numbers["pages_held"] > 0
    resumed = next(d for d in audit.of("b") if d.kind is AuditEventKind.RESUMED)
    assert resumed.numbers["cached_tokens"] + resumed.numbers["recompute_tokens"] > 40
    finished = audit.of("b")[-1]
    assert (finished.kind, finished.numbers["generated_tokens"]) == (AuditEventKind.FINISHED, 150)
    assert finished.numbers["preemptions"] == sum(d.kind is AuditEventKind.PREEMPTED for d in audit.of("b"))


def refusal(engine: Engine, item: TokenRequest, error: type[EdgeRagError]) -> AuditEvent:
    audit = engine._events._audit
    assert isinstance(audit, RecordedEvents)
    with pytest.raises(error):
        engine.submit(item, Recorder())
    (event,) = audit.of(item.request_id)
    assert event.kind is AuditEventKind.REFUSED
    return event


def test_every_refusal_is_recorded_with_its_numbers() -> None:
    engine = Engine(
        tiny_decoder(pages=4),
        EngineSettings(LIMITS, max_waiting=3, max_waiting_tokens=100),
        audit=RecordedEvents(),
        clock=lambda: 50.0,
    )
    assert refusal(engine, request([5] * 100, 29, request_id="large"), RequestTooLarge).numbers == {
        "prompt_tokens": 100,
        "needed_tokens": 129,
        "capacity_tokens": 128,
    }
    assert refusal(engine, request([5], deadline=48.5, request_id="late"), DeadlineExceeded).numbers["late_s"] == 1.5
    assert "prompt" in refusal(engine, request([-1], request_id="odd"), InvalidRequest).reason
    engine.submit(request([5] * 80, 10), Recorder())
    numbers = refusal(engine, request([5] * 10, 10, request_id="much"), Overloaded).numbers
    assert numbers["retry_after_s"] > 0
    assert (numbers["waiting_requests"], numbers["waiting_tokens"], numbers["queue_tokens"]) == (1, 90, 100)
    for _ in range(2):
        engine.submit(request([5], 1), Recorder())
    numbers = refusal(engine, request([5], 1, request_id="many"), Overloaded).numbers
    assert (numbers["waiting_requests"], numbers["queue_requests"]) == (3, 3)
    engine.close()
    refusal(engine, request([5], 1, request_id="closed"), NotReady)


def test_a_request_that_the_constraint_decides_alone_is_queued_and_finished() -> None:
    audit = RecordedEvents()
    item = replace(
        request([5, 6]), prompt=(), constraint=NoGeneration(FinishReason.NOT_FOUND), request_id=RequestId("q")
    )
    run(Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=4), audit=audit), [item])
    assert [d.kind for d in audit.of("q")] == [AuditEventKind.QUEUED, AuditEventKind.FINISHED]
