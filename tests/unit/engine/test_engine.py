import random
import threading
from dataclasses import replace

import pytest

from edge_rag.core.answer import FinishReason
from edge_rag.core.query import Priority, Sampling
from edge_rag.engine.constraint import Constraint
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    NotReady,
    Overloaded,
    RequestCancelled,
    RequestTooLarge,
)
from edge_rag.generator.constraints.plain import FreeText, NoGeneration
from edge_rag.runtime.decoder.model_input import PackedStep
from tests.unit.engine.recorded_events import RecordedEvents
from tests.unit.engine.support import (
    FAMILIES,
    LIMITS,
    GatedRunner,
    LeaningRunner,
    Recorder,
    Reports,
    Runs,
    generate,
    prompts,
    request,
    submit_all,
    tiny_decoder,
)


def sentences(seed: int, max_sentences: int = 2) -> Constraint:
    chance = random.Random(seed)
    runs = tuple(
        (20 + n // 2, *(chance.randrange(3, 512) for _ in range(chance.randrange(5, 19))), n + 60) for n in range(8)
    )
    return Runs(runs, max_sentences)


def mixed(count: int, max_tokens: int = 64) -> list[TokenRequest]:
    """Requests of every kind: greedy, sampled, penalized, constrained, of all classes, some with equal beginnings."""
    beginning = prompts(1, 70, 70, seed=99)[0]
    made = []
    for n, prompt in enumerate(prompts(count)):
        item = request(beginning + prompt if n % 3 == 0 else prompt, max_tokens, priority=Priority(n % 3))
        if n % 5 == 1:
            item = replace(item, sampling=Sampling(max_tokens=max_tokens, temperature=0.9, top_k=40, top_p=0.9, seed=n))
        if n % 5 == 2:
            item = replace(item, sampling=Sampling(max_tokens=max_tokens, repetition_penalty=1.3))
        if n % 5 == 3:
            item = replace(item, constraint=sentences(n), sampling=Sampling(max_tokens=64))
        made.append(item)
    return made


def tokens_of(sinks: list[Recorder]) -> list[list[int]]:
    assert all(sink.error is None for sink in sinks)
    return [sink.tokens for sink in sinks]


@pytest.fixture(scope="module", params=FAMILIES)
def alone(request: pytest.FixtureRequest) -> tuple[str, list[list[int]]]:
    """The answer of each mixed request alone, with an empty cache."""
    family = request.param
    decoder = tiny_decoder(family)
    return family, [tokens_of(generate(decoder, [item]))[0] for item in mixed(12)]


@pytest.mark.parametrize(
    ("pages", "limits", "preempts"),
    [
        pytest.param(64, SchedulerLimits(16, 512, 64), False, id="everything in large steps"),
        pytest.param(64, SchedulerLimits(3, 19, 5), False, id="few slots and odd chunks"),
        pytest.param(12, SchedulerLimits(8, 64, 16), True, id="few pages"),
    ],
)
def test_an_answer_is_the_same_alone_together_and_preempted(
    alone: tuple[str, list[list[int]]], pages: int, limits: SchedulerLimits, preempts: bool
) -> None:
    family, expected = alone
    reports = Reports()
    assert tokens_of(generate(tiny_decoder(family, pages), mixed(12), limits, reports)) == expected
    assert any(step.preempted for step in reports.steps) == preempts


@pytest.mark.parametrize(
    ("pages", "limits"),
    [
        pytest.param(64, SchedulerLimits(16, 512, 64), id="large steps"),
        pytest.param(12, SchedulerLimits(8, 64, 16), id="few pages"),
        pytest.param(64, SchedulerLimits(1, 12, 4), id="one after the other"),
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_is_the_same_with_drafts(family: str, pages: int, limits: SchedulerLimits) -> None:
    runner = LeaningRunner(tiny_decoder(family, pages))
    expected = tokens_of(generate(runner, mixed(12), limits))
    reports = Reports()
    assert tokens_of(generate(runner, mixed(12), limits, reports, 8, runner.clock)) == expected
    assert 0 < sum(step.accepted for step in reports.steps) < sum(step.drafted for step in reports.steps)


def test_a_text_that_repeats_itself_takes_fewer_steps_than_tokens() -> None:
    runner = LeaningRunner(tiny_decoder())
    plain, drafting = Reports(), Reports()
    item = request(prompts(1, 20, 20)[0], 100)
    assert tokens_of(generate(runner, [item], observer=plain)) == tokens_of(
        generate(runner, [item], observer=drafting, draft_tokens=16, clock=runner.clock)
    )
    assert len(plain.steps) == 100
    assert len(drafting.steps) < 60


def test_a_request_preempted_by_a_higher_class_gives_the_same_answer() -> None:
    low, high = (
        request(prompt, 40, priority=p)
        for prompt, p in zip(prompts(2), (Priority.BATCH, Priority.INTERACTIVE), strict=True)
    )
    expected = tokens_of(generate(tiny_decoder(), [low])) + tokens_of(generate(tiny_decoder(), [high]))
    engine: Engine
    urgent = Recorder()

    def interrupt(tokens: tuple[int, ...]) -> bool:
        if len(patient.tokens) == 10:
            engine.submit(high, urgent)
        return False

    patient = Recorder(interrupt)
    engine = Engine(tiny_decoder(), EngineSettings(SchedulerLimits(1, 64, 16), max_waiting=9))
    engine.submit(low, patient)
    engine.start()
    assert tokens_of([patient.wait(), urgent.wait()]) == expected
    assert engine.stats().preemptions == 1
    engine.close()


STEPS = 24


@pytest.fixture(scope="module")
def undisturbed() -> list[list[int]]:
    """The answers of the failing steps' test, each request alone, once the number of steps together is certain."""
    items = [request(prompt, max_tokens=6) for prompt in prompts(8)]
    reports = Reports()
    generate(tiny_decoder(), items, SchedulerLimits(3, 64, 16), reports)
    assert len(reports.steps) == STEPS
    decoder = tiny_decoder()
    return [tokens_of(generate(decoder, [item]))[0] for item in items]


@pytest.mark.parametrize("broken", range(STEPS))
def test_a_failing_step_costs_at_most_the_requests_in_it(broken: int, undisturbed: list[list[int]]) -> None:
    steps = 0
    in_step = 0

    def fail_once(step: PackedStep) -> None:
        nonlocal steps, in_step
        steps += 1
        if steps == broken + 1:
            in_step = len(step.block_table)
            raise RuntimeError("the accelerator hiccuped")

    audit = RecordedEvents()
    engine = Engine(
        GatedRunner(tiny_decoder(), fail_once), EngineSettings(SchedulerLimits(3, 64, 16), max_waiting=100), audit=audit
    )
    sinks = [Recorder() for _ in undisturbed]
    for n, (prompt, sink) in enumerate(zip(prompts(8), sinks, strict=True)):
        engine.submit(request(prompt, max_tokens=6, request_id=str(n)), sink)
    engine.start()
    for sink in sinks:
        sink.wait()
    after = engine.stats()
    engine.close()
    lost = [sink for sink in sinks if sink.error is not None]
    assert 1 <= len(lost) <= in_step
    assert all(isinstance(sink.error, InferenceFailed) and "hiccuped" in str(sink.error) for sink in lost)
    assert all(sink.tokens == tokens for sink, tokens in zip(sinks, undisturbed, strict=True) if sink.error is None)
    assert after.pages_used == 0
    assert (after.completed, after.failed) == (len(sinks) - len(lost), len(lost))
    failed = [n for n, sink in enumerate(sinks) if audit.of(str(n))[-1].reason.endswith("after RuntimeError")]
    assert failed == [n for n, sink in enumerate(sinks) if sink.error is not None]


def test_after_a_thousand_requests_with_cancellations_all_pages_are_back() -> None:
    chance = random.Random(5)
    engine = Engine(tiny_decoder(pages=24), EngineSettings(LIMITS, max_waiting=1000))
    sinks: list[Recorder] = []
    handles = []
    for item in (request(prompt, max_tokens=chance.randrange(1, 8)) for prompt in prompts(1000, 3, 60)):
        sinks.append(Recorder())
        handles.append(engine.submit(item, sinks[-1]))
    chosen = chance.sample(range(1000), 400)
    for n in chosen[:200]:
        engine.cancel(handles[n])
    engine.start()
    for n in chosen[200:]:
        sinks[n].began.wait(0 if chance.random() < 0.7 else 60)
        engine.cancel(handles[n])
    for sink in sinks:
        sink.wait()
    state = engine.stats()
    engine.close()
    assert all(sink.ends == 1 for sink in sinks)
    assert all(isinstance(sinks[n].error, RequestCancelled) for n in chosen[:200])
    assert not any(sink.error for n, sink in enumerate(sinks) if n not in chosen)
    assert (state.pages_used, state.slots_busy, state.waiting) == (0, 0, 0)
    assert state.completed + state.failed == 1000


def test_a_cancelled_request_ends_at_the_next_step_and_frees_its_pages() -> None:
    engine: Engine
    runs = 0

    def cancel_in_the_third_run(step: PackedStep) -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            engine.cancel(handle)

    sink = Recorder()
    engine = Engine(GatedRunner(tiny_decoder(), cancel_in_the_third_run), EngineSettings(LIMITS, max_waiting=10))
    handle = engine.submit(request(prompts(1, 5, 5)[0], max_tokens=100), sink)
    engine.start()
    sink.wait()
    assert isinstance(sink.error, RequestCancelled)
    assert (runs, len(sink.tokens)) == (3, 3)
    assert engine.stats().pages_used == 0
    engine.cancel(handle)
    engine.close()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_deadline_ends_a_request_within_a_step() -> None:
    clock = Clock()

    def pass_time(step: PackedStep) -> None:
        clock.now += 1

    sink = Recorder()
    engine = Engine(GatedRunner(tiny_decoder(), pass_time), EngineSettings(LIMITS, max_waiting=10), clock=clock)
    engine.submit(request(prompts(1, 5, 5)[0], max_tokens=100, deadline=103.5), sink)
    engine.start()
    sink.wait()
    engine.close()
    assert isinstance(sink.error, DeadlineExceeded)
    assert len(sink.tokens) == 4


def test_a_deadline_that_passed_while_waiting_starts_no_work() -> None:
    clock = Clock()
    sink = Recorder()
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=10), clock=clock)
    engine.submit(request([5, 6], deadline=101.0), sink)
    clock.now = 102.0
    engine.start()
    sink.wait()
    assert isinstance(sink.error, DeadlineExceeded)
    assert engine.stats().steps == 0
    with pytest.raises(DeadlineExceeded):
        engine.submit(request([5, 6], deadline=102.0), Recorder())
    engine.close()


def test_the_queue_is_bounded_by_tokens_too_but_takes_a_single_request_of_any_size() -> None:
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=100, max_waiting_tokens=100))
    engine.submit(request([5] * 300, max_tokens=3), large := Recorder())
    with pytest.raises(Overloaded):
        engine.submit(request([5], max_tokens=3), Recorder())
    engine.start()
    assert large.wait().error is None
    sinks = submit_all(engine, [request([5] * 10, max_tokens=3)] * 2)
    assert all(sink.wait().error is None for sink in sinks)
    assert engine.stats().waiting == 0
    engine.close()


