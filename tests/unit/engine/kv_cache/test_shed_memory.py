"""An engine gives memory back without changing an answer, and batch requests wait while it is short."""

import threading

import pytest

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.query import Priority
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.ports import Unobserved
from edge_rag.errors import MemoryPressure
from edge_rag.runtime.decoder.model_input import PackedStep
from tests.unit.engine.support import LIMITS, GatedRunner, Recorder, generate, prompts, request, tiny_decoder


class RecordedEvents:
    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self.seen = threading.Condition()

    def record(self, event: AuditEvent) -> None:
        with self.seen:
            self.events.append(event)
            self.seen.notify_all()

    def wait_for(self, kind: AuditEventKind, request_id: str) -> AuditEvent:
        def found() -> AuditEvent | None:
            return next((d for d in self.events if (d.kind, d.request_id) == (kind, request_id)), None)

        with self.seen:
            event = self.seen.wait_for(found, 60)
        assert event is not None, self.events
        return event


def test_dropping_the_cache_frees_every_idle_page_and_answers_stay_the_same() -> None:
    items = [request(prompt, max_tokens=8) for prompt in prompts(6)]
    expected = [sink.tokens for sink in generate(tiny_decoder(), items)]
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=64))
    engine.start()
    for _ in range(2):
        sinks = [Recorder() for _ in items]
        for item, sink in zip(items, sinks, strict=True):
            engine.submit(item, sink)
            engine.shed_memory(drop_cache=True, hold_batch=False)
        assert [sink.wait().tokens for sink in sinks] == expected
    engine.shed_memory(drop_cache=True, hold_batch=False)
    snapshot = engine.snapshot()
    assert sum(snapshot.page_map.cached) == 0
    engine.close()


def test_batch_requests_are_preempted_and_resumed_with_the_same_answer() -> None:
    item = request(prompts(1)[0], max_tokens=24, priority=Priority.BATCH, request_id="batch")
    (alone,) = generate(tiny_decoder(), [item])
    generated, proceed = threading.Event(), threading.Event()

    def hold(step: PackedStep) -> None:
        if step.input_ids.size == 1 and not proceed.is_set():
            generated.set()
            assert proceed.wait(60)

    audit = RecordedEvents()
    engine = Engine(GatedRunner(tiny_decoder(), hold), EngineSettings(LIMITS, max_waiting=64), audit=audit)
    sink = Recorder()
    engine.submit(item, sink)
    engine.start()
    assert generated.wait(60)
    engine.shed_memory(drop_cache=True, hold_batch=True)
    proceed.set()
    preempted = audit.wait_for(AuditEventKind.PREEMPTED, "batch")
    assert preempted.reason == "memory is short, and it can wait"
    assert preempted.preempted_for is None
    with pytest.raises(MemoryPressure) as refused:
        engine.submit(request(prompts(1)[0], priority=Priority.BATCH, request_id="late"), Recorder())
    assert refused.value.retry_after_s > 0
    assert audit.wait_for(AuditEventKind.REFUSED, "late").reason == "memory is short"
    urgent = Recorder()
    engine.submit(request(prompts(1)[0], max_tokens=4, priority=Priority.INTERACTIVE), urgent)
    assert urgent.wait().error is None
    assert not sink.ended.is_set()
    assert engine.snapshot().sequences == ()
    engine.shed_memory(drop_cache=False, hold_batch=False)
    assert sink.wait().tokens == alone.tokens
    audit.wait_for(AuditEventKind.RESUMED, "batch")
    engine.close()


def test_an_engine_whose_batch_requests_are_held_idles_and_can_be_closed() -> None:
    turns: list[int] = []

    class Counting(Unobserved):
        def on_turn(self) -> None:
            turns.append(1)

    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=64), observer=Counting())
    sink = Recorder()
    engine.submit(request(prompts(1)[0], priority=Priority.BATCH), sink)
    engine.shed_memory(drop_cache=False, hold_batch=True)
    engine.start()
    for _ in range(3):
        engine.snapshot()
    assert len(turns) < 20
    engine.close(grace_s=1.0)
    assert sink.wait().error is not None
