"""Clean Debian systems to try a release on: no compiler, no pip, and no network unless asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from scripts.packaging.building import BUILD, Machine, ReleaseError, run, say

_MIRRORS: Final = {"bookworm": "http://deb.debian.org/debian", "trixie": "http://deb.debian.org/debian"}

_DEBIAN: Final = {Machine.X86_64: "amd64", Machine.AARCH64: "arm64"}


class CleanRoot:
    """The files of a system, in which commands run as root of namespaces of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self, *command: str, network: bool = False, shared: Sequence[Path] = (), timeout_s: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on the system; its processes end with it."""
        binds = [part for folder in shared for part in ("--ro-bind", str(folder), f"/mnt/{folder.name}")]
        if network:
            binds += ["--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf"]
            binds += ["--ro-bind", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-certificates.crt"]
        else:
            binds += ["--unshare-net"]
        system = ["bwrap", "--bind", str(self.folder), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        system += [
            "--tmpfs",
            "/mnt",
            "--unshare-pid",
            "--unshare-ipc",
            "--die-with-parent",
            "--clearenv",
            "--chdir",
            "/",
        ]
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        if network:
            proxies = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL", "PIP_CERT")
            environment |= {name: os.environ[name] for name in proxies if name in os.environ}
        given = [part for name, value in environment.items() for part in ("--setenv", name, value)]
        return subprocess.run(
            [*system, *binds, *given, "--", *command], capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def checked(self, *command: str, network: bool = False, shared: Sequence[Path] = (), timeout_s: float = 600) -> str:
        done = self.run(*command, network=network, shared=shared, timeout_s=timeout_s)
        if done.returncode:
            told = (done.stdout + done.stderr).strip().splitlines()[-25:]
            raise ReleaseError("\n".join([f"on the clean system, {' '.join(command)} failed:", *told]))
        return done.stdout


def missing_tools() -> list[str]:
    programs = {"debootstrap": "debootstrap", "bwrap": "bubblewrap", "ip": "iproute2"}
    return [package for program, package in programs.items() if shutil.which(program) is None]


@contextmanager
def clean_root(
    suite: str = "bookworm", machine: Machine = Machine.X86_64, packages: Sequence[str] = ("python3",)
) -> Iterator[CleanRoot]:
    """Makes a fresh copy of a minimal Debian with some packages; it is deleted at the end.

    The first use of a combination downloads Debian's packages; later ones copy it from ``build/roots``.
    """
    if missing := missing_tools():
        raise ReleaseError(f"a clean system needs: apt-get install {' '.join(missing)}")
    if os.getuid() != 0:
        raise ReleaseError("a clean system needs root")
    kept = BUILD / "roots" / "-".join([suite, machine, *sorted(packages)])
    if not kept.is_dir():
        say(f"Downloading a minimal {suite} for {machine} ...")
        making = kept.with_name(kept.name + ".making")
        shutil.rmtree(making, ignore_errors=True)
        making.parent.mkdir(parents=True, exist_ok=True)
        include = ["--include=" + ",".join([*packages, "ca-certificates"])]
        run("debootstrap", "--variant=minbase", f"--arch={_DEBIAN[machine]}", *include, suite, making, _MIRRORS[suite])
        shutil.rmtree(making / "var" / "cache" / "apt")
        making.rename(kept)
    with tempfile.TemporaryDirectory(prefix="edge-rag-root-", dir=kept.parent) as name:
        run("cp", "--archive", "--reflink=auto", f"{kept}/.", name)
        yield CleanRoot(Path(name))
