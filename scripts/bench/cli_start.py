"""Processor time of the command line before it does anything: user plus system, median of several processes.

    python -m scripts.bench.cli_start [--runs 15] [--folder CHECKOUT] [--json]

CHECKOUT is another working tree to measure with the same interpreter, for a comparison of two commits. The last row is
the interpreter alone with click, which no change here can go below.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
_CLI = ("-m", "edge_rag.cli.main")
COMMANDS: dict[str, tuple[str, ...]] = {
    "--version": (*_CLI, "--version"),
    "--help": (*_CLI, "--help"),
    "status --help": (*_CLI, "status", "--help"),
    "ask --help": (*_CLI, "ask", "--help"),
    "token list": (*_CLI, "token", "list"),
    "(python and click)": ("-c", "import click"),
}


def processor_seconds(arguments: Sequence[str], folder: Path) -> float:
    """Runs the interpreter once, with an empty data directory; returns its user and system time, seconds."""
    with tempfile.TemporaryDirectory() as data:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "EDGE_RAG_DATA_DIRECTORY": data},
        )
        _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0  # already collected
    return used.ru_utime + used.ru_stime


def measure(runs: int, folder: Path) -> dict[str, float]:
    """Returns the median of each command, after one run that fills the caches of the file system."""
    for arguments in COMMANDS.values():
        processor_seconds(arguments, folder)
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, arguments in COMMANDS.items():
            taken[name].append(processor_seconds(arguments, folder))
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="processes a command [%(default)s]")
    parser.add_argument("--folder", type=Path, default=ROOT, help="working tree to measure [this one]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    medians = measure(arguments.runs, arguments.folder)
    if arguments.json:
        print(json.dumps(medians))
        return
    table = Table("command", "processor time, ms", title=f"median of {arguments.runs} processes")
    for name, seconds in medians.items():
        table.add_row(name, f"{1000 * seconds:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
