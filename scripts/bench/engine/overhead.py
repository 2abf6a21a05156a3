"""The engine's own cost: everything of a step that is not the ONNX Runtime call.

    python -m scripts.bench.engine.overhead --model FOLDER

Decodes steadily with 1, 2, 4 and 8 sequences at several contexts and prints, for each, the time a step takes, how much
of it is spent outside the ONNX Runtime call, and its share. The cost should grow with the batch, not with the context.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.engine.schedulers import StepLog, run_continuous
from scripts.bench.harness.command import SMALL_GENERATOR, make_parser, print_json, print_table
from scripts.bench.harness.workload import Job


@dataclass(slots=True)
class TimedSession:
    """Stands in for a decoder's session and notes when each run began and ended."""

    session: Any
    began: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def run_with_iobinding(self, binding: Any) -> None:
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
    parser = make_parser(__doc__)
    parser.add_argument("--model", type=Path, default=SMALL_GENERATOR, help="generator's folder [%(default)s]")
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 512, 1536])
    parser.add_argument("--steps", type=int, default=48, help="decode steps for each figure [%(default)s]")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    configure_thread_pool(arguments.threads)
    pages = max(arguments.sequences) * (-(-max(arguments.contexts) // 32) + 2)
    decoder = PagedDecoder.open(arguments.model, pages)
    costs = [
        measure(decoder, sequences, context, arguments.steps)
        for context in arguments.contexts
        for sequences in arguments.sequences
    ]
    if arguments.json:
        print_json(costs)
        return
    rows = [
        (str(each.sequences), str(each.context), f"{each.step_ms:.2f}", f"{each.own_ms:.3f}", f"{each.own_share:.1%}")
        for each in costs
    ]
    print_table(str(arguments.model), ("sequences", "context", "step ms", "engine's own ms", "share"), rows)


if __name__ == "__main__":
    main()
