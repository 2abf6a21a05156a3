"""Plays README.md and the guides as a new user: every command as written, in two network namespaces.

    python -m scripts.play_docs [--page README.md ...] [--installed] [--keep-going]

One namespace is the box, the other another machine on its network. The commands come from the `sh` blocks of the pages,
in order. Each has to end as scripts/play_docs/table.toml says, and to print the block `text` that follows it; the first
that does not ends the play with exit code 1. A command without an entry there is one, too. The checkout is copied, and
`scripts/quickstart` installs it there from wheels that are downloaded first, because the namespaces reach nothing else.
Needs root, ip(8), unshare(1), curl and jq.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.play_docs.blocks import commands
from scripts.play_docs.player import ROOT, Host, Player, WrongPage
from scripts.play_docs.table import read
from tests.support.network_namespaces import Network, NoNamespaces


def copied(into: Path) -> Path:
    """Copies the checkout with what is not committed yet, but without what Git ignores."""
    checkout = into / "edge-rag"
    checkout.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, checkout / name)
    return checkout


def use_this_environment(checkout: Path) -> None:
    """Makes `scripts/quickstart` take the environment that this runs in for the one that it has installed."""
    state = checkout / ".edge-rag"
    state.mkdir()
    (state / "venv").symlink_to(sys.prefix)
    hashing = 'root=$PWD; eval "$(sed -n "/^sources_hash()/,/^}/p" scripts/quickstart)"; sources_hash'
    with (state / "installed").open("w") as file:
        subprocess.run(["bash", "-c", hashing], cwd=checkout, stdout=file, check=True)


def wheels(into: Path) -> dict[str, str]:
    """Downloads all that an installation takes; returns the variables that make pip take it from there."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", str(into)]
    subprocess.run([*command, "-c", "constraints.txt", f"{ROOT}[http]"], cwd=ROOT, check=True)
    subprocess.run([*command, *needed, "cmake", "ninja", "setuptools", "wheel"], check=True)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(into)}


@contextmanager
def players(*, installed: bool, keep_going: bool = False) -> Iterator[Player]:
    """Makes the two machines and what their users begin with."""
    with Network(2) as network, tempfile.TemporaryDirectory(prefix="edge-rag-docs-") as name:
        folder = Path(name)
        checkout = copied(folder)
        variables: dict[str, str] = {}
        if installed:
            use_this_environment(checkout)
        else:
            variables = wheels(folder / "wheels")
        programs = (checkout / ".edge-rag" / "venv" / "bin",)
        box, other = (
            Host(machine, checkout, folder / role, programs, variables)
            for machine, role in zip(network.machines, ("box", "other"), strict=True)
        )
        box.reset()
        player = Player(box, other, lambda line: print(line, flush=True), keep_going=keep_going)
        try:
            yield player
        finally:
            box.run("scripts/quickstart --stop")


def main() -> None:
    table = read()
    parser = argparse.ArgumentParser(
        prog="python -m scripts.play_docs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", action="append", choices=list(table), help="play only this page; may be repeated")
    parser.add_argument(
        "--installed", action="store_true", help="do not install: take the environment that this runs in"
    )
    parser.add_argument("--keep-going", action="store_true", help="tell every command that fails, not only the first")
    chosen = parser.parse_args()
    # What starts in the background of a shell ignores Ctrl-C, and so would the commands, where it is pressed.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with players(installed=chosen.installed, keep_going=chosen.keep_going) as player:
            for path in chosen.page or table:
                player.play(table[path], commands((ROOT / path).read_text(encoding="utf-8")))
    except (WrongPage, NoNamespaces) as problem:
        raise SystemExit(str(problem)) from None
    if player.problems:
        raise SystemExit(f"{player.problems} commands do not do what their page says")


if __name__ == "__main__":
    main()
