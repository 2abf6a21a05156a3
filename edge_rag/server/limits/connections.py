"""Connections as the operating system has them: how many an address may have, and closing one of them.

gRPC bounds their number in all, but neither counts them by address nor closes a single one from Python. So they are
found among the open files of the process, and so are the sockets they come to, which can be told not to take any from
an address. Each is looked at through a duplicate, which stays the same socket even where gRPC closes its own meanwhile
and the number is given to another file.

How often callers give up what they began: opening and resetting streams without end costs them next to nothing.
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
from urllib.parse import unquote

import structlog

from edge_rag.server.limits.socket_filter import bar

_OPEN_FILES: Final = "/dev/fd"
_LOOK_EVERY_S: Final = 0.5
_RECENTLY_CUT: Final = 16

BARRED_S: Final = 10.0
"""How long an address is shut out, seconds."""

_MAPPED: Final = "::ffff:"
"""What an IPv4 address begins with on a socket for both; gRPC leaves it out."""

Peer = tuple[str, int]
"""Address and port."""

log = structlog.get_logger()


def peer_of(peer: str) -> Peer | None:
    """Returns who is at the other end, of gRPC's name for it; None over a Unix socket.

    ``ipv4:192.0.2.7:5000`` and ``ipv6:%5B2001:db8::7%5D:5000`` are such names.
    """
    scheme, _, rest = peer.partition(":")
    host, _, port = rest.rpartition(":")
    if scheme not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return unquote(host).strip("[]"), int(port)


def address_of(peer: str) -> str:
    """Returns whose calls count together: those from one address, and those over Unix sockets."""
    there = peer_of(peer)
    return "unix" if there is None else there[0]


class Connections:
    """The connections of this process's server. For one event loop.

    Args:
        most: Most that one address may have at once.
        clock: Monotonic seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._ports: frozenset[int] = frozenset()
        self._known: frozenset[Peer] = frozenset()
        # A connection that is closed with a hundred calls is asked to be closed a hundred times.
        self._cut: deque[Peer] = deque(maxlen=_RECENTLY_CUT)
        self._clock = clock
        self._barred: dict[str, float] = {}  # until when

    def belong_to(self, ports: frozenset[int]) -> None:
        """Says on which ports the server listens."""
        self._ports = ports

    async def keep(self) -> None:
        """Closes what an address has too many of, again and again; until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            self.let_in()
            await asyncio.to_thread(self.close_excess)

    def close_excess(self) -> int:
        """Closes the newest connections of addresses that have too many; returns how many."""
        if not self._ports or len(_open_files()) <= self._most:
            return 0
        present = {peer for peer, _ in self._all()}
        # Those that were there before stay before those that came since.
        counted: Counter[str] = Counter(host for host, _ in present & self._known)
        excess = set()
        for peer in present - self._known:
            counted[peer[0]] += 1
            if counted[peer[0]] > self._most:
                excess.add(peer)
        for peer, there in self._all() if excess else ():
            if peer in excess:
                _shut(there)
        for host in sorted({host for host, _ in excess}):
            log.warning("connections closed: too many of one address", address=host, most=self._most)
        self._known = frozenset(present - excess)
        return len(excess)

    def shut_out(self, peer: str, why: str) -> None:
        """Closes all connections of the address that a call came from, and takes none from there for a while.

        Over a Unix socket, which is this box, nothing happens. An address that means something on one network only
        (``fe80::7%eth0``) just loses the connection.

        Args:
            peer: As gRPC names it.
            why: What its client does, for the log.
        """
        wanted = peer_of(peer)
        if wanted is None:
            return
        host = wanted[0]
        if host in self._barred or "%" in host:
            self.cut(peer, why)
            return
        self._barred[host] = self._clock() + BARRED_S
        self._bar()
        for (address, _), there in self._all():
            if address == host:
                _shut(there)
        log.warning("address shut out", address=host, seconds=BARRED_S, why=why)

    def let_in(self) -> None:
        """Takes connections again from addresses that were shut out for long enough."""
        over = [host for host, until in self._barred.items() if until <= self._clock()]
        for host in over:
            del self._barred[host]
        if over:
            self._bar()

    def _bar(self) -> None:
        barred = [ip_address(host) for host in self._barred]
        try:
            for listening in self._listening():
                bar(listening, barred)
        except OSError as error:
            log.warning("addresses cannot be shut out; their connections are closed as they come", error=str(error))

    def cut(self, peer: str, why: str) -> None:
        """Closes the connection that a call came over; over a Unix socket, which is this box, it is left.

        Args:
            peer: As gRPC names it.
            why: What its client does, for the log.
        """
        wanted = peer_of(peer)
        if wanted is None or wanted in self._cut:
            return
        self._cut.append(wanted)
        for found, there in self._all():
            if found == wanted:
                _shut(there)
                log.warning("connection closed", address=wanted[0], why=why)

    def _listening(self) -> Iterator[socket.socket]:
        """Yields every socket that connections come to; it is good until the next one."""
        for name in _open_files():
            with _duplicate(int(name)) as there:
                if there is None or not there.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    continue
                if there.getsockname()[1] in self._ports:
                    yield there

    def _all(self) -> Iterator[tuple[Peer, socket.socket]]:
        """Yields every connection with its peer; the socket is good until the next one."""
        for name in _open_files():
            with _duplicate(int(name)) as there:
                if there is None:
                    continue
                with suppress(OSError):
                    here = there.getsockname()
                    if isinstance(here, tuple) and here[1] in self._ports:
                        host, port = there.getpeername()[:2]
                        yield (host.removeprefix(_MAPPED), port), there


def _open_files() -> list[str]:
    return os.listdir(_OPEN_FILES)  # noqa: PTH208 - a thousand names twice a second, without an object for each


@contextmanager
def _duplicate(number: int) -> Iterator[socket.socket | None]:
    """Gives a socket of one's own for an open file, None where it is no TCP socket or closed by now."""
    try:
        copy = os.dup(number)
    except OSError:
        yield None
        return
    try:
        there = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        yield None
        return
    with there:
        yield there if there.family in (socket.AF_INET, socket.AF_INET6) else None


def _shut(there: socket.socket) -> None:
    with suppress(OSError):
        there.shutdown(socket.SHUT_RDWR)


_PER_SECOND: Final = 100.0
"""Calls that a caller may give up, on average."""

_AT_ONCE: Final = 300.0
"""Calls that it may give up at once, having given up none for a while."""

_HASTY: Final = 30.0
"""Calls given up lately that make it likely that a caller's next one is given up too."""

_REMEMBERED: Final = 4096
"""Callers that are remembered; of more, those whose calls are longest ago are forgotten."""


class CancelRateLimiter:
    """Counts calls given up, by caller, as token buckets (Turner, New Directions in Communications, 1986).

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def another(self, caller: str) -> bool:
        """Counts one; returns whether they are too many."""
        left = self._allowed(caller) - 1
        self._left.pop(caller, None)
        self._left[caller] = max(left, 0.0), self._clock()
        if len(self._left) > _REMEMBERED:
            del self._left[next(iter(self._left))]
        return left < 0

    def hasty(self, caller: str) -> bool:
        """Returns whether its next call may well be given up too."""
        return self._allowed(caller) < _AT_ONCE - _HASTY

    def _allowed(self, caller: str) -> float:
        now = self._clock()
        left, at = self._left.get(caller, (_AT_ONCE, now))
        return min(_AT_ONCE, left + (now - at) * _PER_SECOND)
