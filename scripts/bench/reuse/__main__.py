"""Questions over the same passages again and again: this project beside OpenVINO GenAI and llama.cpp, caches on.

    python -m scripts.bench.peers --install                       # once
    python -m scripts.bench.reuse --results build/reuse.jsonl     # goes on where it was stopped
    python -m scripts.bench.reuse --quick                         # minutes; its figures mean little

500 passages of 256 tokens, four a prompt by a Zipf law (s = 1), 40 tokens before and a question of 24 after them,
answers of 64 tokens. The model has the shape of Qwen2.5-0.5B and random weights. Every program gets the same prompts,
arrivals and as much memory for keys and values, in a process of its own, with passages in the order they were drawn in
(rank) and in the one that ``generator.passage_order = "hot"`` lays them out in (ours). "edge-rag exact" reuses equal
beginnings only; "edge-rag passage" copies passages as ``kv_reuse = "passage"`` does, and has every passage asked for
once before. Nothing is kept on disk and nothing is drafted.

Caches are warmed first. Then come requests one at a time, for the median time to the first token: with passages as the
law draws them (next), and with other questions about these passages (again). Then 32 come at once, for the rate and the
processor time of each, which says something on a busy machine too. Then requests arrive by a Poisson process, and the
highest rate is reported at which at most one in twenty waits longer than two seconds for its first token. A
rate is one trial of so many seconds, cut short where it cannot be kept any more; rates are a factor apart, with one
between the last two. Each program, order and seed is a run of its own, noted in the results as it ends; the table has
medians over seeds. The exit status is 1 where a bound is not kept or a run is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from edge_rag.errors import EdgeRagError
from edge_rag.generator.prompt.passage_order import PassageKey, PassagePopularity
from scripts.bench.harness.processes import ProgramFailed, run_program
from scripts.bench.harness.workload import Corpus, PassageLoad, Trace
from scripts.bench.peers.contenders import ROOT, SHAPES, Contender, contenders
from scripts.bench.peers.preparation import make_checkpoint, make_model
from scripts.bench.reuse.serving import Plan

ORDERS: Final = ("rank", "ours")
PLAN: Final = Plan(
    warm=96, alone=12, flood=32, trial_s=30.0, least=40, p95_s=2.0, begin=0.7, factor=1.25, most_trials=7
)
QUICK: Final = replace(PLAN, warm=16, alone=4, flood=8, trial_s=5.0, least=8, most_trials=2)
HIGHEST_RATE: Final = 12.0
"""Prompts are made for this rate, requests a second; past it they run out."""

EXACT_TIMES, PASSAGE_TIMES, FIRST_TOKEN_S = 2.0, 5.0, 0.1


@dataclass(frozen=True, slots=True)
class Program:
    """One that is measured.

    Attributes:
        contender: Its name among the contenders.
        module: What is run.
        orders: Of passages that it is measured with.
        options: Of the module.
        variables: Of its environment.
        covers: Whether each passage is asked for once before.
    """

    contender: str
    module: str
    orders: tuple[str, ...]
    options: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    covers: bool = False


EXACT, PASSAGE = "edge-rag exact", "edge-rag passage"
PROGRAMS: Final = {
    EXACT: Program("edge-rag engine", "run_edge_rag", ORDERS),
    PASSAGE: Program("edge-rag engine", "run_edge_rag", ("ours",), covers=True),
    "openvino": Program("openvino int8-head", "run_openvino", ORDERS),
    # Its threads spin between any two operations, and beside anything else that runs wait for one another for seconds.
    "llama.cpp": Program("llama.cpp f16 kv", "run_llama_cpp", ORDERS, variables=(("OMP_WAIT_POLICY", "passive"),)),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One program, one order, one seed.

    Attributes:
        program: Its name.
        order: Of the passages.
        seed: Of passages, questions and arrivals.
        best: Requests a second at the bound.
        next_p50_s: Median time to the first token of one request at a time, seconds.
        again_p50_s: The same with passages that were asked about right before.
        flood_rate: Requests a second answered where all are there from the beginning.
        flood_cpu_s: Processor time that each of these took, seconds.
        trials: Every trial, as the program reported it.
    """

    program: str
    order: str
    seed: int
    best: float
    next_p50_s: float
    again_p50_s: float
    flood_rate: float
    flood_cpu_s: float
    trials: list[dict[str, Any]]


