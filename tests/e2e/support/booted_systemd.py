"""A systemd booted in namespaces of its own, over a throw-away overlay of this machine's files.

Nothing here waits without an end: programs in it run under timeout(1), and it goes by SIGKILL, with its cgroup.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.support.running_daemon import ROOT
from tests.support.systemd_socket import Manager, has

_SYSTEMD = Path("/lib/systemd/systemd")
_PROGRAMS = ("unshare", "nsenter", "systemd-id128", "journalctl")
_NAMESPACES = ("--pid", "--mount", "--uts", "--ipc", "--net")
_BOOT_S = 180
_END_S = 60


@dataclass(frozen=True)
class Booted:
    """The booted system."""

    init: int

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self.init}/root")

    def command(self, *arguments: str, limit_s: int = 300) -> list[str]:
        """What runs a program in it for a limited time; the program goes with whoever is sent SIGTERM."""
        inside = ["nsenter", "-t", str(self.init), "-a", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *arguments]
        return ["timeout", "--kill-after=5", str(limit_s), *inside]

    def run(self, *arguments: str) -> str:
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True)
        assert done.returncode == 0, f"{arguments}: {done.returncode} {done.stdout}{done.stderr}\n{self.journal()}"
        return done.stdout

    def show(self, *properties: str) -> dict[str, str]:
        said = self.run("systemctl", "show", "edge-rag.service", f"--property={','.join(properties)}")
        return dict(line.split("=", 1) for line in said.splitlines())

    def journal(self) -> str:
        command = self.command("journalctl", "--no-pager", "--unit=edge-rag.service", limit_s=60)
        return subprocess.run(command, capture_output=True, text=True).stdout

    def await_lines(self, since: float, *texts: str) -> None:
        """Waits until the service's journal has a line with each text, in this order, from a time on (Unix seconds)."""
        follow = ["journalctl", "--follow", f"--since=@{since:.6f}", "--output=cat", "--unit=edge-rag.service"]
        process = subprocess.Popen(self.command(*follow, limit_s=600), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            for text in texts:
                assert any(text in line for line in process.stdout), f"never said: {text}\n{self.journal()}"
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


@contextmanager
def booting(scratch: Path) -> Iterator[Booted]:
    """Boots; skips the test, with the reason, where that cannot be done."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if os.geteuid() or missing or not _SYSTEMD.exists():
        pytest.skip(f"booting systemd takes root and systemd; not found: {missing or _SYSTEMD}")
    (scratch / "layers").mkdir()
    (scratch / "console").touch()
    with _cgroup(f"edge-rag-booted-{os.getpid()}") as cgroup:
        manager = Manager(scratch / "notify")
        process = _start(scratch, cgroup)
        try:
            # Then closed: systemd goes on to say how far long jobs are, and stands still where a socket is not read.
            with closing(manager):
                _await_boot(manager, process, scratch / "log")
            init = _child(process)
            assert init is not None
            yield Booted(init)
        finally:
            _end(process)


def _start(scratch: Path, cgroup: Path) -> subprocess.Popen[bytes]:
    sites = [path for path in map(Path, sys.path) if path.name == "site-packages" and path.is_dir()]
    boot = [str(path) for path in (ROOT / "tests/e2e/boot-systemd", scratch, ROOT, sys.base_prefix, *sites)]
    joined = ["sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec unshare --cgroup -- "$@"', str(cgroup), *boot]
    command = ["unshare", *_NAMESPACES, "--fork", "--kill-child", "--", *joined]
    with (scratch / "log").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _child(process: subprocess.Popen[bytes]) -> int | None:
    if process.poll() is not None:
        return None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the system: with its init all its processes go, and unshare ends once they are gone."""
    init = _child(process)
    if init is None:
        process.kill()
    else:
        os.kill(init, signal.SIGKILL)
    process.wait(_END_S)


def _await_boot(manager: Manager, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _BOOT_S
    while time.monotonic() < end:
        try:
            manager.until(has("READY"), timeout_s=1)
        except TimeoutError:
            if process.poll() is not None:
                assert "mounted" not in log.read_text(), log.read_text()
                pytest.skip(f"systemd cannot be booted here: {log.read_text().strip()[-500:]}")
        else:
            return
    raise AssertionError(f"systemd has not booted: {log.read_text()}")


@contextmanager
def _cgroup(name: str) -> Iterator[Path]:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    unified = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    if unified is None:
        pytest.skip("booting systemd takes a mounted cgroup2")
    cgroup = unified / name
    try:
        cgroup.mkdir()
    except OSError as error:
        pytest.skip(f"booting systemd takes a cgroup: {error}")
    try:
        yield cgroup
    finally:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            Path(folder).rmdir()
