"""Whether the time to the first token tells one trust domain what another has asked."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from edge_rag.engine.engine import Engine
from edge_rag.engine.scheduling.policy import SchedulerLimits
from tests.unit.engine.support import Recorder, prompts, request, tiny_decoder

pytestmark = pytest.mark.serial

PROMPT_TOKENS = 256
ONE_STEP = SchedulerLimits(max_slots=8, max_step_tokens=512, prefill_tokens=16)


def area_under_curve(slower: list[float], faster: list[float]) -> float:
    """The chance that a time drawn from the first is larger than one from the second (Mann and Whitney, 1947)."""
    ranks = np.argsort(np.argsort(np.array(slower + faster))) + 1
    above = ranks[: len(slower)].sum() - len(slower) * (len(slower) + 1) / 2
    return float(above / (len(slower) * len(faster)))


def first_token_times(asker: str, prober: str, trials: int) -> tuple[list[float], list[float], int]:
    """Times of the prober's questions that the asker had not and had asked before, and prompt tokens found cached."""
    chance = random.Random(5)
    engine = Engine(tiny_decoder("llama", pages=256), ONE_STEP, max_waiting=8)
    engine.start()
    unseen: list[float] = []
    seen: list[float] = []
    cached = 0
    fresh = iter(prompts(2 * trials, PROMPT_TOKENS, PROMPT_TOKENS, seed=17))
    try:
        for _ in range(trials):
            probe, other = next(fresh), next(fresh)
            was_asked = chance.random() < 0.5
            before = Recorder()
            engine.submit(request(probe if was_asked else other, 1, trust_domain=asker), before)
            before.wait()
            sink = Recorder()
            began = time.perf_counter()
            engine.submit(request(probe, 1, trust_domain=prober), sink)
            assert sink.began.wait(60)
            (seen if was_asked else unseen).append(time.perf_counter() - began)
            outcome = sink.wait().outcome
            assert outcome is not None
            cached += outcome.usage.cached_prompt_tokens
    finally:
        engine.close()
    return unseen, seen, cached


def test_first_token_times_do_not_tell_what_another_trust_domain_asked() -> None:
    unseen, seen, cached = first_token_times("manuals", "personnel", trials=1600)
    assert cached == 0
    assert 0.45 <= area_under_curve(unseen, seen) <= 0.55


def test_the_same_measurement_does_tell_it_inside_one_trust_domain() -> None:
    unseen, seen, cached = first_token_times("manuals", "manuals", trials=200)
    assert cached >= len(seen) * (PROMPT_TOKENS - 32)
    assert area_under_curve(unseen, seen) > 0.65
