"""What several of the engine's tests use: the tiny models, requests, and a sink that waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.answer import FinishReason
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.metrics import RequestReport, StepReport
from edge_rag.core.query import Priority, Sampling
from edge_rag.engine.constraint import Constraint, Ended, Forced, NextTokens, OneOf
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.ports import ModelRunner, Outcome
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import EdgeRagError
from edge_rag.generator.constraints.plain import FreeText
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from tests.unit.engine.passing_decoder import PassingDecoder

FIXTURES = Path(__file__).parents[2] / "fixtures"
FAMILIES = ("llama", "qwen2", "qwen3")
LIMITS = SchedulerLimits(max_slots=8, max_step_tokens=64, prefill_tokens=16)


def tiny_decoder(family: str = "llama", pages: int = 64) -> PagedDecoder:
    return PagedDecoder.open(FIXTURES / f"tiny-{family}", pages)


class Recorder:
    """A sink that keeps what it gets."""

    def __init__(self, on_tokens: Callable[[tuple[int, ...]], bool] = lambda tokens: False) -> None:
        self.tokens: list[int] = []
        self.outcome: Outcome | None = None
        self.error: EdgeRagError | None = None
        self.ends = 0
        self.began = threading.Event()
        self.ended = threading.Event()
        self._on_tokens = on_tokens

    def extend(self, tokens: tuple[int, ...]) -> bool:
        self.tokens += tokens
        self.began.set()
        return self._on_tokens(tokens)

    def finish(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self._end()

    def fail(self, error: EdgeRagError) -> None:
        self.error = error
        self._end()

    def wait(self) -> Recorder:
        assert self.ended.wait(60), "the request never ended"
        return self

    def _end(self) -> None:
        self.ends += 1
        self.began.set()
        self.ended.set()


class GatedRunner(PassingDecoder):
    """The real decoder, with something done before each run: to hold a step, or to break it."""

    def __init__(self, decoder: PagedDecoder, before: Callable[[PackedStep], None]) -> None:
        super().__init__(decoder)
        self._before = before

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        self._before(step)
        return super().run(step)


class LeaningRunner(GatedRunner):
    """The real decoder, leaning towards saying 12 tokens in turn and leaving some out now and then."""

    def __init__(self, decoder: PagedDecoder) -> None:
        super().__init__(decoder, self._count)
        self.steps = 0.0

    def clock(self) -> float:
        """A clock on which each step takes a second."""
        return self.steps

    def _count(self, step: PackedStep) -> None:
        self.steps += 1

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        logits = super().run(step).copy()
        last, place = (values[step.logits_indices] for values in (step.input_ids, step.positions))
        logits[np.arange(len(logits)), 20 + (last + 1 + 4 * (place % 11 == 3)) % 12] += 5 * logits.std(axis=1)
        return logits


class Reports:
    """An observer that keeps what it gets."""

    def __init__(self) -> None:
        self.steps: list[StepReport] = []
        self.requests: list[RequestReport] = []
        self.turned = threading.Condition()
        self.turns = self.over = 0

    def on_turn(self) -> None:
        with self.turned:
            self.turns += 1
            self.turned.notify_all()

    def on_end(self) -> None:
        self.over += 1

    def on_step(self, report: StepReport) -> None:
        self.steps.append(report)

    def on_request(self, report: RequestReport) -> None:
        self.requests.append(report)


def prompts(count: int, shortest: int = 5, longest: int = 150, seed: int = 0) -> list[tuple[int, ...]]:
    random = np.random.default_rng(seed)
    return [tuple(random.integers(3, 512, int(random.integers(shortest, longest + 1))).tolist()) for _ in range(count)]


def request(
    prompt: Iterable[int],
    max_tokens: int = 24,
    constraint: Constraint | None = None,
    priority: Priority = Priority.NORMAL,
    deadline: float | None = None,
    sampling: Sampling | None = None,
    trust_domain: str = "manuals",
    request_id: str = "r",
    client: str = "test",
) -> TokenRequest:
    """A request without a constraint, for as many tokens as allowed by default."""
    return TokenRequest(
        request_id=RequestId(request_id),
        prompt=tuple(prompt),
        constraint=constraint or FreeText(frozenset()),
        sampling=sampling or Sampling(max_tokens=max_tokens),
        priority=priority,
        client=client,
        trust_domain=trust_domain,
        deadline=deadline,
    )


def submit_all(engine: Engine, items: Iterable[TokenRequest]) -> list[Recorder]:
    sinks = []
    for item in items:
        sinks.append(Recorder())
        engine.submit(item, sinks[-1])
    return sinks


def generate(
    runner: ModelRunner,
    requests: Iterable[TokenRequest],
    limits: SchedulerLimits = LIMITS,
    observer: Reports | None = None,
    draft_tokens: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> list[Recorder]:
    """Runs requests together and waits for all of them."""
    engine = Engine(
        runner, EngineSettings(limits, max_waiting=10_000, draft_tokens=draft_tokens), observer=observer, clock=clock
    )
    sinks = submit_all(engine, requests)
    engine.start()
    for sink in sinks:
        sink.wait()
    engine.close()
    return sinks


@dataclass(frozen=True)
class Runs:
    """A constraint: whole runs of tokens, none a beginning of another, each at most once; token 2 ends early."""

    left: tuple[tuple[int, ...], ...]
    most: int = 1
    run: tuple[int, ...] = ()
    taken: int = 0
    ended: bool = False

    def next(self) -> NextTokens:
        if self.ended:
            return Ended(FinishReason.STOP)
        depth = len(self.run)
        live = [run for run in self.left if run[:depth] == self.run]
        choices = {run[depth] for run in live} | ({2} if self.taken and not depth else set())
        if len(choices) == 1:
            return Forced(live[0][depth:] if len(live) == 1 else tuple(choices))
        return OneOf(np.array(sorted(choices), np.int64), np.zeros(len(choices), np.float32))

    def after(self, tokens: tuple[int, ...]) -> Runs:
        state = self
        for token in tokens:
            run = (*state.run, token)
            if run in state.left:
                left, taken = tuple(other for other in state.left if other != run), state.taken + 1
                state = replace(state, left=left, run=(), taken=taken, ended=taken == state.most or not left)
            else:
                state = replace(state, run=run, ended=run == (2,))
        return state
