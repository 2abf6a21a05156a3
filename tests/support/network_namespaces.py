"""Machines on a network of their own: network namespaces joined by a bridge, for tests that run as root."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest

_CLONE_NEWNET = 0x40000000
T = TypeVar("T")


class NoNamespaces(Exception):
    """They cannot be made here; the message says why."""


def ip(*arguments: str) -> None:
    """Runs ip(8)."""
    program = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
    if program is None:
        raise NoNamespaces("ip(8) is not installed")
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise NoNamespaces(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Machine:
    """A network namespace with one interface, ``net0``."""

    def __init__(self, name: str, address: str, bridge: str, port: str) -> None:
        self.name = name
        self.address = address
        self._bridge = bridge
        self._port = port

    def plug(self, *, in_: bool) -> None:
        """Plugs its cable in, or pulls it out; its interface stays up and has its addresses."""
        ip("-n", self._bridge, "link", "set", self._port, "up" if in_ else "down")

    def run(self, work: Callable[[], T]) -> Future[T]:
        """Does work on a thread inside the namespace; threads and processes begun by that thread are in it too."""
        threads = ThreadPoolExecutor(1, initializer=self.enter)
        future = threads.submit(work)
        threads.shutdown(wait=False)
        return future

    def enter(self) -> None:
        file = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(file, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(file)

    def ip(self, *arguments: str) -> None:
        ip("-n", self.name, *arguments)


class Network:
    """Machines behind one bridge; a context manager, which raises ``NoNamespaces`` where they cannot be made."""

    def __init__(self, size: int) -> None:
        self._id = uuid.uuid4().hex[:6]
        self._bridge = f"er-{self._id}"
        self.machines = [
            Machine(f"{self._bridge}-{n}", f"10.77.0.{n + 1}", self._bridge, f"port{n}") for n in range(size)
        ]

    def __enter__(self) -> Network:
        try:
            ip("netns", "add", self._bridge)
            ip("-n", self._bridge, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
            ip("-n", self._bridge, "link", "set", "br0", "up")
            for number, machine in enumerate(self.machines):
                ip("netns", "add", machine.name)
                ip(
                    "-n",
                    self._bridge,
                    "link",
                    "add",
                    f"port{number}",
                    "type",
                    "veth",
                    "peer",
                    "net0",
                    "netns",
                    machine.name,
                )
                ip("-n", self._bridge, "link", "set", f"port{number}", "master", "br0", "up")
                machine.ip("addr", "add", f"{machine.address}/24", "dev", "net0")
                machine.ip("link", "set", "lo", "up")
                # No address that comes by itself, a moment later.
                machine.ip("link", "set", "net0", "addrgenmode", "none", "up")
        except NoNamespaces:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in (*(machine.name for machine in self.machines), self._bridge):
            try:
                ip("netns", "del", name)
            except NoNamespaces:
                continue  # it was never made


@contextmanager
def machines_of_a_network(size: int) -> Iterator[list[Machine]]:
    """Skips the test where none can be made."""
    network = Network(size)
    try:
        network.__enter__()
    except NoNamespaces as reason:
        pytest.skip(f"network namespaces cannot be made here: {reason}")
    try:
        yield network.machines
    finally:
        network.__exit__()
