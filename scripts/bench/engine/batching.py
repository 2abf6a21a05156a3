"""Continuous batching against static batching and request at a time, on the same graph and kernels, in one run.

    .venv/bin/python -m scripts.bench.engine.batching
    .venv/bin/python -m scripts.bench.engine.batching --model build/bench/qwen2.5-0.5b/int4 --requests 24 --plot out.png

Replays the published workload shape: prompts of 512 tokens, output lengths exponential with mean 128, capped at 1,536
(variance ``high``), and two tamer ones. All requests arrive at once. Rounds alternate between the schedulers; figures
are medians over rounds. The work-conserving bound is what the trace's tokens take at this machine's measured rates,
prefill in full chunks and decoding with every slot busy, with no time lost to anything else. The rates are measured
right before and after each run of the product's scheduler, because a machine's speed drifts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.engine.schedulers import StepLog, run_continuous, run_lockstep
from scripts.bench.harness.command import SMALL_GENERATOR
from scripts.bench.harness.workload import Job, Run, make_trace

VARIANCES = ("low", "medium", "high")


@dataclass(frozen=True, slots=True)
class Figures:
    """What is said of one scheduler on one trace; medians over rounds, seconds."""

    scheduler: str
    tokens_per_second: float
    occupancy: float
    first_token_p50: float
    first_token_p99: float
    completion_p50: float
    completion_p99: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The three schedulers on one trace.

    Attributes:
        figures: One a scheduler, the product's first.
        bound: Tokens a second of a work-conserving scheduler.
        share_of_bound: What the product's scheduler reached of it, each run compared with the bound around it.
        same_outputs: Whether all runs of all schedulers generated the same tokens.
        runs: One run of each scheduler, by name.
    """

    figures: tuple[Figures, ...]
    bound: float
    share_of_bound: float
    same_outputs: bool
    runs: dict[str, Run]


