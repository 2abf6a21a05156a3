"""The connections of the server: closes those that exceed the limits or cancel too many calls, and bans networks."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from ipaddress import ip_network
from time import monotonic
from typing import Final

import structlog

from edge_rag.core.address import GRPC, UNIX, Connection, is_loopback, network_of, network_of_peer, peer_of
from edge_rag.server.limits.connection_table import BAN_S, ConnectionLimits, ConnectionTable
from edge_rag.server.limits.open_sockets import OpenSockets, count_open_files
from edge_rag.server.limits.socket_filter import attach_filter


@dataclass(frozen=True, slots=True)
class CancelLimits:
    """A token bucket.

    Attributes:
        per_s: Calls that a network may cancel per second, on average.
    """

    per_s: float
    burst: float


KNOWN: Final = CancelLimits(100.0, 300.0)
"""Limits of networks from which authenticated calls come, and of this host."""

UNKNOWN: Final = CancelLimits(10.0, 50.0)
"""Limits of all others. A call that a stranger cancels was refused or was a health check."""

_ABUSIVE: Final = 30.0
"""Recent cancellations from which on a network's next call, or the same connection's, is likely to be cancelled too."""

_NETWORKS: Final = 4096
"""Networks whose rates are kept; beyond that, the one with the oldest cancellation is dropped."""

_CONNECTIONS: Final = 256
"""Connections of a network whose cancellations are counted; beyond that, the one with the fewest is dropped."""


@dataclass(slots=True)
class _Account:
    used: float
    at: float
    by_connection: Counter[str] = field(default_factory=Counter)


class CancelRateLimiter:
    """Limits the rate of cancelled calls by network, as token buckets (Turner, New Directions in Communications, 1986).

    Several hosts may share an address. Therefore the cancellations are also counted by connection, since the network's
    bucket was last full: only a connection with many of them is closed.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def cancelled(self, network: str, connection: str = "", limits: CancelLimits = KNOWN) -> bool:
        """Counts a cancelled call; returns whether the network is over its limit."""
        now = self._clock()
        account = self._accounts.pop(network, None) or _Account(0.0, now)
        account.used = max(0.0, account.used - (now - account.at) * limits.per_s)
        account.at = now
        if not account.used:
            account.by_connection.clear()
        account.used = min(account.used + 1, limits.burst + 1)
        account.by_connection[connection] += 1
        if len(account.by_connection) > _CONNECTIONS:
            del account.by_connection[min(account.by_connection, key=account.by_connection.__getitem__)]
        self._accounts[network] = account
        if len(self._accounts) > _NETWORKS:
            del self._accounts[next(iter(self._accounts))]
        return account.used > limits.burst

    def is_offender(self, network: str, connection: str) -> bool:
        account = self._accounts.get(network)
        return account is not None and account.by_connection[connection] >= _ABUSIVE

    def is_abusive(self, network: str, limits: CancelLimits = KNOWN) -> bool:
        account = self._accounts.get(network)
        return account is not None and account.used - (self._clock() - account.at) * limits.per_s > _ABUSIVE


_QUIET_S: Final = 0.5
"""Interval of looking at the connections while few are unidentified, seconds."""

_BUSY_S: Final = 0.05
"""Interval of counting open files, and of looking at the connections while many are unidentified, seconds."""

_BUSY_SHARE: Final = 0.1
"""Largest share of time spent on looking."""

_MANY: Final = 32
"""Unidentified connections that are many; also newly opened files that are a reason to look at the connections."""

_REPORT_S: Final = 10.0
"""Interval of lines in the log on closed connections, seconds."""

_RECENTLY_CUT: Final = 16

_PAGES: Final = CancelLimits(100.0, 2000.0)
"""Files of the console that callers of one network load without an identity: forty phones, each of which needs about
fifty, at once, and two a second."""

REFUSAL_DELAY_S: Final = 1.0
"""How long the answer to a call without identity waits if its network makes many, seconds. Over HTTP/1.1 a connection
has one call at a time, so that refusals cost the others little."""

CANCEL_DELAY_S: Final = 0.01
"""How long a call of a client that cancels many is delayed, seconds; by then its cancellation has arrived."""

log = structlog.get_logger()


