"""The product's engine under the load: requests in, tokens out, greedy."""

from __future__ import annotations

import threading
import time
from itertools import count, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.engine.schedulers import Collected, StepLog, submit
from scripts.bench.peers.load import Load


class EngineProgram:
    """An engine with room for the load's sequences."""

    def __init__(self, model: Path, load: Load) -> None:
        configure_thread_pool(load.threads)
        self._lag = load.lag
        pages = load.sequences * (-(-load.room // read_geometry(model).page_tokens) + 1)
        limits = SchedulerLimits(load.sequences, load.step_tokens, load.step_tokens - load.sequences)
        self._log = StepLog()
        self._engine = Engine(
            PagedDecoder.open(model, pages), EngineSettings(limits, load.sequences), observer=self._log
        )
        self._engine.start()
        self._numbers = count()

    def prefill(self, prompt: NDArray[np.int64]) -> float:
        started = time.perf_counter()
        (sink,) = self._run(prompt[None], 1)
        if not sink.tokens:
            raise RuntimeError("the engine ended a request without a token")
        return sink.first - started

    def decode(self, prompts: NDArray[np.int64], steps: int) -> list[float]:
        """Times the steps that decoded all sequences, from the end of the step before to their own."""
        self._log.reports.clear()
        self._log.ended.clear()
        self._run(prompts, steps + self._lag)
        seconds = [
            ended - before
            for (before, ended), report in zip(pairwise(self._log.ended), self._log.reports[1:], strict=True)
            if report.decodes == report.tokens == len(prompts)
        ]
        if len(seconds) < steps:
            raise RuntimeError(f"only {len(seconds)} of {steps} steps decoded all {len(prompts)} sequences")
        return seconds[:steps]

    def _run(self, prompts: NDArray[np.int64], tokens: int) -> list[Collected]:
        done = threading.Semaphore(0)
        sinks = [Collected(done) for _ in prompts]
        for prompt, sink in zip(prompts, sinks, strict=True):
            submit(self._engine, next(self._numbers), tuple(prompt.tolist()), tokens, sink)
        for _ in sinks:
            done.acquire()
        if error := next((sink.error for sink in sinks if sink.error is not None), None):
            raise error
        return sinks
