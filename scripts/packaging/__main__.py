"""The command line of scripts/release."""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

from scripts.packaging.building import BUILD, Machine, ReleaseError, build_wheels, committed_sources, say


def main() -> int:
    """Runs a subcommand; returns its exit code."""
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build wheels")
    build.add_argument("--out", type=Path, default=BUILD / "release", help="a folder, made if missing")
    build.add_argument("--machine", type=Machine, choices=list(Machine), action="append", help="default: both")
    build.add_argument("--check-reproducible", action="store_true", help="build twice, compare the bytes")
    arguments = parser.parse_args()
    try:
        _build(arguments)
    except ReleaseError as error:
        say(f"scripts/release: {error}")
        return 1
    return 0


def _build(arguments: argparse.Namespace) -> None:
    machines = tuple(arguments.machine or Machine)
    arguments.out.mkdir(parents=True, exist_ok=True)
    made = _make(arguments.out, machines)
    if arguments.check_reproducible:
        say("Building once more ...")
        with tempfile.TemporaryDirectory(prefix="edge-rag-again-") as name:
            again = _make(Path(name), machines)
        differing = sorted(file for file in made | again if made.get(file) != again.get(file))
        if differing:
            raise ReleaseError(f"not the same bytes: {', '.join(differing)}")
        say(f"{len(made)} files are the same bytes as in {arguments.out}.")


def _make(out: Path, machines: tuple[Machine, ...]) -> dict[str, str]:
    for old in out.iterdir():
        if old.is_file():
            old.unlink()
    with committed_sources() as sources:
        build_wheels(sources, out, machines)
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(out.iterdir())}
    (out / "SHA256SUMS").write_text("".join(f"{value}  {name}\n" for name, value in sums.items()))
    return sums


if __name__ == "__main__":
    sys.exit(main())
