"""With any reuse, greedy answers are those of an engine that reuses nothing, byte for byte.

Prefix cache, drafts, preemption and cancellation, all at once. ``EDGE_RAG_EXACT_REQUESTS`` sets how many
requests are compared; 500 take a minute or two.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pytest

from edge_rag.core.query import Priority
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.engine.sequence import SequenceId
from edge_rag.errors import RequestCancelled
from tests.unit.engine.support import Recorder, request, tiny_decoder

REQUESTS = int(os.environ.get("EDGE_RAG_EXACT_REQUESTS", "80"))
PASSAGES, PASSAGE_TOKENS = 10, 48
TIGHT = SchedulerLimits(max_slots=6, max_step_tokens=96, prefill_tokens=32)
PAGES = 20
FIRST = 8
"""Requests that arrive first, in the lowest class, so that they are preempted."""


@dataclass(frozen=True)
class Job:
    request: TokenRequest
    cancelled_after: int | None  # tokens; None for never


def mixed(count: int) -> list[Job]:
    """Questions over few passages, in all classes, of two collections; every seventh is given up."""
    draw = random.Random(11)
    corpus = np.random.default_rng(11).integers(3, 512, (PASSAGES, PASSAGE_TOKENS)).tolist()
    jobs = []
    for number in range(count):
        first = number % (count // 2) < FIRST
        passages = draw.choices(corpus, weights=[1 / (rank + 1) for rank in range(PASSAGES)], k=draw.randint(1, 4))
        question = [draw.randrange(3, 512) for _ in range(draw.randint(1, 20))]
        one = request(
            chain([7] * 20, *passages, question),
            max_tokens=40 if first else draw.randint(1, 24),
            priority=max(Priority) if first else draw.choice(list(Priority)),
            trust_domain=draw.choice(["manuals", "manuals", "personnel"]),
            client=f"client-{draw.randrange(3)}",
            request_id=str(number),
        )
        jobs.append(Job(one, draw.randrange(6) if number % 7 == 3 and not first else None))
    return jobs


def plain_answers(jobs: list[Job], family: str) -> list[list[int]]:
    """One at a time, nothing shared, nothing drafted."""
    engine = Engine(tiny_decoder(family), EngineSettings(SchedulerLimits(1, 512, 256), max_waiting=len(jobs)))
    engine.start()
    try:
        answers = []
        for number, each in enumerate(jobs):
            sink = Recorder()
            engine.submit(replace(each.request, trust_domain=f"alone-{number}"), sink)
            answers.append(sink.wait().tokens)
        return answers
    finally:
        engine.close()


def run(engine: Engine, part: list[Job]) -> list[Recorder]:
    """Runs requests; those that are there first run when the others come."""
    ours: list[Recorder] = []

    def submit_others() -> None:
        if len(ours) == FIRST:
            ours.extend(submit(engine, each) for each in part[FIRST:])

    first = [submit(engine, part[0], submit_others), *(submit(engine, each) for each in part[1:FIRST])]
    ours.extend(first)
    engine.start()
    for sink in first:
        sink.wait()
    return ours


def submit(engine: Engine, job: Job, at_first: Callable[[], None] = lambda: None) -> Recorder:
    """Submits a request, to be cancelled after so many tokens."""
    name: list[SequenceId] = []
    cancelled_after = job.cancelled_after
    epoch = 1 if job.request.trust_domain == "manuals" else 0

    def heard(tokens: tuple[int, ...]) -> bool:
        at_first()
        if cancelled_after is not None and len(sink.tokens) >= cancelled_after and name:
            engine.cancel(name[0])
        return False

    sink = Recorder(heard)
    name.append(engine.submit(replace(job.request, epoch=epoch), sink))
    if cancelled_after == 0:
        engine.cancel(name[0])
    return sink


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_greedy_answers_with_all_reuse_equal_those_of_the_plain_engine(family: str) -> None:
    jobs = mixed(REQUESTS)
    plain = plain_answers(jobs, family)
    engine = Engine(tiny_decoder(family, PAGES), EngineSettings(TIGHT, max_waiting=len(jobs), draft_tokens=4))
    sinks = run(engine, jobs)
    outcomes = [sink.wait().outcome for sink in sinks]
    preempted = engine.stats().preemptions
    engine.close(grace_s=60)
    for each, sink, expected in zip(jobs, sinks, plain, strict=True):
        if sink.error is None:
            assert sink.tokens == expected
        else:
            assert isinstance(sink.error, RequestCancelled)
            assert each.cancelled_after is not None
            assert sink.tokens == expected[: len(sink.tokens)]
    assert sum(outcome.usage.cached_prompt_tokens for outcome in outcomes if outcome is not None) > 0
    assert preempted > 0
    assert any(sink.error is not None for sink in sinks)