def make_trace(load: PassageLoad, order: str, seed: int, requests: int, covers: bool) -> Trace:
    """Lays out the prompts of a seed; equal arguments give equal traces."""
    corpus, popularity, prompts = Corpus(load, seed), PassagePopularity(), []
    for question in corpus.questions(requests):
        keys = [PassageKey("", passage, passage) for passage in question.passages]
        places = popularity.arrange(keys) if order == "ours" else range(len(keys))
        popularity.record(keys)
        prompts.append(corpus.prompt(question, tuple(question.passages[place] for place in places)))
    every = [tuple(range(first, first + load.per_prompt)) for first in range(0, load.passages, load.per_prompt)]
    last = next(corpus.questions(1))
    cover = np.array([corpus.prompt(last, passages) for passages in every] if covers else [], np.int64)
    return Trace(
        prompts=np.stack(prompts),
        cover=cover.reshape(-1, load.prompt_tokens),
        gaps=np.random.default_rng(seed).exponential(1.0, requests),
        system_tokens=load.system_tokens,
        passage_tokens=load.passage_tokens,
        question_tokens=load.question_tokens,
        answer_tokens=load.answer_tokens,
    )


def run(
    program: Program, contender: Contender, trace: Path, plan: Plan, options: Sequence[str], timeout_s: float
) -> dict[str, Any]:
    """Runs a program once.

    Raises:
        ProgramFailed: It crashed, took too long or left no figures.
    """
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "figures.json"
        command = [contender.python, "-m", f"scripts.bench.reuse.{program.module}", str(contender.model)]
        command += ["--trace", str(trace), "--plan", json.dumps(asdict(plan)), "--figures", str(target), *options]
        run_program([*command, *program.options], ROOT, timeout_s, dict(program.variables))
        if not target.is_file():
            raise ProgramFailed("left no figures")
        found: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
        return found


def measure(arguments: argparse.Namespace, plan: Plan, console: Console, rows: list[Row]) -> dict[str, str]:
    """Runs what is not among the rows yet and adds it; returns why programs were left out, by name.

    Raises:
        ProgramFailed: A model could not be made.
        EdgeRagError: Ours could not be lowered.
    """
    failures: dict[str, str] = {}
    make_checkpoint(arguments.shape)
    by_name = {one.name: one for one in contenders(arguments.shape, "int4")}
    common = [f"--threads={arguments.threads}", f"--slots={arguments.slots}", f"--cache-mib={arguments.cache_mib}"]
    if arguments.lock is not None:
        common.append(f"--lock={arguments.lock}")
    known = {(row.program, row.order, row.seed) for row in rows}
    for seed in arguments.seeds:
        for name in arguments.only:
            program = PROGRAMS[name]
            contender = by_name[program.contender]
            if contender.environment is not None and contender.environment.missing:
                failures[name] = "not installed: python -m scripts.bench.peers --install"
            if name in failures:
                continue
            make_model(contender, arguments.shape)
            options = [*common, f"--recompute={arguments.recompute}"] if name == PASSAGE else common
            for order in (one for one in program.orders if one in arguments.orders):
                if (name, order, seed) in known or name in failures:
                    continue
                with tempfile.TemporaryDirectory() as scratch:
                    path = Path(scratch) / "trace.npz"
                    covers = program.covers and not arguments.quick
                    make_trace(PassageLoad(), order, seed, plan.requests(HIGHEST_RATE), covers).write(path)
                    try:
                        found = run(program, contender, path, plan, options, arguments.timeout)
                    except ProgramFailed as error:
                        failures[name] = str(error)
                        continue
                rows.append(Row(program=name, order=order, seed=seed, **found))
                if arguments.results is not None:
                    with arguments.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(rows[-1])) + "\n")
                console.print(
                    f"seed {seed}, {order}: {name} {rows[-1].best:.2f}/s, first token after"
                    f" {1000 * rows[-1].next_p50_s:.0f} ms, again {1000 * rows[-1].again_p50_s:.0f} ms"
                )
    return failures


def table_of(rows: Sequence[Row]) -> Table:
    """Medians over seeds."""
    table = Table(title="requests/s with p95 TTFT at most 2 s; medians over seeds")
    for heading in ("program", "order"):
        table.add_column(heading)
    for heading in (
        "seeds",
        "requests/s",
        "lowest",
        "highest",
        "of the better peer",
        "TTFT p50, next",
        "again",
        "flood/s",
        "CPU s each",
    ):
        table.add_column(heading, justify="right")
    peer = best_peer(rows)
    for program, order in dict.fromkeys((row.program, row.order) for row in rows):
        mine = [row for row in rows if (row.program, row.order) == (program, order)]
        rate = statistics.median(row.best for row in mine)
        table.add_row(
            program,
            order,
            str(len(mine)),
            f"{rate:.2f}",
            f"{min(row.best for row in mine):.2f}",
            f"{max(row.best for row in mine):.2f}",
            f"{rate / peer:.2f}x" if peer else "",
            f"{1000 * statistics.median(row.next_p50_s for row in mine):.0f} ms",
            f"{1000 * statistics.median(row.again_p50_s for row in mine):.0f} ms",
            f"{statistics.median(row.flood_rate for row in mine):.2f}",
            f"{statistics.median(row.flood_cpu_s for row in mine):.2f}",
        )
    return table


