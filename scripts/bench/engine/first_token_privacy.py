"""Measures whether the time to the first token reveals what another trust domain has asked.

    python -m scripts.bench.engine.first_token_privacy [--trials 1600]

Prints the area under the curve that separates first-token times of prompts asked before from those of new prompts (Mann
and Whitney, 1947): 0.5 reveals nothing, 1.0 everything. Across trust domains it should be within 0.45 to 0.55.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import click
import numpy as np

from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.scheduling.policy import SchedulerLimits
from tests.unit.engine.support import Recorder, prompts, request, tiny_decoder

PROMPT_TOKENS = 256
ONE_STEP = SchedulerLimits(max_slots=8, max_step_tokens=512, prefill_tokens=16)


@dataclass(frozen=True)
class Probe:
    """A prompt asked in one trust domain after another trust domain had asked it or another prompt.

    Attributes:
        asked_before: Whether the other trust domain had asked this prompt.
        first_token_s: Time to the first token, seconds.
        model_steps: Model runs it took part in.
        cached_prompt_tokens: Prompt tokens that were not computed again.
    """

    asked_before: bool
    first_token_s: float
    model_steps: int
    cached_prompt_tokens: int


def probes(first_domain: str, second_domain: str, trials: int, limits: SchedulerLimits = ONE_STEP) -> list[Probe]:
    """Asks prompts in the first trust domain, then, at random the same or others, in the second."""
    chance = random.Random(5)
    engine = Engine(tiny_decoder("llama", pages=256), EngineSettings(limits, max_waiting=8))
    engine.start()
    texts = iter(prompts(2 * trials, PROMPT_TOKENS, PROMPT_TOKENS, seed=17))
    done: list[Probe] = []
    try:
        for _ in range(trials):
            prompt, other = next(texts), next(texts)
            asked_before = chance.random() < 0.5
            before = Recorder()
            engine.submit(request(prompt if asked_before else other, 1, trust_domain=first_domain), before)
            before.wait()
            sink = Recorder()
            began = time.perf_counter()
            engine.submit(request(prompt, 1, trust_domain=second_domain), sink)
            if not sink.began.wait(60):
                raise TimeoutError("no first token within 60 s")
            first_token_s = time.perf_counter() - began
            outcome = sink.wait().outcome
            if outcome is None:
                raise RuntimeError("the request failed")
            usage = outcome.usage
            done.append(Probe(asked_before, first_token_s, usage.model_steps, usage.cached_prompt_tokens))
    finally:
        engine.close()
    return done


def area_under_curve(slower: list[float], faster: list[float]) -> float:
    """The probability that a time drawn from the first is larger than one drawn from the second."""
    ranks = np.argsort(np.argsort(np.array(slower + faster))) + 1
    above = ranks[: len(slower)].sum() - len(slower) * (len(slower) + 1) / 2
    return float(above / (len(slower) * len(faster)))


@click.command(help=__doc__)
@click.option("--trials", default=1600, show_default=True, type=click.IntRange(10), help="Prompts to probe with.")
def main(trials: int) -> None:
    """Prints both areas."""
    for name, domain in (("across trust domains", "personnel"), ("inside one trust domain", "manuals")):
        times: dict[bool, list[float]] = {False: [], True: []}
        for probe in probes("manuals", domain, trials):
            times[probe.asked_before].append(probe.first_token_s)
        print(f"{name}: {area_under_curve(times[False], times[True]):.3f}")


if __name__ == "__main__":
    main()
