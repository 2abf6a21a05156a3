"""The work for a question does not depend on earlier questions of other trust domains; times follow from the work."""

import random
from dataclasses import dataclass

import pytest

from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.scheduling.policy import SchedulerLimits
from tests.unit.engine.support import Recorder, prompts, request, tiny_decoder

PROMPT_TOKENS = 256
CHUNKED = SchedulerLimits(max_slots=8, max_step_tokens=72, prefill_tokens=64)


@dataclass(frozen=True)
class Probe:
    """A prompt asked in one trust domain after another domain had asked it (``asked_before``) or another prompt."""

    asked_before: bool
    model_steps: int
    cached_prompt_tokens: int


def probes(first_domain: str, second_domain: str, trials: int) -> list[Probe]:
    """Asks prompts in the first trust domain, then, at random the same or others, in the second."""
    chance = random.Random(5)
    engine = Engine(tiny_decoder("llama", pages=256), EngineSettings(CHUNKED, max_waiting=8))
    engine.start()
    texts = iter(prompts(2 * trials, PROMPT_TOKENS, PROMPT_TOKENS, seed=17))
    done: list[Probe] = []
    try:
        for _ in range(trials):
            prompt, other = next(texts), next(texts)
            asked_before = chance.random() < 0.5
            before, sink = Recorder(), Recorder()
            engine.submit(request(prompt if asked_before else other, 1, trust_domain=first_domain), before)
            before.wait()
            engine.submit(request(prompt, 1, trust_domain=second_domain), sink)
            outcome = sink.wait().outcome
            assert outcome is not None
            done.append(Probe(asked_before, outcome.usage.model_steps, outcome.usage.cached_prompt_tokens))
    finally:
        engine.close()
    return done


def work(trials: list[Probe]) -> set[tuple[int, int]]:
    return {(probe.model_steps, probe.cached_prompt_tokens) for probe in trials}


@pytest.fixture(scope="module")
def steps_of_a_new_prompt() -> int:
    (probe,) = probes("manuals", "personnel", trials=1)
    return probe.model_steps


def test_a_prompt_cached_in_another_trust_domain_takes_the_work_of_a_new_one(steps_of_a_new_prompt: int) -> None:
    trials = probes("manuals", "personnel", trials=40)
    assert {probe.asked_before for probe in trials} == {False, True}
    assert work(trials) == {(steps_of_a_new_prompt, 0)}


def test_the_same_comparison_shows_reuse_inside_one_trust_domain(steps_of_a_new_prompt: int) -> None:
    trials = probes("manuals", "manuals", trials=40)
    assert work([probe for probe in trials if not probe.asked_before]) == {(steps_of_a_new_prompt, 0)}
    for steps, cached in work([probe for probe in trials if probe.asked_before]):
        assert steps < steps_of_a_new_prompt
        assert cached >= PROMPT_TOKENS - 32
