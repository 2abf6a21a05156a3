"""Passages that are computed once and copied into the prompts of a real decoder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge_rag.core.query import Priority
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.engine.sequence import PassageSpan
from edge_rag.errors import RequestCancelled
from tests.unit.engine.support import (
    FAMILIES,
    LIMITS,
    GatedRunner,
    Recorder,
    Reports,
    generate,
    prompts,
    request,
    tiny_decoder,
)

BEGINNING = prompts(1, 11, 11, seed=1)[0]
PASSAGES = prompts(5, 60, 90, seed=2)
PAGE = 32


def alone(passage: int) -> tuple[int, ...]:
    text = (*BEGINNING, *PASSAGES[passage])
    return (*text, *[3] * (-len(text) % PAGE + 1))


def over(*passages: int, recompute: int = 8, end: int = 5, max_tokens: int = 16) -> TokenRequest:
    prompt, spans = list(BEGINNING), []
    for passage in passages:
        first, text = len(prompt), PASSAGES[passage]
        offset = len(BEGINNING) + recompute
        spans.append(PassageSpan(first + recompute, len(text) - recompute, alone(passage), offset))
        prompt += text
    return replace(request([*prompt, end], max_tokens), spans=tuple(spans))


class Running:
    """An engine that runs until the block ends."""

    def __init__(self, pages: int = 64, limits: SchedulerLimits = LIMITS) -> None:
        self.reports = Reports()
        self.engine = Engine(tiny_decoder(pages=pages), EngineSettings(limits, max_waiting=100), observer=self.reports)

    def __enter__(self) -> Running:
        self.engine.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def generate_one(self, item: TokenRequest) -> Recorder:
        sink = Recorder()
        self.engine.submit(item, sink)
        assert sink.wait().error is None
        return sink

    def prefilled(self) -> int:
        return self.engine.stats().prefill_tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_a_passage_that_stands_where_it_was_computed_changes_nothing(family: str) -> None:
    item = over(2)
    plain = generate(tiny_decoder(family), [replace(item, spans=())])[0]
    copied = generate(tiny_decoder(family), [item])[0]
    assert copied.tokens == plain.tokens


def test_each_passage_is_computed_once_wherever_it_stands() -> None:
    with Running() as running:
        first = running.generate_one(over(0, 1, 2))
        begun = running.prefilled()
        assert begun >= len(BEGINNING) + sum(len(PASSAGES[n]) for n in (0, 1, 2))
        second = running.generate_one(over(2, 0, 1))
        assert first.outcome is not None
        assert second.outcome is not None
        usage = second.outcome.usage
        assert usage.copied_prompt_tokens + usage.cached_prompt_tokens >= usage.prompt_tokens - 3 * (8 + 1) - PAGE
        assert running.prefilled() - begun <= 3 * (8 + 1) + PAGE
        assert running.engine.stats().completed == 2, "a warm-up is no request"
        assert len(running.reports.requests) == 2


def test_the_same_question_gets_the_same_answer_whether_its_passages_were_there_or_not() -> None:
    with Running() as cold:
        expected = cold.generate_one(over(3, 1, 4)).tokens
    with Running() as warm:
        warm.generate_one(over(4, 3, 0))
        assert warm.generate_one(over(3, 1, 4)).tokens == expected


def test_copies_do_not_depend_on_chunks_or_company() -> None:
    items = [over(n % 5, (n + 2) % 5, (n + 3) % 5, end=5 + n) for n in range(6)]
    with Running() as running:
        expected = [running.generate_one(item).tokens for item in items]
    for limits in (SchedulerLimits(6, 300, 100), SchedulerLimits(2, 13, 5)):
        together = generate(tiny_decoder(pages=64), items, limits)
        assert [sink.tokens for sink in together] == expected


def test_a_request_that_copied_leaves_no_approximation_behind() -> None:
    item = over(1, 2)
    plain = replace(item, spans=())
    expected = generate(tiny_decoder(), [plain])[0].tokens
    with Running() as running:
        running.generate_one(item)
        assert running.generate_one(plain).tokens == expected


def test_where_the_cache_is_too_small_passages_are_computed_in_place() -> None:
    with Running(pages=9) as running:
        for _ in range(3):
            running.generate_one(over(0, 1, 2))
        assert running.engine.stats().completed == 3


def test_who_goes_away_while_its_passages_are_computed_leaves_nothing() -> None:
    engine: Engine
    cancelled = []

    def cancel_in_the_second_run(step: object) -> None:
        cancelled.append(step)
        if len(cancelled) == 2:
            engine.cancel(waiting)

    engine = Engine(
        GatedRunner(tiny_decoder(), cancel_in_the_second_run), EngineSettings(SchedulerLimits(4, 20, 8), max_waiting=9)
    )
    sink = Recorder()
    waiting = engine.submit(over(0, 1, 2), sink)
    engine.start()
    assert isinstance(sink.wait().error, RequestCancelled)
    assert generate_one(engine) == 4
    assert engine.stats().pages_used == 0
    engine.close()


def generate_one(engine: Engine) -> int:
    sink = Recorder()
    engine.submit(request([5, 6, 7], 4, priority=Priority.BATCH), sink)
    return len(sink.wait().tokens)


def test_what_is_forgotten_while_it_is_computed_is_not_copied() -> None:
    engine: Engine
    runs = []

    def forget_in_the_second_run(step: object) -> None:
        runs.append(step)
        if len(runs) == 2:
            engine.forget("manuals", 1)

    engine = Engine(
        GatedRunner(tiny_decoder(), forget_in_the_second_run), EngineSettings(SchedulerLimits(4, 20, 8), max_waiting=9)
    )
    sink = Recorder()
    engine.submit(over(0, 1, 2), sink)
    engine.start()
    outcome = sink.wait().outcome
    assert outcome is not None
    assert outcome.usage.copied_prompt_tokens == 0
    assert engine.stats().pages_cached == 0
    engine.close()


def test_a_failed_warm_up_costs_the_requests_that_wait_for_it_only_time() -> None:
    steps = []

    def fail_once(step: object) -> None:
        steps.append(step)
        if len(steps) == 2:
            raise RuntimeError("broken")

    sink = generate(GatedRunner(tiny_decoder(), fail_once), [over(0, 1, 2)], SchedulerLimits(4, 20, 8))[0]
    assert sink.error is None
    assert len(sink.tokens) == 16
