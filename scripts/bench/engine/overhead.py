"""The engine's own cost: everything of a step that is not the ONNX Runtime call.

    .venv/bin/python -m scripts.bench.engine.overhead --model build/bench/qwen2.5-0.5b/int4

Decodes steadily with 1, 2, 4 and 8 sequences at several contexts and prints, for each, the time a step takes, how much
of it is spent outside the ONNX Runtime call, and its share. The cost should grow with the batch, not with the context.
Make the model with scripts/models/make_random_model.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.engine.schedulers import StepLog, run_continuous
from scripts.bench.harness.command import SMALL_GENERATOR
from scripts.bench.harness.workload import Job


@dataclass(slots=True)
class TimedSession:
    """Stands in for a decoder's session and notes when each run began and ended."""

    session: Any
    began: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def run_with_iobinding(self, binding: Any) -> None:
        """Runs the model."""
        self.began.append(time.perf_counter())
        self.session.run_with_iobinding(binding)
        self.ended.append(time.perf_counter())


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians over decode steps, milliseconds."""

    sequences: int
    context: int
    step_ms: float
    own_ms: float
    own_share: float


def measure(decoder: PagedDecoder, sequences: int, context: int, steps: int) -> Cost:
    """Decodes with a full batch; the time between two runs of the model is the engine's own."""
    rng = np.random.default_rng(context)
    trace = [
        Job(tuple(int(token) for token in rng.integers(3, 1000, context - steps)), steps) for _ in range(sequences)
    ]
    timed = TimedSession(decoder._session)
    decoder._session = timed
    try:
        run_continuous(decoder, trace, SchedulerLimits(sequences, 512, 512 - sequences), StepLog())
    finally:
        decoder._session = timed.session
    last = steps - 2
    own = [after - before for after, before in zip(timed.began[-last:], timed.ended[-last - 1 : -1], strict=True)]
    whole = [
        own_s + end - begin for own_s, begin, end in zip(own, timed.began[-last:], timed.ended[-last:], strict=True)
    ]
    shares = [own_s / step_s for own_s, step_s in zip(own, whole, strict=True)]
    return Cost(
        sequences, context, 1e3 * statistics.median(whole), 1e3 * statistics.median(own), statistics.median(shares)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=SMALL_GENERATOR, help="lowered folder [%(default)s]")
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 512, 1536])
    parser.add_argument("--steps", type=int, default=48, help="decode steps for each figure [%(default)s]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    configure_thread_pool(arguments.threads)
    pages = max(arguments.sequences) * (-(-max(arguments.contexts) // 32) + 2)
    decoder = PagedDecoder.open(arguments.model, pages)
    costs = [
        measure(decoder, sequences, context, arguments.steps)
        for context in arguments.contexts
        for sequences in arguments.sequences
    ]
    table = Table(title=str(arguments.model))
    for column in ("sequences", "context", "step ms", "engine's own ms", "share"):
        table.add_column(column, justify="right")
    for cost in costs:
        row = (f"{cost.step_ms:.2f}", f"{cost.own_ms:.3f}", f"{cost.own_share:.1%}")
        table.add_row(str(cost.sequences), str(cost.context), *row)
    Console(stderr=True).print(table)
    if arguments.json:
        json.dump([asdict(cost) for cost in costs], sys.stdout)
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
