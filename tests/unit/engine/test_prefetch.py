"""Prompts that are likely to come, computed while there is nothing else to do."""

from __future__ import annotations

import threading
from dataclasses import replace

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.prefetch import CHUNK_TOKENS
from edge_rag.engine.request import TokenRequest
from edge_rag.runtime.decoder.model_input import PackedStep
from tests.unit.engine.support import LIMITS, GatedRunner, Recorder, generate, prompts, request, tiny_decoder

(PROMPT,) = prompts(1, 230, 230, seed=5)
(OTHER,) = prompts(1, 40, 40, seed=6)


class Ledger:
    """Keeps audit events; signals when a prompt was prefetched."""

    def __init__(self) -> None:
        self.kept: list[AuditEvent] = []
        self.prefetched = threading.Event()

    def record(self, event: AuditEvent) -> None:
        self.kept.append(event)
        if event.kind is AuditEventKind.PREFETCHED:
            self.prefetched.set()


def generate_one(engine: Engine, item: TokenRequest) -> tuple[list[int], int]:
    sink = Recorder()
    engine.submit(item, sink)
    outcome = sink.wait().outcome
    assert outcome is not None
    return sink.tokens, outcome.usage.cached_prompt_tokens


def test_what_was_computed_ahead_is_found_and_the_answer_is_the_same() -> None:
    ledger = Ledger()
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=8, prefetch=True), audit=ledger)
    engine.start()
    try:
        engine.prefetch(request(PROMPT, 6))
        assert ledger.prefetched.wait(60)
        generated, found = generate_one(engine, request(PROMPT, 6))
        with_another_order = generate_one(engine, request((*PROMPT[:100], *OTHER), 6))[1]
    finally:
        engine.close()
    (plain,) = generate(tiny_decoder(), [request(PROMPT, 6)])
    assert generated == plain.tokens
    assert found == 7 * 32
    assert with_another_order == 3 * 32
    (event,) = (each for each in ledger.kept if each.kind is AuditEventKind.PREFETCHED)
    assert event.numbers == {"computed_tokens": 7 * 32, "expected_tokens": len(PROMPT)}


def test_a_request_that_comes_meanwhile_waits_for_one_small_step_at_most() -> None:
    begun, proceed = threading.Event(), threading.Event()
    steps: list[tuple[int, int]] = []  # tokens of each step, and its first token

    def before(step: PackedStep) -> None:
        steps.append((step.input_ids.size, int(step.input_ids[0])))
        if len(steps) == 1:
            begun.set()
            assert proceed.wait(60)

    ledger = Ledger()
    engine = Engine(
        GatedRunner(tiny_decoder(), before), EngineSettings(LIMITS, max_waiting=8, prefetch=True), audit=ledger
    )
    engine.start()
    try:
        engine.prefetch(request(PROMPT, 6, request_id="likely"))
        assert begun.wait(60)
        sink = Recorder()
        engine.submit(request(OTHER, 3, request_id="real"), sink)
        proceed.set()
        sink.wait()
        assert ledger.prefetched.wait(60)
    finally:
        engine.close()
    assert steps[0][0] <= CHUNK_TOKENS
    assert steps[1] == (len(OTHER), OTHER[0])


def test_nothing_is_computed_ahead_of_text_that_was_removed() -> None:
    steps: list[int] = []
    engine = Engine(
        GatedRunner(tiny_decoder(), lambda step: steps.append(step.input_ids.size)),
        EngineSettings(LIMITS, max_waiting=8, prefetch=True),
    )
    engine.forget("manuals", 2)
    engine.prefetch(request(PROMPT, 6))
    engine.start()
    try:
        assert generate_one(engine, replace(request(OTHER, 1), epoch=2))[1] == 0
        assert engine.stats().pages_cached == len(OTHER) // 32
    finally:
        engine.close()
    assert steps == [len(OTHER)]


def test_an_engine_with_something_left_to_compute_ahead_ends() -> None:
    engine = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=8, prefetch=True))
    assert engine.prefetch_enabled
    for _ in range(10):
        engine.prefetch(request(PROMPT, 6))
    engine.start()
    engine.close(grace_s=60)
