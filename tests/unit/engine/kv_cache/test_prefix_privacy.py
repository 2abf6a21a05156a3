"""The work for a question does not depend on earlier questions of other trust domains.

Times follow from the work; `python -m scripts.bench.engine.first_token_privacy` measures them.
"""

from __future__ import annotations

import pytest

from edge_rag.engine.scheduling.policy import SchedulerLimits
from scripts.bench.engine.first_token_privacy import PROMPT_TOKENS, Probe, probes

CHUNKED = SchedulerLimits(max_slots=8, max_step_tokens=72, prefill_tokens=64)


def work(trials: list[Probe]) -> set[tuple[int, int]]:
    """Model steps and cached prompt tokens of the probes."""
    return {(probe.model_steps, probe.cached_prompt_tokens) for probe in trials}


@pytest.fixture(scope="module")
def steps_of_a_new_prompt() -> int:
    (probe,) = probes("manuals", "personnel", trials=1, limits=CHUNKED)
    return probe.model_steps


def test_a_prompt_cached_in_another_trust_domain_takes_the_work_of_a_new_one(steps_of_a_new_prompt: int) -> None:
    trials = probes("manuals", "personnel", trials=40, limits=CHUNKED)
    assert {probe.asked_before for probe in trials} == {False, True}
    assert work(trials) == {(steps_of_a_new_prompt, 0)}


def test_the_same_comparison_shows_reuse_inside_one_trust_domain(steps_of_a_new_prompt: int) -> None:
    trials = probes("manuals", "manuals", trials=40, limits=CHUNKED)
    assert work([probe for probe in trials if not probe.asked_before]) == {(steps_of_a_new_prompt, 0)}
    for steps, cached in work([probe for probe in trials if probe.asked_before]):
        assert steps < steps_of_a_new_prompt
        assert cached >= PROMPT_TOKENS - 32
