"""The forms of a release, each installed on a clean system and asked a question."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from scripts.packaging.building import ROOT, Machine, ReleaseError, say
from scripts.packaging.clean_root import CleanRoot, clean_root
from scripts.packaging.debian import ARCHITECTURES, PACKAGES_BEFORE

_QUESTION: Final = "How often must the pump bearings be greased?"

# The answer of the sample documents, and the document it quotes.
_EXPECTED: Final = ("2,000 operating hours", "[1] lubrication-schedule.md")

_FIRST_ANSWER: Final = """
edge-rag serve --listen 127.0.0.1:7421 --data-dir /root/data >/root/log 2>&1 &
edge-rag status --wait 300 >/dev/null && edge-rag ingest /mnt/samples >/dev/null && edge-rag ask "$1" || {
    tail -n 20 /root/log >&2
    exit 1
}
"""


@dataclass(frozen=True)
class Trial:
    """How a form installed."""

    form: str
    machine: str
    network: bool
    """Whether the system had a network."""
    file_bytes: int
    """Of the files of the release that a box needs; what it downloads besides is not in it."""
    installed_bytes: int
    install_seconds: float
    answer_seconds: float
    """From the start of the daemon until the first cited answer: models opened, sample documents added."""


@dataclass(frozen=True)
class Installed:
    """Where a form lies on the system."""

    files: Sequence[Path]
    programs: str
    """The folder of the command, on the system."""
    takes: str
    """The folder of everything that was installed."""


def _wheel(root: CleanRoot, out: Path, machine: Machine) -> Installed:
    wheels = [_one(out, f"edge_rag-*{machine}.whl"), _one(out, "edge_rag_models-*.whl")]
    root.checked("python3", "-m", "venv", "/opt/venv")
    given = [f"/mnt/{out.name}/{wheels[0].name}[http]", f"/mnt/{out.name}/{wheels[1].name}"]
    pip = ["/opt/venv/bin/python", "-m", "pip", "install", "--quiet", "--constraint", "/mnt/constraints.txt"]
    root.checked(*pip, *given, network=True, shared=[out, ROOT / "constraints.txt"], timeout_s=1800)
    return Installed(wheels, "/opt/venv/bin", "/opt/venv")


def _bundle(root: CleanRoot, out: Path, machine: Machine) -> Installed:
    bundle = _one(out, f"edge-rag-*-{machine}.tar")
    root.checked("tar", "-xf", f"/mnt/{out.name}/{bundle.name}", "-C", "/root", shared=[out])
    root.checked(f"/root/{bundle.stem}/install.sh", "--prefix", "/opt/venv", timeout_s=1800)
    return Installed([bundle], "/opt/venv/bin", "/opt/venv")


def _deb(root: CleanRoot, out: Path, machine: Machine) -> Installed:
    package = _one(out, f"edge-rag_*_{ARCHITECTURES[machine]}.deb")
    root.checked("apt-get", "-qq", "install", "--yes", f"/mnt/{out.name}/{package.name}", shared=[out], timeout_s=1800)
    return Installed([package], "/usr/bin", "/usr/lib/edge-rag")


FORMS: Final[dict[str, tuple[tuple[str, ...], bool, Callable[[CleanRoot, Path, Machine], Installed]]]] = {
    "wheel": (("python3-venv",), True, _wheel),
    "bundle": (("python3",), False, _bundle),
    "deb": (PACKAGES_BEFORE, False, _deb),
}
"""Packages of Debian that the system has before, whether it has a network while it installs, and how it installs."""


def check(form: str, out: Path, machine: Machine) -> Trial:
    """Installs a form on a clean system and asks; the question is asked without a network in any form."""
    packages, network, install = FORMS[form]
    with clean_root(machine=machine, packages=packages) as root:
        if (compilers := root.run("sh", "-c", "command -v cc c++ gcc g++ clang")).stdout:
            raise ReleaseError(f"the clean system has a compiler: {compilers.stdout}")
        say(f"Installing the {form} ...")
        began = time.monotonic()
        installed = install(root, out.resolve(), machine)
        install_seconds = time.monotonic() - began
        size = int(root.checked("du", "-sb", installed.takes).split()[0])
        say("Starting it, adding the sample documents, asking ...")
        began = time.monotonic()
        program = f"PATH={installed.programs}:$PATH\n{_FIRST_ANSWER}"
        answer = root.checked("sh", "-c", program, "sh", _QUESTION, shared=[ROOT / "deploy" / "samples"])
        answer_seconds = time.monotonic() - began
    if missing := [part for part in _EXPECTED if part not in answer]:
        raise ReleaseError(f"the {form} answered without {missing}:\n{answer}")
    files = sum(path.stat().st_size for path in installed.files)
    return Trial(form, machine, network, files, size, install_seconds, answer_seconds)


def table(trials: Sequence[Trial], shape: str) -> str:
    """Returns the trials as ``text``, ``markdown`` or ``json``."""
    if shape == "json":
        return json.dumps([asdict(trial) for trial in trials], indent=2)
    rows: list[tuple[str, ...]] = [
        ("form", "machine", "network", "files MB", "installed MB", "install s", "first answer s")
    ]
    for trial in trials:
        sizes = (f"{size / 1e6:.0f}" for size in (trial.file_bytes, trial.installed_bytes))
        seconds = (f"{value:.0f}" for value in (trial.install_seconds, trial.answer_seconds))
        rows.append((trial.form, trial.machine, "yes" if trial.network else "no", *sizes, *seconds))
    if shape == "markdown":
        rows.insert(1, ("---",) * len(rows[0]))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _one(out: Path, pattern: str) -> Path:
    found = sorted(out.glob(pattern))
    if len(found) != 1:
        raise ReleaseError(f"{out} has {len(found)} files {pattern}; run scripts/release build")
    return found[0]