def test_the_retry_time_follows_from_the_rate_of_ended_requests() -> None:
    clock = Clock()

    def pass_time(step: PackedStep) -> None:
        clock.now += 2

    engine = Engine(
        GatedRunner(tiny_decoder(), pass_time), EngineSettings(SchedulerLimits(1, 64, 16), max_waiting=40), clock=clock
    )
    sinks = submit_all(engine, [request([5, 6], max_tokens=5)] * 40)
    with pytest.raises(Overloaded) as assumed:
        engine.submit(request([5, 6]), Recorder())
    engine.start()
    for sink in sinks:
        sink.wait()
    engine.close()
    assert assumed.value.retry_after_s == 1.0
    assert engine._commands._drain_rate.retry_after_s() == pytest.approx(10.0, rel=0.01)


def test_a_request_that_could_never_run_is_refused() -> None:
    decoder = tiny_decoder(pages=4)
    engine = Engine(decoder, EngineSettings(LIMITS, max_waiting=2))
    with pytest.raises(RequestTooLarge):
        engine.submit(request([5] * 100, max_tokens=29), Recorder())
    for prompt in ([decoder.vocabulary_size], [-1], []):
        with pytest.raises(InvalidRequest):
            engine.submit(request(prompt), Recorder())
    assert engine.stats().waiting == 0
    engine.close()


