"""The TCP sockets of this process that belong to its server.

gRPC's Python API gives no access to them, so they are found among the open files. Each is accessed through a duplicate,
which stays the same socket even if gRPC closes its own meanwhile and the number is reused.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from edge_rag.core.address import Connection

_OPEN_FILES: Final = "/dev/fd"

_MAPPED: Final = "::ffff:"
"""Prefix of an IPv4 address on a dual-stack socket; gRPC omits it."""

_NO_LINGER: Final = struct.pack("ii", 1, 0)
"""Closing resets the connection, so that the kernel keeps nothing of it; see ``SO_LINGER`` in socket(7)."""


def count_open_files() -> int:
    return len(_open_files())


class OpenSockets:
    """Finds connections and listening sockets. Any thread.

    A look at connections that were there before costs one system call each.
    """

    def __init__(self) -> None:
        self._ports: dict[int, str] = {}
        self._seen: dict[int, tuple[int, Connection | None]] = {}  # number to inode; None for all other files
        self._listening: list[tuple[int, int]] = []  # number and inode

    def add_ports(self, ports: Mapping[int, str]) -> None:
        self._ports, self._seen, self._listening = self._ports | dict(ports), {}, []

    def connections(self) -> list[Connection]:
        """Returns all connections, those accepted first mostly first.

        Each processor numbers the inodes of new sockets from a range of its own.
        """
        found = self._find()
        return sorted(found, key=found.__getitem__)

    def shut(self, connections: Collection[Connection]) -> None:
        """Closes these connections."""
        wanted = frozenset(connections)
        for connection, (_, number) in self._find().items() if wanted else ():
            if connection not in wanted:
                continue
            with _duplicate(number) as found:
                if found is not None and self._connection(found) == connection:
                    with suppress(OSError):
                        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                        found.shutdown(socket.SHUT_RDWR)

    def listening(self) -> Iterator[socket.socket]:
        """Yields the server's listening sockets; each is valid until the next one."""
        if not self._listening:
            self._listening = [(number, _inode(number)) for number in _open_files() if self._is_listening(number)]
        for number, inode in self._listening:
            with _duplicate(number) as found:
                if found is not None and _inode(found.fileno()) == inode:
                    yield found

    def _is_listening(self, number: int) -> bool:
        with _duplicate(number) as found:
            return (
                found is not None
                and bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
                and found.getsockname()[1] in self._ports
            )

    def _find(self) -> dict[Connection, tuple[int, int]]:
        """Returns the inodes and the numbers of the connections' files."""
        seen: dict[int, tuple[int, Connection | None]] = {}
        found: dict[Connection, tuple[int, int]] = {}
        for number in _open_files():
            try:
                status = os.fstat(number)
            except OSError:
                continue
            known = self._seen.get(number)
            if known is None or known[0] != status.st_ino:
                known = status.st_ino, self._connection_of_file(number) if stat.S_ISSOCK(status.st_mode) else None
            seen[number] = known
            if known[1] is not None:
                found[known[1]] = status.st_ino, number
        self._seen = seen
        return found

    def _connection_of_file(self, number: int) -> Connection | None:
        with _duplicate(number) as found:
            return None if found is None else self._connection(found)

    def _connection(self, found: socket.socket) -> Connection | None:
        try:
            server = self._ports.get(found.getsockname()[1])
            if server is None:
                return None
            host, port = found.getpeername()[:2]
        except OSError:  # listening, or closed by its peer
            return None
        return Connection(host.removeprefix(_MAPPED), port, server)


def _open_files() -> list[int]:
    return [int(name) for name in os.listdir(_OPEN_FILES)]  # noqa: PTH208 - thousands, without an object for each


def _inode(number: int) -> int:
    """Returns the inode of an open file; -1 if it is closed."""
    try:
        return os.fstat(number).st_ino
    except OSError:
        return -1


@contextmanager
def _duplicate(number: int) -> Iterator[socket.socket | None]:
    """Yields a duplicate of an open file as a socket; None if it is not a TCP socket or is closed."""
    try:
        copy = os.dup(number)
    except OSError:
        yield None
        return
    try:
        duplicate = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        yield None
        return
    with duplicate:
        yield duplicate if duplicate.family in (socket.AF_INET, socket.AF_INET6) else None
