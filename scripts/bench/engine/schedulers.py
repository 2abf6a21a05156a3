"""The two schedulers that are compared, on the same decoder: the product's engine, and batches in lockstep."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.metrics import RequestReport, StepReport
from edge_rag.core.query import Priority, Sampling
from edge_rag.engine.constraint import FreeText
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.ports import ModelRunner, Outcome
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import EdgeRagError
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
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


def run_lockstep(decoder: PagedDecoder, trace: Sequence[Job], slots: int, max_step_tokens: int) -> Run:
    """Runs a trace in batches: a batch is prefilled, decoded until its longest answer is done, and only then replaced.

    Answers that are done leave the computation though not the batch, which favours this baseline over implementations
    that compute padding for them. With one slot this is request at a time.
    """
    started = time.perf_counter()
    first, last = np.zeros(len(trace)), np.zeros(len(trace))
    outputs: list[list[int]] = [[] for _ in trace]
    occupied: list[float] = []
    for begin in range(0, len(trace), slots):
        batch = range(begin, min(begin + slots, len(trace)))
        waiting = batch.stop < len(trace)
        tables = _tables(decoder, [len(trace[i].prompt) + trace[i].output_tokens for i in batch])
        pending = {i: list(trace[i].prompt) for i in batch}
        computed = dict.fromkeys(batch, 0)
        while pending:
            parts = _share(pending, max_step_tokens)
            step, asked = _pack(decoder, parts, pending, computed, {i: tables[i - begin] for i in batch})
            logits = decoder.run(step)
            now = time.perf_counter()
            for i, count in parts.items():
                computed[i] += count
                pending[i] = pending[i][count:]
            for i, row in zip(asked, logits, strict=True):
                if not outputs[i]:
                    first[i] = now
                outputs[i].append(int(row.argmax()))
                last[i] = now
                if len(outputs[i]) == trace[i].output_tokens:
                    del pending[i]
                else:
                    pending[i] = outputs[i][-1:]
            if waiting:
                occupied.append(len(parts) / slots)
    return Run(
        time.perf_counter() - started,
        first - started,
        last - started,
        float(np.mean(occupied)) if occupied else 1.0,
        sum(len(tokens) for tokens in outputs),
        tuple(tuple(tokens) for tokens in outputs),
    )


def _tables(decoder: PagedDecoder, lengths: Sequence[int]) -> list[np.ndarray[tuple[int], np.dtype[np.int32]]]:
    sizes = [-(-length // decoder.page_tokens) for length in lengths]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return [np.arange(start, start + size, dtype=np.int32) for start, size in zip(starts, sizes, strict=False)]


def _share(pending: dict[int, list[int]], budget: int) -> dict[int, int]:
    parts: dict[int, int] = {}
    for i, tokens in sorted(pending.items(), key=lambda item: len(item[1]) > 1):
        count = min(len(tokens), budget)
        if count:
            parts[i] = count
            budget -= count
    return parts


def _pack(
    decoder: PagedDecoder,
    parts: dict[int, int],
    pending: dict[int, list[int]],
    computed: dict[int, int],
    tables: dict[int, np.ndarray[tuple[int], np.dtype[np.int32]]],
) -> tuple[PackedStep, list[int]]:
    ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    ends, rows, asked = [0], [], []
    size = decoder.page_tokens
    table = np.zeros((len(parts), max(len(tables[i]) for i in parts)), np.int32)
    for line, (i, count) in enumerate(parts.items()):
        ids += pending[i][:count]
        here = range(computed[i], computed[i] + count)
        positions += here
        slots += [int(tables[i][p // size]) * size + p % size for p in here]
        ends.append(len(ids))
        table[line, : len(tables[i])] = tables[i]
        if count == len(pending[i]):
            rows.append(len(ids) - 1)
            asked.append(i)
    step = PackedStep(
        np.array(ids, np.int64),
        np.array(positions, np.int32),
        np.array(slots, np.int32),
        np.array(ends, np.int32),
        table,
        np.array(rows, np.int64),
    )
    return step, asked