def test_an_answer_ends_with_an_end_token_or_at_its_length() -> None:
    prompt = prompts(1)[0]
    (full,) = generate(tiny_decoder(), [request(prompt, max_tokens=12)])
    assert full.outcome
    assert (full.outcome.reason, len(full.tokens)) == (FinishReason.LENGTH, 12)
    end = full.tokens[7]
    (cut,) = generate(tiny_decoder(), [request(prompt, max_tokens=12, constraint=FreeText(frozenset({end})))])
    assert cut.outcome
    assert cut.outcome.reason is FinishReason.STOP
    assert cut.tokens == full.tokens[: full.tokens.index(end) + 1]


def test_a_sink_can_end_its_answer() -> None:
    sink = Recorder(lambda tokens: len(sink.tokens) == 4)
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=2))
    engine.submit(request(prompts(1)[0]), sink)
    engine.start()
    assert sink.wait().outcome
    assert sink.outcome
    assert (sink.outcome.reason, len(sink.tokens)) == (FinishReason.STOP, 4)
    engine.close()


def test_a_sink_that_breaks_costs_only_its_own_request() -> None:
    def burst(tokens: tuple[int, ...]) -> bool:
        raise ValueError("the listener is gone")

    items = [request(prompt) for prompt in prompts(2)]
    expected = tokens_of(generate(tiny_decoder(), items[1:]))
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=2))
    broken, sound = Recorder(burst), Recorder()
    engine.submit(items[0], broken)
    engine.submit(items[1], sound)
    engine.start()
    assert isinstance(broken.wait().error, InferenceFailed)
    assert tokens_of([sound.wait()]) == expected
    assert engine.stats().pages_used == 0
    engine.close()


