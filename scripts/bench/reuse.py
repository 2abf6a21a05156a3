"""Questions over the same passages again and again: this project beside OpenVINO GenAI and llama.cpp, caches on.

    python -m scripts.bench.peers --install          # once
    python -m scripts.bench.reuse [--seeds 0 1 2] [--json]
    python -m scripts.bench.reuse --quick            # minutes instead of hours; its figures mean little

500 passages of 256 tokens, four a prompt by a Zipf law (s = 1), 40 tokens before and a question of 24 after them,
answers of 64 tokens. The model has the shape of Qwen2.5-0.5B and random weights. Every program gets the same prompts
and as much memory for keys and values, in a process of its own, with passages in the order they were drawn in (rank)
and in the order in which the daemon lays them out (ours).

Caches are warmed first. Then requests arrive by a Poisson process, at rates a factor apart, and the highest one is
reported at which the 95th percentile of the time to the first token is at most two seconds. The median time to the
first token is of a light load. A rate is one trial of so many requests; the factor between rates bounds how exact the
result is. A program that is not installed, crashes or takes too long is left out and named; then the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from edge_rag.errors import EdgeRagError
from edge_rag.generator.passage_order import PassageHeat, PassageKey
from scripts.bench.passages.serving import Plan
from scripts.bench.passages.workload import Corpus, PassageLoad, Trace
from scripts.bench.peers.contenders import ROOT, SHAPES, Contender, contenders
from scripts.bench.peers.preparation import make_checkpoint, make_model
from scripts.bench.peers.processes import ProgramFailed, run_program

ORDERS = ("rank", "ours")
PROGRAMS = {
    "edge-rag engine": "run_edge_rag",
    "openvino int8-head": "run_openvino",
    "llama.cpp f16 kv": "run_llama_cpp",
}
OURS = "edge-rag engine"
PLAN = Plan(warm=300, light=30, light_rate=0.2, trial=80, p95_s=2.0, first_rate=1.0, factor=1.2, most_trials=8)
QUICK = Plan(warm=24, light=5, light_rate=0.5, trial=10, p95_s=2.0, first_rate=0.5, factor=1.5, most_trials=3)


@dataclass(frozen=True, slots=True)
class Row:
    """One program, one order, one seed.

    Attributes:
        program: Its name.
        order: Of the passages.
        seed: Of passages, questions and arrivals.
        best: Requests a second at the bound.
        light_p50_s: Median time to the first token under the light load, seconds.
        trials: Every trial, as the program reported it.
    """

    program: str
    order: str
    seed: int
    best: float
    light_p50_s: float
    trials: list[dict[str, float]]


def make_trace(load: PassageLoad, order: str, seed: int, requests: int) -> Trace:
    """Lays out the prompts of a seed; equal arguments give equal traces."""
    corpus, heat, prompts = Corpus(load, seed), PassageHeat(), []
    for question in corpus.questions(requests):
        keys = [PassageKey("", passage, passage) for passage in question.passages]
        places = heat.arrange(keys) if order == "ours" else range(len(keys))
        heat.asked(keys)
        prompts.append(corpus.prompt(question, tuple(question.passages[place] for place in places)))
    gaps = np.random.default_rng(seed).exponential(1.0, requests)
    return Trace(np.stack(prompts), gaps, load.answer_tokens)


def run(contender: Contender, trace: Path, plan: Plan, options: Iterable[str], timeout_s: float) -> dict[str, Any]:
    """Runs a program once.

    Raises:
        ProgramFailed: It crashed, took too long or left no figures.
    """
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "figures.json"
        module = f"scripts.bench.passages.{PROGRAMS[contender.name]}"
        command = [contender.python, "-m", module, str(contender.model), "--trace", str(trace)]
        command += ["--plan", json.dumps(asdict(plan)), "--figures", str(target), *options]
        run_program(command, ROOT, timeout_s)
        if not target.is_file():
            raise ProgramFailed("left no figures")
        found: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
        return found


def table_of(rows: list[Row]) -> Table:
    table = Table(title="requests/s at p95 TTFT of 2 s; medians over seeds")
    for heading in ("program", "order", "requests/s", "p50 TTFT, light load", "ours is"):
        table.add_column(heading, justify="left" if heading in ("program", "order") else "right")

    def best(program: str, order: str) -> float:
        return statistics.median(row.best for row in rows if (row.program, row.order) == (program, order))

    pairs = dict.fromkeys((row.program, row.order) for row in rows)
    ours = max((best(*pair) for pair in pairs if pair[0] == OURS), default=0.0)
    for program, order in pairs:
        light = statistics.median(row.light_p50_s for row in rows if (row.program, row.order) == (program, order))
        rate = best(program, order)
        times = f"{ours / rate:.2f}x" if rate and program != OURS else ""
        table.add_row(program, order, f"{rate:.2f}", f"{1000 * light:.0f} ms", times)
    return table


def main() -> int:
    parser = argparse.ArgumentParser("reuse", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=ORDERS)
    parser.add_argument("--shape", choices=SHAPES, default=SHAPES[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=8, help="requests that run at once")
    parser.add_argument("--cache-mib", type=int, default=512, help="memory for keys and values")
    parser.add_argument("--quick", action="store_true", help="few requests: to see that everything runs")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds one program may take [%(default)s]")
    parser.add_argument("--json", action="store_true", help="print one JSON object as well")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    plan = QUICK if arguments.quick else PLAN
    options = [f"--threads={arguments.threads}", f"--slots={arguments.slots}", f"--cache-mib={arguments.cache_mib}"]
    rows, failures = list[Row](), dict[str, str]()
    console.print(f"load average {os.getloadavg()[0]:.1f}")
    try:
        make_checkpoint(arguments.shape)
        chosen = [one for one in contenders(arguments.shape, "int4") if one.name in arguments.only]
        for contender in chosen:
            if contender.environment is not None and contender.environment.missing:
                failures[contender.name] = "not installed: python -m scripts.bench.peers --install"
                continue
            make_model(contender, arguments.shape)
        with tempfile.TemporaryDirectory() as scratch:
            for seed in arguments.seeds:
                for order in arguments.orders:
                    path = Path(scratch) / f"{order}-{seed}.npz"
                    make_trace(PassageLoad(), order, seed, plan.requests).write(path)
                    for contender in chosen:
                        if contender.name in failures:
                            continue
                        try:
                            found = run(contender, path, plan, options, arguments.timeout)
                        except ProgramFailed as error:
                            failures[contender.name] = str(error)
                            continue
                        light = found["light"]["p50_s"]
                        rows.append(Row(contender.name, order, seed, found["best"], light, found["trials"]))
                        console.print(
                            f"seed {seed}, {order}: {contender.name} {found['best']:.2f}/s, light {light:.3f} s"
                        )
    except (ProgramFailed, EdgeRagError) as error:
        failures["preparation"] = str(error)
    except KeyboardInterrupt:
        console.print("interrupted; what was measured by then:")
        failures["interrupted"] = "yes"
    for name, reason in failures.items():
        console.print(f"{name} is left out: {reason}", markup=False, soft_wrap=True)
    if rows:
        console.print(table_of(rows), f"load average {os.getloadavg()[0]:.1f}")
    if arguments.json:
        json.dump({"rows": [asdict(row) for row in rows], "failures": failures}, sys.stdout, indent=2)
        sys.stdout.write("\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
