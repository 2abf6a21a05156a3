"""Runs traces of requests through the product's engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.metrics import RequestReport, StepReport
from edge_rag.core.query import Priority, Sampling
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.ports import ModelRunner, Outcome
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import EdgeRagError
from edge_rag.generator.constraints.plain import FreeText
from scripts.bench.harness.workload import Job, Run


@dataclass(slots=True)
class Collected:
    """A sink that notes when tokens come."""

    done: threading.Semaphore
    tokens: list[int] = field(default_factory=list)
    first: float = 0.0
    last: float = 0.0
    error: EdgeRagError | None = None

    def extend(self, tokens: tuple[int, ...]) -> bool:
        self.last = time.perf_counter()
        if not self.tokens:
            self.first = self.last
        self.tokens += tokens
        return False

    def finish(self, outcome: Outcome) -> None:
        self.done.release()

    def fail(self, error: EdgeRagError) -> None:
        self.error = error
        self.done.release()


@dataclass(slots=True)
class StepLog:
    """Keeps every step's report, and when it ended."""

    reports: list[StepReport] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def on_step(self, report: StepReport) -> None:
        self.reports.append(report)
        self.ended.append(time.perf_counter())

    def on_request(self, report: RequestReport) -> None:
        pass

    def on_turn(self) -> None:
        pass

    def on_end(self) -> None:
        pass


def submit(engine: Engine, number: int, prompt: tuple[int, ...], tokens: int, sink: Collected) -> None:
    """Asks for exactly so many tokens, or fewer where the model ends; nothing is shared with other requests."""
    request = TokenRequest(
        request_id=RequestId(str(number)),
        prompt=prompt,
        constraint=FreeText(frozenset()),
        sampling=Sampling(max_tokens=tokens),
        priority=Priority.NORMAL,
        client="bench",
        trust_domain=str(number),
        deadline=None,
    )
    engine.submit(request, sink)


def run_continuous(decoder: ModelRunner, trace: Sequence[Job], limits: SchedulerLimits, log: StepLog) -> Run:
    """Runs a trace through the product's engine."""
    engine = Engine(decoder, EngineSettings(limits, len(trace)), observer=log)
    done = threading.Semaphore(0)
    sinks = [Collected(done) for _ in trace]
    started = time.perf_counter()
    for number, (job, sink) in enumerate(zip(trace, sinks, strict=True)):
        submit(engine, number, job.prompt, job.output_tokens, sink)
    engine.start()
    for _ in sinks:
        done.acquire()
    seconds = time.perf_counter() - started
    engine.close()
    for sink in sinks:
        if sink.error is not None:
            raise sink.error
    crowded = [report for report in log.reports if report.waiting]
    return Run(
        seconds,
        np.array([sink.first - started for sink in sinks]),
        np.array([sink.last - started for sink in sinks]),
        float(np.mean([report.slots_busy / limits.max_slots for report in crowded])) if crowded else 1.0,
        sum(len(sink.tokens) for sink in sinks),
        tuple(tuple(sink.tokens) for sink in sinks),
    )
