"""Tries another release of edge-rag beside the running one, with a copy of the box's data."""

from __future__ import annotations

import os
import shutil
import signal
import site
import socket
import subprocess
import sysconfig
import tarfile
import time
import venv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import Parser
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from edge_rag.errors import ConfigurationError
from edge_rag.storage.backup import DATABASE, Manifest, unpack
from edge_rag.storage.recovery.restore import restore
from edge_rag.storage.spool.originals import ORIGINALS

if TYPE_CHECKING:
    from edge_rag.client import Client

_STOP_S: Final = 30.0
_LOG_LINES: Final = 20
_MARGIN_BYTES: Final = 256 << 20
_PYTHONS: Final = ("venv/bin/python", ".venv/bin/python", "bin/python")
_QUESTION: Final = "What do these documents describe?"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was tried."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Needs:
    """What the release took.

    Attributes:
        disk_bytes: Its data directory with the copy of the data, after the migration.
        memory_bytes: Resident memory of its daemon after an answer.
    """

    disk_bytes: int
    memory_bytes: int


class ReleaseTrial:
    """A trial in a scratch folder. Nothing of the box's own data is changed.

    Args:
        config: The daemon's settings file; None for none.
        scratch: An empty folder.
        timeout_s: Longest time until the release serves, seconds.
    """

    def __init__(
        self, release: Path, config: Path | None, data_directory: Path, models: Path, scratch: Path, timeout_s: float
    ) -> None:
        self._release = release
        self._config = config
        self._data_directory = data_directory
        self._models = models
        self._scratch = scratch
        self._timeout_s = timeout_s
        self.needs: Needs | None = None

    def run(self, save: Callable[[Path], None]) -> Iterator[Step]:
        """Yields what was tried, one after the other; ends after the first that failed."""
        command = self._install()
        version = self._version(command)
        yield version
        if not version.ok:
            return
        manifest = self._copy(save)
        detail = f"{manifest.documents:,} documents of schema {manifest.schema}, restored from a backup"
        yield Step("data", True, detail)
        with self._daemon(command) as daemon:
            yield from self._try(daemon, manifest)

    def _install(self) -> list[str]:
        if self._release.is_dir():
            for name in _PYTHONS:
                if (self._release / name).exists():
                    return _command(self._release / name)
            raise ConfigurationError(f"{self._release} has none of {', '.join(_PYTHONS)}")
        if tarfile.is_tarfile(self._release):
            return self._install_bundle()
        return self._install_wheel()

    def _install_wheel(self) -> list[str]:
        environment = self._scratch / "release"
        # In an environment of its own all processes are of the release, also beside an editable installation.
        venv.create(environment, symlinks=True, with_pip=False)
        python = environment / "bin" / "python"
        target = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))
        try:
            with zipfile.ZipFile(self._release) as wheel:
                if any(".." in PurePosixPath(name).parts or name.startswith("/") for name in wheel.namelist()):
                    raise ConfigurationError(f"{self._release} is not a wheel: it has paths out of itself")
                _require(shutil.disk_usage(self._scratch).free, sum(each.file_size for each in wheel.infolist()))
                wheel.extractall(target)
        except (OSError, zipfile.BadZipFile) as error:
            raise ConfigurationError(f"{self._release} is not a wheel: {error}") from error
        if missing := _missing_packages(target):
            raise ConfigurationError(f"{self._release} needs {', '.join(missing)}, which this installation lacks")
        packages = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")} | set(site.getsitepackages())
        (target / "packages-of-this-installation.pth").write_text("".join(f"{path}\n" for path in sorted(packages)))
        return _command(python)

    def _install_bundle(self) -> list[str]:
        unpacked = self._scratch / "bundle"
        with tarfile.open(self._release) as bundle:
            _require(shutil.disk_usage(self._scratch).free, 3 * sum(each.size for each in bundle.getmembers()))
            bundle.extractall(unpacked, filter="data")
        installers = list(unpacked.glob("*/install.sh"))
        if len(installers) != 1:
            raise ConfigurationError(f"{self._release} is not an offline bundle of edge-rag: it has no install.sh")
        environment = self._scratch / "release"
        done = subprocess.run(
            [installers[0], "--prefix", environment], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode != 0:
            raise ConfigurationError(f"{self._release} cannot be installed: {done.stderr.strip()}")
        shutil.rmtree(unpacked)
        return _command(environment / "bin" / "python")

    def _version(self, command: list[str]) -> Step:
        try:
            done = subprocess.run(
                [*command, "--version"], capture_output=True, text=True, timeout=self._timeout_s, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Step("install", False, str(error))
        lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        return Step("install", done.returncode == 0, lines[-1] if lines else f"exit code {done.returncode}")

    def _copy(self, save: Callable[[Path], None]) -> Manifest:
        held = [self._data_directory / DATABASE, *(self._data_directory / ORIGINALS).glob("*")]
        _require(shutil.disk_usage(self._scratch).free, 3 * sum(each.stat().st_size for each in held if each.is_file()))
        archive = self._scratch / "backup"
        save(archive)
        manifest = unpack(archive, None)
        restore(archive, self._scratch / "data", replace=False)
        archive.unlink()
        if (models := self._data_directory / "models").is_dir():
            (self._scratch / "data" / "models").symlink_to(models.absolute())
        return manifest

    @contextmanager
    def _daemon(self, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        settings = ["--config", str(self._config.absolute())] if self._config is not None else []
        arguments = ["serve", "--listen", self._address, "--data-dir", str(self._scratch / "data"), *settings]
        # What the running daemon has: addresses, ports, files. And nothing is sent to other machines.
        apart = {
            "LOCAL_LISTEN": f"unix:{self._scratch}/local",
            "HTTP__ENABLED": "false",
            "METRICS__PORT": str(_free_port()),
            "AUDIT__FILE": str(self._scratch / "audit"),
            "DISCOVERY__ANNOUNCE": "false",
            "OFFLOAD__MODE": "never",
        }
        if self._release.suffix == ".whl":  # which comes without models
            apart["MODELS__DIRECTORY"] = str(self._models)
        environment = os.environ | {f"EDGE_RAG_{key}": value for key, value in apart.items()}
        with (self._scratch / "log").open("wb") as log:
            daemon = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for this command, which stops the daemon
            )
        try:
            yield daemon
        finally:
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    @property
    def _address(self) -> str:
        return f"unix:{self._scratch}/socket"

    def _try(self, daemon: subprocess.Popen[bytes], manifest: Manifest) -> Iterator[Step]:
        from edge_rag.client import AnswerMode, AskOptions, Client, ClientError

        with Client(self._address) as client:
            started = time.monotonic()
            try:
                self._wait(daemon, client)
            except (ClientError, ConfigurationError) as error:
                yield Step("start", False, f"{error}\n{self._log()}")
                return
            yield Step("start", True, f"serves after {time.monotonic() - started:.0f} s")
            try:
                report = client.status()
                documents = sum(report.collections.values())
                opened = report.damage is None and documents == manifest.documents
                problem = "" if report.damage is None else f": {report.damage.problem}"
                yield Step("open", opened, f"{documents:,} of {manifest.documents:,} documents{problem}")
                if not opened:
                    return
                started = time.monotonic()
                for _ in client.ask(_QUESTION, AskOptions(mode=AnswerMode.QUOTE)):
                    pass
                yield Step("answer", True, f"a question was answered in {time.monotonic() - started:.1f} s")
                memory = client.status().resident_bytes
            except ClientError as error:
                yield Step("answer", False, f"{error}\n{self._log()}")
                return
        data = (each for each in (self._scratch / "data").rglob("*") if each.is_file() and not each.is_symlink())
        self.needs = Needs(sum(each.stat().st_size for each in data), memory)

    def _wait(self, daemon: subprocess.Popen[bytes], client: Client) -> None:
        from edge_rag.client import DeadlineExceeded

        end = time.monotonic() + self._timeout_s
        while True:
            try:
                client.wait_until_serving(1.0)
                return
            except DeadlineExceeded:
                if daemon.poll() is not None:
                    raise ConfigurationError(f"it ended with exit code {daemon.returncode}") from None
                if time.monotonic() > end:
                    raise

    def _log(self) -> str:
        lines = (self._scratch / "log").read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])


def _command(python: Path) -> list[str]:
    return [str(python.absolute()), "-I", "-m", "edge_rag.cli.main"]


def _require(free: int, needed: int) -> None:
    if free < needed + _MARGIN_BYTES:
        raise ConfigurationError(
            f"the trial needs {(needed + _MARGIN_BYTES) >> 20:,} MiB, and {free >> 20:,} MiB are free; name a folder "
            "on a larger disk with --scratch"
        )


def _missing_packages(target: Path) -> list[str]:
    """Returns the packages that a wheel needs and that are not here, or in another version."""
    from packaging.requirements import InvalidRequirement, Requirement

    found = next(iter(target.glob("edge_rag-*.dist-info/METADATA")), None)
    if found is None:
        raise ConfigurationError("it is not a wheel of edge-rag")
    missing = []
    for line in Parser().parsestr(found.read_text(encoding="utf-8")).get_all("Requires-Dist", []):
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            missing.append(line)
            continue
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            present = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            present = None
        if present is None or not wanted.specifier.contains(present, prereleases=True):
            missing.append(f"{wanted.name}{wanted.specifier}")
    return missing


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