def main() -> None:
    arguments = parse_arguments()
    configure_thread_pool(arguments.threads)
    pages = 2 * arguments.slots * -(-(arguments.prompt + arguments.longest) // 32)
    decoder = PagedDecoder.open(arguments.model, pages)
    limits = SchedulerLimits(arguments.slots, arguments.step_tokens, (arguments.step_tokens - arguments.slots) // 2)
    console = Console(stderr=True)
    found: dict[str, Comparison] = {}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("measuring", total=len(arguments.variances) * arguments.rounds * 3)
        for variance in arguments.variances:
            trace = make_trace(
                arguments.requests,
                arguments.prompt,
                variance,
                arguments.mean,
                min(arguments.longest, decoder.max_context - arguments.prompt),
                decoder.vocabulary_size,
                arguments.seed,
            )
            found[variance] = compare(decoder, trace, limits, arguments.rounds, lambda: progress.advance(task))
            show(console, variance, found[variance])
    if arguments.plot:
        plot({variance: comparison.runs for variance, comparison in found.items()}, arguments.plot)
        console.print(f"plot written to {arguments.plot}")
    if arguments.json:
        variances = {
            name: {
                "work_conserving_tokens_per_second": comparison.bound,
                "share_of_bound": comparison.share_of_bound,
                "same_outputs": comparison.same_outputs,
                "schedulers": [asdict(line) for line in comparison.figures],
            }
            for name, comparison in found.items()
        }
        json.dump({"model": str(arguments.model), "threads": arguments.threads, "variances": variances}, sys.stdout)
        sys.stdout.write("\n")


def compare(
    decoder: PagedDecoder, trace: Sequence[Job], limits: SchedulerLimits, rounds: int, advance: Callable[[], None]
) -> Comparison:
    """Runs the three schedulers in turn, round after round."""
    schedulers: dict[str, Callable[[], Run]] = {
        "continuous": lambda: run_continuous(decoder, trace, limits, StepLog()),
        "static": lambda: run_lockstep(decoder, trace, limits.max_slots, limits.max_step_tokens),
        "one at a time": lambda: run_lockstep(decoder, trace, 1, limits.max_step_tokens),
    }
    runs: dict[str, list[Run]] = {name: [] for name in schedulers}
    bounds = []
    for _ in range(rounds):
        for name, scheduler in schedulers.items():
            if name == "continuous":
                before = work_conserving_tokens_per_second(decoder, trace, limits)
            runs[name].append(scheduler())
            if name == "continuous":
                bounds.append((before + work_conserving_tokens_per_second(decoder, trace, limits)) / 2)
            advance()
    return Comparison(
        tuple(summarize(name, of) for name, of in runs.items()),
        statistics.median(bounds),
        statistics.median(run.tokens_per_second / bound for run, bound in zip(runs["continuous"], bounds, strict=True)),
        all(run.outputs == runs["static"][0].outputs for of in runs.values() for run in of),
        {name: of[0] for name, of in runs.items()},
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=SMALL_GENERATOR, help="lowered folder [%(default)s]")
    parser.add_argument("--requests", type=int, default=96)
    parser.add_argument("--prompt", type=int, default=512, help="prompt tokens [%(default)s]")
    parser.add_argument("--mean", type=int, default=128, help="mean output tokens [%(default)s]")
    parser.add_argument("--longest", type=int, default=1536, help="cap of output tokens [%(default)s]")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--step-tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variances", nargs="+", choices=VARIANCES, default=VARIANCES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="write a picture here; needs matplotlib")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args()


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
    size = decoder.page_tokens
    width = -(-(past + count) // size)
    table = np.arange(sequences * width, dtype=np.int32).reshape(sequences, width)
    positions = np.tile(np.arange(past, past + count, dtype=np.int32), sequences)
    owner = np.repeat(np.arange(sequences), count)
    step = PackedStep(
        np.full(sequences * count, 5, np.int64),
        positions,
        (table[owner, positions // size] * size + positions % size).astype(np.int32),
        np.arange(sequences + 1, dtype=np.int32) * count,
        table,
        np.arange(1, sequences + 1, dtype=np.int64) * count - 1,
    )
    seconds = []
    for _ in range(15):
        started = time.perf_counter()
        decoder.run(step)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def summarize(name: str, runs: Sequence[Run]) -> Figures:
    """Returns the medians over rounds."""

    def median(value: Callable[[Run], float]) -> float:
        return statistics.median(value(run) for run in runs)

    return Figures(
        name,
        median(lambda run: run.tokens_per_second),
        median(lambda run: run.occupancy),
        median(lambda run: float(np.percentile(run.first_token_s, 50))),
        median(lambda run: float(np.percentile(run.first_token_s, 99))),
        median(lambda run: float(np.percentile(run.completion_s, 50))),
        median(lambda run: float(np.percentile(run.completion_s, 99))),
    )


def show(console: Console, variance: str, comparison: Comparison) -> None:
    """Prints one trace's table."""
    ours, bound = comparison.figures[0].tokens_per_second, comparison.bound
    outputs = "equal" if comparison.same_outputs else "DIFFER"
    table = Table(
        title=f"{variance} length variance: bound {bound:.0f} tokens/s, "
        f"continuous reaches {comparison.share_of_bound:.1%} of it, outputs {outputs}"
    )
    for column in (
        "scheduler",
        "tokens/s",
        "ours is",
        "of bound",
        "occupancy",
        "TTFT p50/p99 s",
        "completion p50/p99 s",
    ):
        table.add_column(column, justify="left" if column == "scheduler" else "right")
    for line in comparison.figures:
        table.add_row(
            line.scheduler,
            f"{line.tokens_per_second:.0f}",
            f"{ours / line.tokens_per_second:.2f}x",
            f"{line.tokens_per_second / bound:.3f}",
            f"{line.occupancy:.3f}",
            f"{line.first_token_p50:.2f} / {line.first_token_p99:.2f}",
            f"{line.completion_p50:.2f} / {line.completion_p99:.2f}",
        )
    console.print(table)


def plot(curves: dict[str, dict[str, Run]], target: Path) -> None:
    """Draws, for each trace, the share of requests completed over time."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(5 * len(curves), 4), squeeze=False)
    for axis, (variance, runs) in zip(axes[0], curves.items(), strict=True):
        for name, run in runs.items():
            times = np.sort(run.completion_s)
            axis.step(times, np.arange(1, len(times) + 1) / len(times), where="post", label=name)
        axis.set(title=f"{variance} length variance", xlabel="seconds", ylabel="requests completed", ylim=(0, 1.02))
        axis.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(target, dpi=120)


if __name__ == "__main__":
    main()
