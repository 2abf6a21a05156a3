"""Continuous batching against the bound of a work-conserving scheduler, on the same graph and kernels, in one run.

    python -m scripts.bench.engine.batching
    python -m scripts.bench.engine.batching --model FOLDER --requests 24

Replays the published workload shape: prompts of 512 tokens, output lengths exponential with mean 128, capped at 1,536
(variance ``high``), and two tamer ones. All requests arrive at once; figures are medians over rounds. The bound is what
the trace's tokens take at this machine's measured rates, prefill in full chunks and decoding with every slot busy, with
no time lost to anything else. The rates are measured right before and after each run, because a machine's speed drifts.
(Batches in lockstep, which were compared once, are in commit ceb89611.)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.progress import Progress

from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.engine.schedulers import StepLog, run_continuous
from scripts.bench.harness.command import SMALL_GENERATOR, console, make_parser, print_json, print_table
from scripts.bench.harness.packed import packed_step, page_table
from scripts.bench.harness.workload import Job, Run, make_trace

VARIANCES = ("low", "medium", "high")


@dataclass(frozen=True, slots=True)
class Figures:
    """One trace; medians over rounds, seconds, tokens a second; each run is compared with the bound around it."""

    tokens_per_second: float
    bound: float
    share_of_bound: float
    occupancy: float
    first_token_p50: float
    first_token_p99: float
    completion_p50: float
    completion_p99: float
    same_outputs: bool


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--model", type=Path, default=SMALL_GENERATOR, help="generator's folder [%(default)s]")
    parser.add_argument("--requests", type=int, default=96)
    parser.add_argument("--prompt", type=int, default=512, help="prompt tokens [%(default)s]")
    parser.add_argument("--mean", type=int, default=128, help="mean output tokens [%(default)s]")
    parser.add_argument("--longest", type=int, default=1536, help="cap of output tokens [%(default)s]")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--step-tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variances", nargs="+", choices=VARIANCES, default=VARIANCES)
    wanted = parser.parse_args()
    configure_thread_pool(wanted.threads)
    pages = 2 * wanted.slots * -(-(wanted.prompt + wanted.longest) // 32)
    decoder = PagedDecoder.open(wanted.model, pages)
    limits = SchedulerLimits(wanted.slots, wanted.step_tokens, (wanted.step_tokens - wanted.slots) // 2)
    longest = min(wanted.longest, decoder.max_context - wanted.prompt)
    found: dict[str, Figures] = {}
    with Progress(console=console()) as progress:
        task = progress.add_task("measuring", total=len(wanted.variances) * wanted.rounds)
        for variance in wanted.variances:
            trace = make_trace(
                wanted.requests, wanted.prompt, variance, wanted.mean, longest, decoder.vocabulary_size, seed=0
            )
            found[variance] = measure(decoder, trace, limits, wanted.rounds, lambda: progress.advance(task))
    if wanted.json:
        print_json({"model": str(wanted.model), "threads": wanted.threads, "variances": found})
        return
    headings = (
        "variance",
        "tokens/s",
        "bound",
        "reached",
        "occupancy",
        "TTFT p50/p99 s",
        "completion p50/p99 s",
        "equal",
    )
    rows = [
        (
            name,
            f"{of.tokens_per_second:.0f}",
            f"{of.bound:.0f}",
            f"{of.share_of_bound:.1%}",
            f"{of.occupancy:.3f}",
            f"{of.first_token_p50:.2f} / {of.first_token_p99:.2f}",
            f"{of.completion_p50:.2f} / {of.completion_p99:.2f}",
            "yes" if of.same_outputs else "NO",
        )
        for name, of in found.items()
    ]
    print_table(f"continuous batching, {wanted.slots} slots", headings, rows)


def measure(
    decoder: PagedDecoder, trace: Sequence[Job], limits: SchedulerLimits, rounds: int, advance: Callable[[], None]
) -> Figures:
    runs: list[Run] = []
    bounds: list[float] = []
    for _ in range(rounds):
        before = work_conserving_tokens_per_second(decoder, trace, limits)
        runs.append(run_continuous(decoder, trace, limits, StepLog()))
        bounds.append((before + work_conserving_tokens_per_second(decoder, trace, limits)) / 2)
        advance()

    def median(value: Callable[[Run], float]) -> float:
        return statistics.median(value(run) for run in runs)

    return Figures(
        median(lambda run: run.tokens_per_second),
        statistics.median(bounds),
        statistics.median(run.tokens_per_second / bound for run, bound in zip(runs, bounds, strict=True)),
        median(lambda run: run.occupancy),
        median(lambda run: float(np.percentile(run.first_token_s, 50))),
        median(lambda run: float(np.percentile(run.first_token_s, 99))),
        median(lambda run: float(np.percentile(run.completion_s, 50))),
        median(lambda run: float(np.percentile(run.completion_s, 99))),
        all(run.outputs == runs[0].outputs for run in runs),
    )


def work_conserving_tokens_per_second(decoder: PagedDecoder, trace: Sequence[Job], limits: SchedulerLimits) -> float:
    """Returns the throughput of a scheduler that never leaves a slot or a token of a step unused.

    Prefill costs what full chunks cost at the middle of a prompt; decoding costs what a step of full slots costs at the
    trace's mean context. Both are measured here, on the same decoder.
    """
    prompt = len(trace[0].prompt)
    outputs = np.array([job.output_tokens for job in trace])
    mean_context = int(prompt + (outputs**2).sum() / (2 * outputs.sum()))
    slots = limits.max_slots
    chunk = min(limits.max_step_tokens, prompt)
    prefill_s = _median_seconds(decoder, 1, chunk, prompt - chunk) * prompt * len(trace) / chunk
    steps = max(-(-int(outputs.sum() - len(trace)) // slots), int(outputs.max()) - 1)
    decode_s = steps * _median_seconds(decoder, slots, 1, mean_context)
    return float(outputs.sum() / (prefill_s + decode_s))


def _median_seconds(decoder: PagedDecoder, sequences: int, count: int, past: int) -> float:
    table = page_table(sequences, past + count, decoder.page_tokens)
    step = packed_step(np.full((sequences, count), 5), table, decoder.page_tokens, past)
    seconds = []
    for _ in range(15):
        started = time.perf_counter()
        decoder.run(step)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
