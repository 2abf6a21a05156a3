"""The command line of scripts/release."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.packaging.building import (
    BUILD,
    Machine,
    ReleaseError,
    Sources,
    build_wheels,
    committed_sources,
    say,
    sums,
)
from scripts.packaging.bundle import PYTHONS, build_bundle
from scripts.packaging.debian import build_deb
from scripts.packaging.forms import FORMS, check, table


def main() -> int:
    """Runs a subcommand; returns its exit code."""
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser(
        "build",
        help="build what a release consists of",
        epilog="example: scripts/release build --machine x86_64 --check-reproducible",
    )
    build.add_argument("--out", type=Path, default=BUILD / "release", help="a folder, made if missing (%(default)s)")
    build.add_argument("--machine", type=Machine, choices=list(Machine), action="append", help="default: both")
    build.add_argument("--python", action="append", metavar="3.11", help=f"of bundles; default: {', '.join(PYTHONS)}")
    build.add_argument("--only", choices=["wheels", "bundle", "deb"], help="of what lies in --out")
    build.add_argument("--check-reproducible", action="store_true", help="build twice and compare the bytes")
    build.set_defaults(run=_build)
    trial = commands.add_parser(
        "check",
        help="install on clean systems to the first cited answer",
        epilog="example: scripts/release check --form bundle --markdown",
    )
    trial.add_argument("--from", dest="out", type=Path, default=BUILD / "release", help="what build made (%(default)s)")
    trial.add_argument("--form", choices=list(FORMS), action="append", help="default: all")
    trial.add_argument("--machine", type=Machine, choices=list(Machine), default=Machine.X86_64)
    shape = trial.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_const", const="json", dest="shape")
    shape.add_argument("--markdown", action="store_const", const="markdown", dest="shape")
    trial.set_defaults(run=_check)
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except ReleaseError as error:
        say(f"scripts/release: {error}")
        return 1
    return 0


def _build(arguments: argparse.Namespace) -> None:
    arguments.out.mkdir(parents=True, exist_ok=True)
    with alone_in(arguments.out):
        _build_in(arguments)


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Keeps other builds out of a folder, which they would empty."""
    descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ReleaseError(f"another build writes to {out}; name another folder with --out") from None
    finally:
        os.close(descriptor)


def _build_in(arguments: argparse.Namespace) -> None:
    _make(arguments, arguments.out)
    if arguments.check_reproducible:
        say("Building once more ...")
        with tempfile.TemporaryDirectory(prefix="edge-rag-again-") as name:
            taken = {"bundle": ["*.whl"], "deb": ["*.whl", "*.tar", "*.json"]}.get(arguments.only, [])
            for made in (path for pattern in taken for path in arguments.out.glob(pattern)):
                (Path(name) / made.name).symlink_to(made.resolve())
            _make(arguments, Path(name))
            files = [folder / "SHA256SUMS" for folder in (arguments.out, Path(name))]
            first, again = (set(file.read_text().splitlines()) for file in files)
        # With --only bundle, --out may have bundles of other machines.
        if differing := again - first:
            raise ReleaseError(f"not the same bytes: {', '.join(sorted(differing))}")
        say("The same bytes, twice.")
    say(f"{arguments.out}: {len((arguments.out / 'SHA256SUMS').read_text().splitlines())} files and SHA256SUMS")


def _make(arguments: argparse.Namespace, out: Path) -> None:
    machines = tuple(arguments.machine or Machine)
    with committed_sources() as sources:
        if arguments.only in (None, "wheels"):
            for old in out.iterdir():
                old.unlink()
            build_wheels(sources, out, machines)
        if arguments.only in (None, "bundle"):
            _bundles(sources, out, machines, tuple(arguments.python or PYTHONS))
        if arguments.only in (None, "deb"):
            for machine in machines:
                build_deb(out / f"edge-rag-{sources.version}-{machine}.tar", out, machine, sources.epoch)
    files = [path for path in out.iterdir() if path.name != "SHA256SUMS"]
    (out / "SHA256SUMS").write_text(sums(files, out))


def _bundles(sources: Sources, out: Path, machines: tuple[Machine, ...], pythons: tuple[str, ...]) -> None:
    for machine in machines:
        build_bundle(sources, sorted(out.glob("*.whl")), out, machine, pythons)


def _check(arguments: argparse.Namespace) -> None:
    names = arguments.form or list(FORMS)
    print(table([check(name, arguments.out, arguments.machine) for name in names], arguments.shape or "text"))


if __name__ == "__main__":
    sys.exit(main())
