"""A request whose reader does not keep up: it holds nothing, goes on where it was, and ends in time."""

import threading

from edge_rag.core.ids import require_recognized
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.query import Priority
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.engine.sequence import SequenceId, Status
from edge_rag.errors import DeadlineExceeded, NotReady, RequestCancelled, SlowConsumer
from edge_rag.runtime.decoder.model_input import PackedStep
from tests.unit.engine.recorded_events import RecordedEvents, assert_legal
from tests.unit.engine.scheduling.scheduler_bench import Bench
from tests.unit.engine.support import LIMITS, GatedRunner, Recorder, generate, prompts, request, tiny_decoder

ONE_SLOT = SchedulerLimits(max_slots=1, max_step_tokens=64, prefill_tokens=16)


def test_who_is_paused_gives_slot_and_pages_to_the_next_and_goes_on_to_the_same_answer() -> None:
    first, second = prompts(2, 20, 60)
    alone = [sink.tokens for sink in generate(tiny_decoder(), [request(first, 40), request(second, 10)], ONE_SLOT)]
    audit = RecordedEvents()

    def on_tokens(_: tuple[int, ...]) -> bool:
        if len(paused.tokens) == 15:
            engine.pause(name)
        return False

    paused, other = Recorder(on_tokens), Recorder()
    engine = Engine(tiny_decoder(), EngineSettings(ONE_SLOT, max_waiting=8), audit=audit)
    name = engine.submit(request(first, 40, request_id="paused"), paused)
    engine.submit(request(second, 10), other)
    engine.start()
    other.wait()
    assert not paused.ended.is_set()
    assert (len(paused.tokens), engine.stats().pages_used, engine.stats().slots_busy) == (15, 0, 0)
    engine.resume(name)
    paused.wait()
    engine.close()
    assert [paused.tokens, other.tokens] == alone
    kinds = [require_recognized(event.kind) for event in audit.of("paused")]
    assert_legal(kinds, ended=True)
    assert kinds.count(AuditEventKind.PAUSED) == kinds.count(AuditEventKind.RESUMED) == 1
    (pause,) = (event for event in audit.of("paused") if event.kind is AuditEventKind.PAUSED)
    assert pause.numbers["generated_tokens"] == 15
    assert pause.numbers["pages_held"] > 0


def paused_engine(pause_s: float = 30) -> tuple[Engine, SequenceId, Recorder, RecordedEvents]:
    """An engine whose only request is paused."""
    audit, reached = RecordedEvents(), threading.Event()

    def on_tokens(_: tuple[int, ...]) -> bool:
        if len(sink.tokens) == 5:
            engine.pause(name)
            reached.set()
        return False

    sink = Recorder(on_tokens)
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=8, pause_s=pause_s), audit=audit)
    name = engine.submit(request(prompts(1)[0], 200, request_id="r"), sink)
    engine.start()
    assert reached.wait(60)
    return engine, name, sink, audit


def test_a_pause_that_takes_too_long_ends_the_request_and_the_audit_log_says_why() -> None:
    engine, _, sink, audit = paused_engine(pause_s=0.2)
    sink.wait()
    assert isinstance(sink.error, SlowConsumer)
    assert len(sink.tokens) == 5
    engine.close()
    last = audit.of("r")[-1]
    assert (last.kind, last.reason) == (AuditEventKind.EXPIRED, "the client did not read the answer in time")
    assert engine.stats().pages_used == 0


def test_a_paused_request_can_be_cancelled_with_a_reason() -> None:
    engine, name, sink, _ = paused_engine()
    engine.cancel(name, SlowConsumer(7))
    assert isinstance(sink.wait().error, SlowConsumer)
    engine.resume(name)
    engine.close()


def test_a_paused_request_has_its_deadline() -> None:
    now = [100.0]
    audit = RecordedEvents()

    def on_tokens(_: tuple[int, ...]) -> bool:
        if len(sink.tokens) == 5:
            engine.pause(name)
            now[0] = 120.0
        return False

    sink = Recorder(on_tokens)
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=8), audit=audit, clock=lambda: now[0])
    name = engine.submit(request(prompts(1)[0], 200, deadline=110.0), sink)
    engine.start()
    assert isinstance(sink.wait().error, DeadlineExceeded)
    engine.close()


def test_an_engine_that_closes_waits_for_a_paused_request_to_go_on() -> None:
    engine, name, sink, _ = paused_engine()
    closing = threading.Thread(target=engine.close, args=(60,))
    closing.start()
    engine.resume(name)
    sink.wait()
    closing.join()
    assert sink.outcome is not None


def test_an_engine_that_closes_at_once_gives_a_paused_request_up() -> None:
    engine, _, sink, _ = paused_engine()
    engine.close()
    assert isinstance(sink.wait().error, NotReady)


def test_pausing_before_the_first_slot_and_twice_and_after_the_end_does_no_harm() -> None:
    held, proceed = threading.Event(), threading.Event()

    def hold(step: PackedStep) -> None:
        held.set()
        assert proceed.wait(60)

    audit = RecordedEvents()
    running, waiting = Recorder(), Recorder()
    engine = Engine(GatedRunner(tiny_decoder(), hold), EngineSettings(ONE_SLOT, max_waiting=8), audit=audit)
    one = engine.submit(request(prompts(1)[0], 5), running)
    engine.start()
    assert held.wait(60)
    two = engine.submit(request(prompts(1)[0], 5, request_id="two"), waiting)
    engine.pause(two)
    engine.pause(two)
    proceed.set()
    running.wait()
    engine.pause(one)
    assert not waiting.ended.is_set()
    engine.resume(two)
    waiting.wait()
    engine.close()
    assert waiting.outcome is not None
    kinds = [require_recognized(event.kind) for event in audit.of("two")]
    assert_legal(kinds, ended=True)
    assert kinds.count(AuditEventKind.PAUSED) == 1
    state = engine.stats()
    assert (state.waiting, state.slots_busy, state.pages_used) == (0, 0, 0)


def test_a_pause_and_its_end_between_two_steps_cost_nothing() -> None:
    audit = RecordedEvents()

    def on_tokens(_: tuple[int, ...]) -> bool:
        if len(sink.tokens) == 5:
            engine.pause(name)
            engine.resume(name)
        return False

    sink = Recorder(on_tokens)
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=8), audit=audit)
    name = engine.submit(request(prompts(1)[0], 10, request_id="r"), sink)
    engine.start()
    sink.wait()
    engine.close()
    assert AuditEventKind.PAUSED not in [event.kind for event in audit.of("r")]


def test_who_comes_back_is_charged_nothing_again_and_waits_its_turn() -> None:
    bench = Bench(40, SchedulerLimits(1, 64, 8))
    slow = bench.submit(6, 20, client="slow")
    bench.step()
    bench.pause(slow)
    other = bench.submit(6, 4, Priority.INTERACTIVE, client="other")
    bench.step()
    bench.scheduler.resume(slow, bench.now)
    bench.step()
    assert (slow.status, other.status) == (Status.WAITING, Status.RUNNING)
    bench.run()
    assert bench.kinds(slow).count(AuditEventKind.ADMITTED) == 1
    assert slow.cached_tokens == 0
    assert bench.pool.available == bench.pool.pages


def test_a_cancelled_pause_leaves_no_share_behind() -> None:
    engine, name, sink, _ = paused_engine()
    engine.cancel(name)
    assert isinstance(sink.wait().error, RequestCancelled)
    engine.close()
    state = engine.stats()
    assert (state.waiting, state.slots_busy, state.pages_used, state.failed) == (0, 0, 0, 1)
