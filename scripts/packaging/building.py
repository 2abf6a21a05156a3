"""Builds wheels from the last commit, the same bytes every time."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

BUILD: Final = ROOT / "build"

PIP: Final = "pip==26.0"

# The builders of wheels, pinned: other versions may write other bytes.
_TOOLS: Final = (
    "auditwheel==6.8.2",
    "cmake==4.4.4",
    "hatchling==1.33.0",
    "ninja==1.13.2",
    PIP,
    "scikit_build_core==1.1.2",
    "wheel==0.48.0",
)


class Machine(StrEnum):
    """A processor architecture, as the kernel and wheel tags name it."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"

    @property
    def compiler(self) -> str:
        return "g++" if self == os.uname().machine else f"{self}-linux-gnu-g++"


class ReleaseError(Exception):
    """Something of a release cannot be built or checked; the text says what and what to do."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(*command: str | Path, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """Runs a command and returns its standard output."""
    try:
        done = subprocess.run(
            command, cwd=cwd, env=os.environ | (environment or {}), capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise ReleaseError(f"{command[0]} is not installed") from error
    if done.returncode:
        told = (done.stdout + done.stderr).strip().splitlines()[-25:]
        raise ReleaseError("\n".join([f"{' '.join(map(str, command))} failed:", *told]))
    return done.stdout


@dataclass(frozen=True)
class Sources:
    """The files of one commit, without anything else that lies in the checkout."""

    folder: Path
    commit: str
    epoch: int
    """Seconds since 1970 of the commit: the time of every file in a release."""

    @property
    def version(self) -> str:
        for line in (self.folder / "edge_rag" / "__init__.py").read_text().splitlines():
            if line.startswith("__version__"):
                return line.split('"')[1]
        raise ReleaseError("edge_rag/__init__.py names no version")


@contextmanager
def committed_sources() -> Iterator[Sources]:
    """Extracts the last commit into a new temporary folder: a path of the build that got into a file would show."""
    commit = run("git", "rev-parse", "HEAD", cwd=ROOT).strip()
    if run("git", "status", "--porcelain", cwd=ROOT):
        say("The checkout has changes that are not committed; they are not part of the release.")
    with tempfile.TemporaryDirectory(prefix="edge-rag-release-") as name:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "--extract", "--directory", name], input=archive, check=True)
        yield Sources(Path(name), commit, int(run("git", "show", "--no-patch", "--format=%ct", commit, cwd=ROOT)))


def tools() -> Path:
    """Returns the folder of the pinned builders' programs; installs them if they are missing."""
    folder = BUILD / "release-tools"
    stamp = folder / "installed"
    if not stamp.is_file() or stamp.read_text() != "\n".join(_TOOLS):
        say("Installing the builders of wheels ...")
        run(sys.executable, "-m", "venv", "--clear", folder)
        run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *_TOOLS)
        stamp.write_text("\n".join(_TOOLS))
    return folder / "bin"


def build_wheels(sources: Sources, out: Path, machines: tuple[Machine, ...]) -> list[Path]:
    """Builds the daemon's wheel for each machine, the client's, and the models'.

    Returns:
        The wheels, the daemon's first.
    """
    wheels = [_daemon(sources, out, machine) for machine in machines]
    for name in ("client", "models"):
        say(f"Building the wheel of the {name} ...")
        wheels.append(_wheel(sources, out, sources.folder / "deploy" / name, {}, []))
    return wheels


def check_content(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    foreign = [name for name in names if name.endswith((".cpp", ".h")) or name.startswith(("tests/", "scripts/"))]
    if foreign:
        raise ReleaseError(f"{wheel.name} has what no box needs: {', '.join(foreign)}")


def sums(files: Iterable[Path], folder: Path) -> str:
    """Returns the SHA-256 of files below a folder, as ``sha256sum`` writes it."""
    named = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return "".join(f"{value}  {name}\n" for name, value in sorted(named.items()))


def _daemon(sources: Sources, out: Path, machine: Machine) -> Path:
    say(f"Building the daemon's wheel for {machine}; compiling takes minutes ...")
    defines = {
        "CMAKE_CXX_COMPILER": machine.compiler,
        "CMAKE_CXX_FLAGS": f"-ffile-prefix-map={sources.folder}=.",
        "EDGE_RAG_MODELS": "OFF",
    }
    environment = {}
    if machine != os.uname().machine:
        defines |= {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": machine}
        environment["_PYTHON_HOST_PLATFORM"] = f"linux-{machine}"
    settings = ["build-dir=" + str(sources.folder / "build" / machine)]
    settings += [f"cmake.define.{name}={value}" for name, value in defines.items()]
    wheel = _wheel(sources, out, sources.folder, environment, settings)
    # The tag follows from the symbols that the library takes from the system, not from a wish.
    audit = json.loads(run(tools() / "auditwheel", "show", "--json", wheel, environment=_path()))
    tag = audit["overall_tag"]
    if not tag.startswith("manylinux_"):
        raise ReleaseError(f"{wheel.name} needs more of the system than any manylinux tag promises: {tag}")
    retagged = run(tools() / "wheel", "tags", "--remove", "--platform-tag", tag, wheel, environment=_epoch(sources))
    return out / retagged.split()[-1]


def _wheel(sources: Sources, out: Path, project: Path, environment: dict[str, str], settings: list[str]) -> Path:
    before = set(out.iterdir())
    pip: list[str | Path] = [tools() / "python", "-m", "pip", "wheel", "--quiet"]
    pip += ["--no-deps", "--no-build-isolation", "--no-index"]
    given = [f"--config-settings={setting}" for setting in settings]
    run(*pip, *given, "--wheel-dir", out, project, environment=_path() | _epoch(sources) | environment)
    (wheel,) = set(out.iterdir()) - before
    check_content(wheel)
    return wheel


def _epoch(sources: Sources) -> dict[str, str]:
    return {"SOURCE_DATE_EPOCH": str(sources.epoch)}


def _path() -> dict[str, str]:
    return {"PATH": f"{tools()}:{os.environ['PATH']}"}