def test_what_the_constraint_decides_alone_needs_no_model() -> None:
    only = Runs(((5, 6, 7),))
    quiet = NoGeneration(FinishReason.NOT_FOUND)
    first, second = generate(
        tiny_decoder(), [request([5, 6], constraint=only), replace(request([]), prompt=(), constraint=quiet)]
    )
    assert first.outcome
    assert (first.tokens, first.outcome.usage.model_steps, first.outcome.usage.forced_tokens) == ([5, 6, 7], 0, 3)
    assert second.outcome
    assert (second.tokens, second.outcome.reason) == ([], FinishReason.NOT_FOUND)


def test_a_forced_run_costs_steps_for_its_choices_only() -> None:
    (sink,) = generate(
        tiny_decoder(), [replace(request(prompts(1, 20, 20)[0], max_tokens=64), constraint=sentences(1))]
    )
    assert sink.outcome
    usage = sink.outcome.usage
    assert usage.generated_tokens >= 7
    assert usage.model_steps <= 6
    assert usage.forced_tokens == usage.generated_tokens - usage.model_steps


def test_closing_gives_up_what_is_unfinished_and_refuses_what_comes() -> None:
    stepping = threading.Event()
    engine = Engine(
        GatedRunner(tiny_decoder(), lambda step: stepping.set()),
        EngineSettings(SchedulerLimits(1, 64, 16), max_waiting=9),
    )
    sinks = submit_all(engine, [request([5, 6], max_tokens=400)] * 3)
    engine.start()
    stepping.wait()
    engine.close()
    assert all(sink.ends == 1 and isinstance(sink.error, NotReady) for sink in sinks)
    with pytest.raises(NotReady):
        engine.submit(request([5, 6]), Recorder())
    assert engine.stats().pages_used == 0


def test_closing_with_grace_lets_requests_finish() -> None:
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=9))
    sinks = submit_all(engine, [request([5, 6], max_tokens=20)] * 3)
    engine.start()
    engine.close(grace_s=60)
    assert all(sink.ends == 1 and sink.error is None for sink in sinks)


def test_an_engine_closed_before_it_started_answers_everyone() -> None:
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=9))
    engine.submit(request([5, 6]), sink := Recorder())
    engine.close()
    assert isinstance(sink.error, NotReady)


def test_every_step_is_reported() -> None:
    reports = Reports()
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=9), observer=reports)
    sinks = submit_all(engine, map(request, prompts(3)))
    engine.start()
    for sink in sinks:
        sink.wait()
    engine.close()
    state = engine.stats()
    assert len(reports.steps) == state.steps
    assert sum(step.tokens for step in reports.steps) == state.prefill_tokens + state.decode_tokens
    assert max(step.sequences for step in reports.steps) == 3
    assert state.generated_tokens == sum(len(sink.tokens) for sink in sinks)
    computed = sum(len(prompt) for prompt in prompts(3)) + state.generated_tokens - 3
    assert state.prefill_tokens + state.decode_tokens == computed
