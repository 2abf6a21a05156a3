"""Connection limits per address, bans, and the rate limit of cancelled calls.

gRPC limits the number of connections in total, but neither counts them by address nor closes a single one from Python.
Connections and listening sockets are therefore found among the open files of the process. Each is accessed through a
duplicate, which stays the same socket even if gRPC closes its own meanwhile and the number is reused.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from time import monotonic
from typing import Final

import structlog

from edge_rag.core.address import Peer, peer_of
from edge_rag.server.limits.socket_filter import attach_filter

_OPEN_FILES: Final = "/dev/fd"
_CHECK_INTERVAL_S: Final = 0.5
_RECENTLY_CUT: Final = 16

BAN_S: Final = 10.0
"""How long an address is banned, seconds."""

_MAPPED: Final = "::ffff:"
"""Prefix of an IPv4 address on a dual-stack socket; gRPC omits it."""

log = structlog.get_logger()


class Connections:
    """The connections of this process's server. Used from one event loop.

    Args:
        per_address: Maximum number of connections of one address.
        clock: Monotonic seconds.
    """

    def __init__(self, per_address: int, clock: Callable[[], float] = monotonic) -> None:
        self._per_address = per_address
        self._ports: frozenset[int] = frozenset()
        self._known: frozenset[Peer] = frozenset()
        # Each of a hundred calls on a connection may request that it is closed.
        self._cut: deque[Peer] = deque(maxlen=_RECENTLY_CUT)
        self._clock = clock
        self._banned: dict[str, float] = {}  # address to the end of its ban

    def set_ports(self, ports: frozenset[int]) -> None:
        """Sets the ports on which the server listens."""
        self._ports = ports

    async def enforce(self) -> None:
        """Closes excess connections and lifts expired bans at a fixed interval, until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            self.lift_expired_bans()
            await asyncio.to_thread(self.close_excess)

    def close_excess(self) -> int:
        """Closes the newest connections of addresses over the limit; returns how many."""
        if not self._ports or len(_open_files()) <= self._per_address:
            return 0
        present = {peer for peer, _ in self._all()}
        # Older connections take precedence over newer ones.
        counted: Counter[str] = Counter(host for host, _ in present & self._known)
        excess = set()
        for peer in present - self._known:
            counted[peer[0]] += 1
            if counted[peer[0]] > self._per_address:
                excess.add(peer)
        for peer, connection in self._all() if excess else ():
            if peer in excess:
                _shut(connection)
        for host in sorted({host for host, _ in excess}):
            log.warning("connections over the limit of their address closed", address=host, limit=self._per_address)
        self._known = frozenset(present - excess)
        return len(excess)

    def ban(self, peer: str, reason: str) -> None:
        """Closes all connections of a peer's address and accepts none from it for ``BAN_S``.

        Does nothing for a Unix socket. A peer with a link-local address (``fe80::7%eth0``) only loses its connection.

        Args:
            peer: gRPC's name of the peer.
            reason: For the log.
        """
        target = peer_of(peer)
        if target is None:
            return
        host = target[0]
        if host in self._banned or "%" in host:
            self.cut(peer, reason)
            return
        self._banned[host] = self._clock() + BAN_S
        self._apply_bans()
        for (address, _), connection in self._all():
            if address == host:
                _shut(connection)
        log.warning("address banned", address=host, seconds=BAN_S, reason=reason)

    def lift_expired_bans(self) -> None:
        """Accepts connections again from addresses whose ban has expired."""
        over = [host for host, until in self._banned.items() if until <= self._clock()]
        for host in over:
            del self._banned[host]
        if over:
            self._apply_bans()

    def _apply_bans(self) -> None:
        banned = [ip_address(host) for host in self._banned]
        try:
            for listening in self._listening():
                attach_filter(listening, banned)
        except OSError as error:
            log.warning(
                "the kernel refuses the socket filter; connections of banned addresses are closed after they open",
                error=str(error),
            )

    def cut(self, peer: str, reason: str) -> None:
        """Closes the connection of a peer; does nothing for a Unix socket.

        Args:
            peer: gRPC's name of the peer.
            reason: For the log.
        """
        target = peer_of(peer)
        if target is None or target in self._cut:
            return
        self._cut.append(target)
        for found, connection in self._all():
            if found == target:
                _shut(connection)
                log.warning("connection closed", address=target[0], reason=reason)

    def _listening(self) -> Iterator[socket.socket]:
        """Yields the server's listening sockets; each is valid until the next one."""
        for name in _open_files():
            with _duplicate(int(name)) as found:
                if found is None or not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    continue
                if found.getsockname()[1] in self._ports:
                    yield found

    def _all(self) -> Iterator[tuple[Peer, socket.socket]]:
        """Yields the connections with their peers; each socket is valid until the next one."""
        for name in _open_files():
            with _duplicate(int(name)) as found:
                if found is None:
                    continue
                with suppress(OSError):
                    local = found.getsockname()
                    if isinstance(local, tuple) and local[1] in self._ports:
                        host, port = found.getpeername()[:2]
                        yield (host.removeprefix(_MAPPED), port), found


def _open_files() -> list[str]:
    return os.listdir(_OPEN_FILES)  # noqa: PTH208 - a thousand names twice a second, without an object for each


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


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


_PER_SECOND: Final = 100.0
"""Calls that a client may cancel per second, on average."""

_BURST: Final = 300.0
"""Calls that it may cancel at once."""

_ABUSIVE: Final = 30.0
"""Recent cancellations from which on a client's next call is likely to be cancelled too."""

_CLIENTS: Final = 4096
"""Clients whose rates are kept; beyond that, the one with the oldest cancellation is dropped."""


class CancelRateLimiter:
    """Limits the rate of cancelled calls by client (HTTP/2 rapid reset), as token buckets.

    Turner, New Directions in Communications, 1986.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def cancelled(self, client: str) -> bool:
        """Counts a cancelled call; returns whether the client is over the limit."""
        left = self._allowed(client) - 1
        self._left.pop(client, None)
        self._left[client] = max(left, 0.0), self._clock()
        if len(self._left) > _CLIENTS:
            del self._left[next(iter(self._left))]
        return left < 0

    def is_abusive(self, client: str) -> bool:
        """Returns whether the client's next call is likely to be cancelled too."""
        return self._allowed(client) < _BURST - _ABUSIVE

    def _allowed(self, client: str) -> float:
        now = self._clock()
        left, at = self._left.get(client, (_BURST, now))
        return min(_BURST, left + (now - at) * _PER_SECOND)
