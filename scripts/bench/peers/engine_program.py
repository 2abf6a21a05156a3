"""The product's engine under the load: requests in, tokens out, greedy."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.metrics import RequestReport, StepReport
from edge_rag.core.query import Priority, Sampling
from edge_rag.engine.constraint import FreeText
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.ports import Outcome
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import EdgeRagError
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.peers.load import Load


@dataclass(slots=True)
class _Sink:
    """Notes when the first token came and how it ended."""

    first: float | None = None
    error: EdgeRagError | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def extend(self, tokens: tuple[int, ...]) -> bool:
        if self.first is None:
            self.first = time.perf_counter()
        return False

    def finish(self, outcome: Outcome) -> None:
        self.over.set()

    def fail(self, error: EdgeRagError) -> None:
        self.error = error
        self.over.set()


@dataclass(slots=True)
class _Clock:
    """Notes when each step ended and what it was."""

    steps: list[tuple[float, StepReport]] = field(default_factory=list)

    def on_step(self, report: StepReport) -> None:
        self.steps.append((time.perf_counter(), report))

    def on_request(self, report: RequestReport) -> None:
        pass

    def on_turn(self) -> None:
        pass

    def on_end(self) -> None:
        pass


class EngineProgram:
    """An engine with room for the load's sequences."""

    def __init__(self, model: Path, load: Load) -> None:
        configure_thread_pool(load.threads)
        self._lag = load.lag
        pages = load.sequences * (-(-load.room // read_geometry(model).page_tokens) + 1)
        limits = SchedulerLimits(load.sequences, load.step_tokens, load.step_tokens - load.sequences)
        self._clock = _Clock()
        self._engine = Engine(
            PagedDecoder.open(model, pages), EngineSettings(limits, load.sequences), observer=self._clock
        )
        self._engine.start()
        self._numbers = count()

    def prefill(self, prompt: NDArray[np.int64]) -> float:
        """Times a request from submission to its first token."""
        started = time.perf_counter()
        first = self._run(prompt[None], 1)[0].first
        if first is None:
            raise RuntimeError("the engine ended a request without a token")
        return first - started

    def decode(self, prompts: NDArray[np.int64], steps: int) -> list[float]:
        """Times the steps that decoded all sequences, from the end of the step before to their own."""
        self._clock.steps.clear()
        self._run(prompts, steps + self._lag)
        log = self._clock.steps
        seconds = [
            ended - before
            for (before, _), (ended, report) in pairwise(log)
            if report.decodes == report.tokens == len(prompts)
        ]
        if len(seconds) < steps:
            raise RuntimeError(f"only {len(seconds)} of {steps} steps decoded all {len(prompts)} sequences")
        return seconds[:steps]

    def _run(self, prompts: NDArray[np.int64], tokens: int) -> list[_Sink]:
        sinks = []
        for prompt in prompts:
            number = str(next(self._numbers))
            request = TokenRequest(
                request_id=RequestId(number),
                prompt=tuple(prompt.tolist()),
                constraint=FreeText(frozenset()),
                sampling=Sampling(max_tokens=tokens),
                priority=Priority.NORMAL,
                client="bench",
                trust_domain=number,
                deadline=None,
            )
            sinks.append(_Sink())
            self._engine.submit(request, sinks[-1])
        for sink in sinks:
            sink.over.wait()
            if sink.error is not None:
                raise sink.error
        return sinks
