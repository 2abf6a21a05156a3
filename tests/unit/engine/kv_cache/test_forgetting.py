"""What was cached of a collection is gone once text of it is."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.kv_cache.block_pool import BlockPool, violations
from edge_rag.engine.sequence import PageKey, SequenceId
from tests.unit.engine.kv_cache.test_block_pool import TOKENS, hold
from tests.unit.engine.support import LIMITS, Recorder, prompts, request, tiny_decoder

A, B = SequenceId(1), SequenceId(2)


@pytest.fixture
def engine() -> Iterator[Engine]:
    running = Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=8))
    running.start()
    yield running
    running.close()


def cached_of(engine: Engine, prompt: tuple[int, ...], epoch: int, trust_domain: str = "manuals") -> int:
    sink = Recorder()
    engine.submit(replace(request(prompt, 1, trust_domain=trust_domain), epoch=epoch), sink)
    outcome = sink.wait().outcome
    assert outcome is not None
    return outcome.usage.cached_prompt_tokens


def test_a_forgotten_domains_pages_are_free_and_cannot_be_found() -> None:
    pool = BlockPool(8, 8)
    hold(pool, A, TOKENS[:16], "manuals")
    hold(pool, B, TOKENS[:16], "personnel")
    pool.release(A)
    pool.release(B)
    assert pool.cached == 4

    pool.forget("manuals")

    assert pool.cached == 2
    assert pool.available == 8
    assert violations(pool.snapshot(), {}) == []
    assert pool.match("manuals", TOKENS[:17], []) == ()
    assert len(pool.match("personnel", TOKENS[:17], [])) == 2


def test_pages_that_are_held_stay_with_their_sequence_and_are_free_after_it() -> None:
    pool = BlockPool(8, 8)
    hold(pool, A, TOKENS[:16])

    pool.forget("manuals")

    assert pool.held(A) == 2
    keys: list[PageKey] = []
    assert pool.match("manuals", TOKENS[:17], keys) == ()
    pool.release(A)
    assert (pool.cached, pool.available) == (0, 8)
    assert violations(pool.snapshot(), {}) == []


def test_an_engine_computes_a_forgotten_prompt_anew(engine: Engine) -> None:
    (prompt,) = prompts(1, 96, 96)
    assert cached_of(engine, prompt, 0) == 0
    assert cached_of(engine, prompt, 0) > 0

    engine.forget("manuals", 1)

    assert cached_of(engine, prompt, 1) == 0
    assert cached_of(engine, prompt, 1) > 0


def test_a_request_under_way_goes_on_and_leaves_nothing_to_be_found(engine: Engine) -> None:
    def forget(tokens: tuple[int, ...]) -> bool:
        if not forgotten:
            forgotten.append(True)
            engine.forget("manuals", 1)
        return False

    forgotten: list[bool] = []
    (prompt,) = prompts(1, 96, 96)
    in_flight = Recorder(forget)
    engine.submit(request(prompt, 20, trust_domain="manuals"), in_flight)
    outcome = in_flight.wait().outcome
    assert outcome is not None
    assert outcome.usage.generated_tokens > 1
    assert cached_of(engine, prompt, 0) == 0
    assert cached_of(engine, prompt, 1) == 0


def test_a_question_whose_text_was_found_before_it_was_removed_leaves_nothing_to_be_found(engine: Engine) -> None:
    (prompt,) = prompts(1, 96, 96)
    engine.forget("manuals", 5)
    assert cached_of(engine, prompt, 4) == 0
    assert cached_of(engine, prompt, 4) == 0
    assert engine.stats().pages_cached == 0
    assert cached_of(engine, prompt, 5) == 0
    assert cached_of(engine, prompt, 5) > 0


def test_news_of_removals_may_come_out_of_order(engine: Engine) -> None:
    (prompt,) = prompts(1, 96, 96)
    engine.forget("manuals", 3)
    engine.forget("manuals", 2)
    cached_of(engine, prompt, 3)
    assert cached_of(engine, prompt, 3) > 0
    engine.forget("personnel", 9)
    assert cached_of(engine, prompt, 3) > 0
    assert cached_of(engine, prompt, 3, "personnel") == 0