def best_rate(rows: Sequence[Row], program: str) -> float:
    """Returns the median over seeds of a program's better order, requests a second; 0 if it was not measured."""
    orders = {row.order for row in rows if row.program == program}
    medians = (
        statistics.median(row.best for row in rows if (row.program, row.order) == (program, order)) for order in orders
    )
    return max(medians, default=0.0)


def best_peer(rows: Sequence[Row]) -> float:
    """Returns what the better peer bears in its better order, requests a second; 0 if none was measured."""
    return max((best_rate(rows, name) for name in PROGRAMS if name not in (EXACT, PASSAGE)), default=0.0)


def bounds(rows: Sequence[Row]) -> list[tuple[str, bool]]:
    """Returns what is wanted and whether it is so."""
    peer = best_peer(rows)

    def first_token(program: str, name: str) -> float:
        times = [getattr(row, name) for row in rows if row.program == program and row.order == "ours"]
        return statistics.median(times) if times else np.inf

    def times(program: str) -> float:
        return best_rate(rows, program) / peer if peer else 0.0

    exact_s, passage_s = first_token(EXACT, "again_p50_s"), first_token(PASSAGE, "next_p50_s")
    return [
        (f"exact reuse {times(EXACT):.2f}x the better peer, {EXACT_TIMES:.0f}x wanted", times(EXACT) >= EXACT_TIMES),
        (
            f"passage reuse {times(PASSAGE):.2f}x the better peer, {PASSAGE_TIMES:.0f}x wanted",
            times(PASSAGE) >= PASSAGE_TIMES,
        ),
        (
            f"first token after {1000 * exact_s:.0f} ms with these passages asked about before, exact reuse; under"
            f" {1000 * FIRST_TOKEN_S:.0f} wanted",
            exact_s < FIRST_TOKEN_S,
        ),
        (
            f"first token after {1000 * passage_s:.0f} ms with any passages, passage reuse; under"
            f" {1000 * FIRST_TOKEN_S:.0f} wanted",
            passage_s < FIRST_TOKEN_S,
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser("reuse", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=ORDERS)
    parser.add_argument("--results", type=Path, help="file of earlier runs, which are not repeated, and of these")
    parser.add_argument("--table", action="store_true", help="run nothing: print what the results hold")
    parser.add_argument("--lock", type=Path, help="file whose lock is held while a program is measured")
    parser.add_argument("--shape", choices=SHAPES, default=SHAPES[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=32, help="requests that run at once [%(default)s]")
    parser.add_argument("--cache-mib", type=int, default=1024, help="memory for keys and values [%(default)s]")
    parser.add_argument("--recompute", type=int, default=16, help="tokens of a copied passage that are computed anew")
    parser.add_argument("--quick", action="store_true", help="few requests: to see that everything runs")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds one run may take [%(default)s]")
    parser.add_argument("--json", action="store_true", help="print one JSON object as well")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    rows: list[Row] = []
    if arguments.results is not None and arguments.results.is_file():
        rows = [Row(**json.loads(line)) for line in arguments.results.read_text(encoding="utf-8").splitlines()]
    failures: dict[str, str] = {}
    if not arguments.table:
        console.print(f"load average {os.getloadavg()[0]:.1f}")
        try:
            failures = measure(arguments, QUICK if arguments.quick else PLAN, console, rows)
        except (ProgramFailed, EdgeRagError) as error:
            failures["preparation"] = str(error)
        except KeyboardInterrupt:
            console.print("interrupted; what was measured by then:")
            failures["interrupted"] = "yes"
    for name, reason in failures.items():
        console.print(f"{name} is left out: {reason}", markup=False, soft_wrap=True)
    known = {(row.program, row.order, row.seed) for row in rows}
    wanted = [(name, order, seed) for name, one in PROGRAMS.items() for order in one.orders for seed in arguments.seeds]
    missing = [one for one in wanted if one not in known]
    kept = bounds(rows)
    if rows:
        console.print(table_of(rows))
        for text, holds in kept:
            console.print(f"{'kept    ' if holds else 'NOT KEPT'} {text}")
    if missing:
        console.print(f"not measured: {', '.join(f'{name} {order} {seed}' for name, order, seed in missing)}")
    if arguments.json:
        json.dump(
            {
                "rows": [asdict(row) for row in rows],
                "bounds": [{"bound": text, "kept": holds} for text, holds in kept],
                "failures": failures,
            },
            sys.stdout,
            indent=2,
        )
        sys.stdout.write("\n")
    return int(bool(failures or missing) or not all(holds for _, holds in kept))


if __name__ == "__main__":
    sys.exit(main())
