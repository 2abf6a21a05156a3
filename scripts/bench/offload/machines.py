"""Machines out of one: each with a network, a processor and a share of it of its own, and a wire between them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BOARD, LENDER = "10.231.77.1", "10.231.77.2"

_GROUPS: Final = Path("/sys/fs/cgroup")
_PERIOD_US: Final = 20_000
_WEIGHT: Final = 8192


@dataclass(frozen=True, slots=True)
class Pair:
    """Two machines.

    Attributes:
        board: Command prefix that runs something on the first one.
        lender: The same on the second.
        address: Where the first one reaches the second.
        described: What they are, for people.
    """

    board: tuple[str, ...]
    lender: tuple[str, ...]
    address: str
    described: str


@contextmanager
def pair(share: float, delay_ms: float, loss_percent: float, rate_mbit: float) -> Iterator[Pair]:
    """Makes two machines: a slow one with a share of processor 0, and one with all of processor 1.

    Args:
        share: The slow one's share of its processor, above 0, at most 1.
        delay_ms: Delay between them, there and back, milliseconds.
        loss_percent: Packets lost, each way.
        rate_mbit: Most bits a second, each way, millions.
    """
    name = f"edge-rag-{os.getpid()}"
    with _cgroup(f"{name}-board", share) as slow, _network(name, delay_ms, loss_percent, rate_mbit) as (nets, network):
        processors = f"processor 0, {100 * share:g}% of it" if slow else "processor 0, all of it (no cgroup to be had)"
        yield Pair(
            (*slow, *nets[0], *pinned(0)),  # in this order: `ip netns exec` mounts another /sys
            (*nets[1], *pinned(1)),
            LENDER if nets[1] else "127.0.0.1",
            f"board on {processors}; lender on processor 1; {network}",
        )


def pinned(processor: int) -> tuple[str, ...]:
    """Returns a command prefix that keeps to a processor, where there are two."""
    return ("taskset", "-c", str(processor)) if (os.cpu_count() or 1) > 1 else ()


@contextmanager
def _cgroup(name: str, share: float) -> Iterator[tuple[str, ...]]:
    """Makes a cgroup that gets a share of a processor and no more; gives a prefix, empty where none can be made."""
    unified = (_GROUPS / "cgroup.subtree_control").exists()
    folder = (_GROUPS if unified else _GROUPS / "cpu") / name
    quota = round(share * _PERIOD_US)
    try:
        if unified and "cpu" not in (_GROUPS / "cgroup.subtree_control").read_text().split():
            (_GROUPS / "cgroup.subtree_control").write_text("+cpu")
        folder.mkdir()
        if unified:
            (folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            (folder / "cpu.weight").write_text(str(_WEIGHT))
        else:
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))
            (folder / "cpu.shares").write_text(str(_WEIGHT))
    except OSError:
        with suppress(OSError):
            folder.rmdir()
        yield ()
        return
    try:
        yield "sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"
    finally:
        folder.rmdir()


@contextmanager
def _network(
    name: str, delay_ms: float, loss_percent: float, rate_mbit: float
) -> Iterator[tuple[tuple[tuple[str, ...], tuple[str, ...]], str]]:
    """Makes a network namespace for each and a wire between; gives their prefixes and what it is."""
    if os.geteuid() != 0 or not shutil.which("ip") or not Path("/dev/net/tun").exists():
        yield ((), ()), "loopback, without delay, loss or a bound (namespaces need root, ip and TUN devices)"
        return
    names = f"{name}-board", f"{name}-lender"
    command = [*pinned(0), sys.executable, "-m", "scripts.bench.offload.wire", *names]
    command += ["--delay-ms", str(delay_ms), "--loss-percent", str(loss_percent), "--rate-mbit", str(rate_mbit)]
    wire: subprocess.Popen[str] | None = None
    try:
        for each in names:
            run("ip", "netns", "add", each)
            run("ip", "-n", each, "link", "set", "lo", "up")
        wire = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert wire.stdin is not None
        assert wire.stdout is not None
        if not wire.stdout.readline():
            raise SystemExit("the wire between the namespaces could not be laid")
        for each, mine, other in zip(names, (BOARD, LENDER), (LENDER, BOARD), strict=True):
            run("ip", "-n", each, "address", "add", mine, "peer", other, "dev", "wire0")
            run("ip", "-n", each, "link", "set", "wire0", "up")
        wire.stdin.write("both are up\n")
        wire.stdin.flush()
        prefixes = ("ip", "netns", "exec", names[0]), ("ip", "netns", "exec", names[1])
        described = f"{delay_ms:g} ms there and back, {loss_percent:g}% lost and {rate_mbit:g} Mbit/s each way"
        yield prefixes, f"two network namespaces, {described}"
    finally:
        if wire is not None:
            wire.kill()
            wire.communicate()
        for each in names:
            subprocess.run(("ip", "netns", "delete", each), check=False, stderr=subprocess.DEVNULL)


def run(*command: str) -> str:
    """Runs a command and returns what it prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