class Connections:
    """The connections of this process's servers. Used from one event loop.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        clock: Callable[[], float] = monotonic,
        is_local: Callable[[str], bool] = is_loopback,
    ) -> None:
        self._clock = clock
        self._is_local = is_local
        self._table = ConnectionTable(limits, clock, is_local)
        self._sockets = OpenSockets()
        self._cancels = CancelRateLimiter(clock)
        self._refusals = CancelRateLimiter(clock)
        self._pages = CancelRateLimiter(clock)
        # Each of a hundred calls on a connection may request that it is closed.
        self._cut: deque[Connection] = deque(maxlen=_RECENTLY_CUT)
        self._unreported = 0
        self._example = ""
        self._reported_at = -_REPORT_S

    def add_ports(self, ports: Iterable[int], server: str = GRPC) -> None:
        self._sockets.add_ports(dict.fromkeys(ports, server))

    def identified(self, peer: str, server: str = GRPC) -> None:
        """Notes that a call was authenticated: its connection need not make room for those of strangers."""
        connection = _connection(peer, server)
        if connection is not None:
            self._table.identified(connection)

    def is_identified(self, peer: str, server: str = GRPC) -> bool:
        connection = _connection(peer, server)
        return connection is not None and self._table.is_identified(connection)

    async def enforce(self) -> None:
        """Closes excess connections and lifts expired bans, until cancelled."""
        loop = asyncio.get_running_loop()
        files, due_at, pause_s = 0, 0.0, _BUSY_S
        # A thread of its own: those of the default executor have a lower priority, and other work waits there.
        with ThreadPoolExecutor(1, "connections") as thread:
            while True:
                await asyncio.sleep(pause_s)
                self.lift_expired_bans()
                self._report()
                now, count = self._clock(), count_open_files()
                if now < due_at and count < files + _MANY:
                    continue
                excess = self._update(await loop.run_in_executor(thread, self._sockets.connections), now)
                if excess:
                    await loop.run_in_executor(thread, self._sockets.shut, excess)
                files = count
                pause_s = max(_BUSY_S, (self._clock() - now) / _BUSY_SHARE)
                due_at = now + (_BUSY_S if excess or self._table.unidentified >= _MANY else _QUIET_S)

    def close_excess(self) -> int:
        now = self._clock()
        excess = self._update(self._sockets.connections(), now)
        self._sockets.shut(excess)
        return len(excess)

    def _update(self, present: Collection[Connection], seen_at: float) -> Collection[Connection]:
        excess = self._table.update(present, seen_at)
        if excess.banned:
            self._apply_bans()
            log.warning("networks banned", networks=len(excess.banned), example=min(excess.banned), seconds=BAN_S)
        if excess.connections:
            self._unreported += len(excess.connections)
            self._example = min(excess.connections)[0]
        return excess.connections

    def _report(self) -> None:
        """Logs one line for many connections, so that strangers cannot fill the log."""
        if not self._unreported or self._clock() < self._reported_at + _REPORT_S:
            return
        log.warning("connections over the limits closed", connections=self._unreported, example=self._example)
        self._unreported, self._reported_at = 0, self._clock()

    def is_cancelling(self, peer: str) -> bool:
        network = network_of_peer(peer)
        return self._cancels.is_abusive(network, self._cancel_limits(peer, network))

    def call_refused(self, peer: str) -> bool:
        """Counts a call that was refused without an identity; returns whether to delay its answer."""
        network = network_of_peer(peer)
        return self._refusals.cancelled(network, limits=self._cancel_limits(peer, network))

    def page_requested(self, peer: str) -> bool:
        """Counts a request for a file of the console without identity; returns whether to delay its answer."""
        return self._pages.cancelled(network_of_peer(peer), limits=_PAGES)

    def call_cancelled(self, peer: str, server: str = GRPC) -> None:
        """Counts a cancelled call; closes the connections of clients that cancel too many.

        A network from which no authenticated call came recently is banned. In a known network a stranger may be the
        neighbour of a client, so only the connection that cancels is closed. The same holds for this host.
        """
        network = network_of_peer(peer)
        name = f"{server} {peer}"
        if not self._cancels.cancelled(network, name, self._cancel_limits(peer, network)) or network == UNIX:
            return
        if not self.ban(peer, "it cancels too many calls", server) and self._cancels.is_offender(network, name):
            self.cut(peer, "it cancels too many calls", server)

    def _cancel_limits(self, peer: str, network: str) -> CancelLimits:
        found = peer_of(peer)
        if found is None or self._is_local(found[0]) or self._table.is_known(network):
            return KNOWN
        return UNKNOWN

    def ban(self, peer: str, reason: str, server: str = GRPC) -> bool:
        """Closes all connections of a peer's network and accepts none from it for ``BAN_S``, unless it is known.

        Returns:
            Whether the network is banned now. This host, known networks and link-local addresses never are.
        """
        connection = _connection(peer, server)
        if connection is None:
            return False
        network = network_of(connection.host)
        if network in self._table.banned:
            self.cut(peer, reason, server)
            return True
        if not self._table.ban(connection):
            return False
        self._apply_bans()
        self._sockets.shut([other for other in self._sockets.connections() if network_of(other.host) == network])
        log.warning("network banned", network=network, seconds=BAN_S, reason=reason)
        return True

    def lift_expired_bans(self) -> None:
        if self._table.lift_expired_bans():
            self._apply_bans()

    def _apply_bans(self) -> None:
        banned = [ip_network(network) for network in self._table.banned]
        try:
            for listening in self._sockets.listening():
                attach_filter(listening, banned)
        except OSError as error:
            log.warning(
                "the kernel refuses the socket filter; connections of banned networks are closed after they open",
                error=str(error),
            )

    def cut(self, peer: str, reason: str, server: str = GRPC) -> None:
        target = _connection(peer, server)
        if target is None or target in self._cut:
            return
        self._cut.append(target)
        self._sockets.shut([target])
        log.warning("connection closed", address=target.host, reason=reason)


def _connection(peer: str, server: str) -> Connection | None:
    found = peer_of(peer)
    return None if found is None else Connection(*found, server)
