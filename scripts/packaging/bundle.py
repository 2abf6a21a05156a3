"""The offline bundle: one file with everything that a box without a network installs from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from scripts.packaging.building import PIP, Machine, ReleaseError, Sources, run, say, sums, tools
from scripts.packaging.sbom import bill_of_materials

PYTHONS: Final = ("3.11", "3.12")
"""Versions of Python that a bundle has wheels for: Debian 12's and Ubuntu 24.04's."""

# What a wheel may ask of glibc: Debian 12 has 2.36.
_GLIBC: Final = range(36, 16, -1)

_COPIED: Final = ("README.md", "LICENSE", "constraints.txt", "systemd", "deploy/edge-rag.toml", "deploy/samples")

_PROGRAMS: Final = {"deploy/bundle/install.sh": "install.sh", "scripts/install-service": "scripts/install-service"}


def build_bundle(sources: Sources, wheels: list[Path], out: Path, machine: Machine, pythons: tuple[str, ...]) -> Path:
    """Downloads what the wheels require, and packs all of it with the installer.

    Returns:
        The bundle, a tar file without compression: wheels are compressed already.
    """
    folder = sources.folder / "build" / f"edge-rag-{sources.version}-{machine}"
    (folder / "wheels").mkdir(parents=True)
    for wheel in wheels:
        if wheel.name.startswith("edge_rag_models") or wheel.stem.endswith(machine):
            shutil.copy(wheel, folder / "wheels")
    for version in pythons:
        say(f"Downloading the wheels for {machine} and Python {version} ...")
        _download(sources, folder / "wheels", machine, version)
    if sdists := [path.name for path in (folder / "wheels").iterdir() if path.suffix != ".whl"]:
        raise ReleaseError(f"not wheels: {', '.join(sdists)}")
    for name in _COPIED:
        copy = shutil.copytree if (sources.folder / name).is_dir() else shutil.copy
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy(sources.folder / name, folder / name)
    (folder / "scripts").mkdir()
    for name, place in _PROGRAMS.items():
        shutil.copy(sources.folder / name, folder / place)
    for name, text in {"version": sources.version, "machine": str(machine), "pythons": "\n".join(pythons)}.items():
        (folder / name).write_text(text + "\n")
    bill = bill_of_materials(sources, sorted((folder / "wheels").iterdir()))
    (folder / "sbom.cdx.json").write_text(bill)
    (out / f"{folder.name}.cdx.json").write_text(bill)
    (folder / "SHA256SUMS").write_text(sums([path for path in folder.rglob("*") if path.is_file()], folder))
    bundle = out / f"{folder.name}.tar"
    # Nothing of who packed it, and where and when, gets into the archive.
    same = [f"--mtime=@{sources.epoch}", "--owner=0", "--group=0", "--numeric-owner", "--mode=u+rw,go+r-w"]
    run("tar", "--create", "--format=gnu", "--sort=name", *same, "--file", bundle, "-C", folder.parent, folder.name)
    return bundle


def _download(sources: Sources, wheels: Path, machine: Machine, version: str) -> None:
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in _GLIBC]
    platforms += [f"--platform=manylinux2014_{machine}", f"--platform=linux_{machine}"]
    (daemon,) = wheels.glob("edge_rag-*.whl")
    pip: list[str | Path] = [tools() / "python", "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    wanted = ["--implementation=cp", f"--python-version={version}", *platforms]
    places = [f"--constraint={sources.folder / 'constraints.txt'}", f"--find-links={wheels}", f"--dest={wheels}"]
    run(*pip, *wanted, *places, f"{daemon}[http,genai]", PIP)
