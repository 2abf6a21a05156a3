"""Manuals out of Debian's documentation packages: installed ones, or those that the archive has."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LIST: Final = "manuals.json"


class NoManuals(Exception):
    """The manuals cannot be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Manual:
    """A file of a package."""

    path: Path
    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Package:
    """A documentation package of Debian and the files that are read of it."""

    name: str
    version: str
    files: tuple[Manual, ...]


def read_packages(folder: Path) -> tuple[Package, ...]:
    """Reads the list of packages of a set of questions."""
    return tuple(
        Package(
            each["package"],
            each["version"],
            tuple(Manual(Path(one["path"]), one["name"], one["sha256"]) for one in each["files"]),
        )
        for each in json.loads((folder / _LIST).read_text(encoding="utf-8"))["packages"]
    )


def put_manuals(packages: tuple[Package, ...], folder: Path) -> None:
    """Has the manuals lie in a folder, by their names as documents; those that lie there already are kept."""
    for package in packages:
        missing = [each for each in package.files if not _is(folder / each.name, each)]
        if not missing or all(_take(each, Path("/"), folder) for each in missing):
            continue
        with tempfile.TemporaryDirectory() as unpacked:
            _unpack(package, Path(unpacked))
            other = [each.name for each in missing if not _take(each, Path(unpacked), folder)]
        if other:
            raise NoManuals(f"{package.name} {package.version} does not have the expected {', '.join(other)}")


def _take(manual: Manual, root: Path, folder: Path) -> bool:
    source = root / manual.path.relative_to("/")
    if not source.is_file():
        return False
    content = source.read_bytes()
    if source.suffix == ".gz":
        content = gzip.decompress(content)
    if hashlib.sha256(content).hexdigest() != manual.sha256:
        return False
    target = folder / manual.name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return True


def _is(file: Path, manual: Manual) -> bool:
    return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == manual.sha256


def _unpack(package: Package, target: Path) -> None:
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if missing:
        raise NoManuals(f"{package.name} is not installed, and there is no {missing[0]} to fetch it with")
    wanted = f"{package.name}={package.version}"
    with tempfile.TemporaryDirectory() as folder:
        # apt-get as root reads as another user, who may not write here; it then warns and downloads all the same.
        command = ["apt-get", "--quiet", "download", wanted]
        fetched = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        archives = list(Path(folder).glob("*.deb"))
        if fetched.returncode or not archives:
            raise NoManuals(f"apt-get download {wanted}: {(fetched.stderr.strip() or 'nothing came').splitlines()[-1]}")
        subprocess.run(["dpkg-deb", "--extract", str(archives[0]), str(target)], check=True)
