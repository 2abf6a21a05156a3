"""The policy of connections: which ones are closed, and which networks are banned; pure.

A connection is unidentified until a call on it was authenticated. Strangers can open any number of connections and
identify none; hence only unidentified connections make room for others, and of those the ones of the network that has
most. Allowances are counted by network: an IPv4 address, or the /64 of an IPv6 address.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from edge_rag.core.address import Connection, is_loopback, network_of

BAN_S: Final = 10.0
"""How long a network is banned, seconds."""

KNOWN_S: Final = 24 * 3600.0
"""How long a network stays known after an authenticated call from it, seconds."""

_KNOWN_NETWORKS: Final = 4096
"""Known networks that are kept; beyond that the one whose last call is the oldest is dropped. Strangers add none."""

_KNOWN_RESERVE: Final = 8
"""Unidentified connections of a known network that are closed only after all of strangers."""

_STRANGERS_SHARE: Final = 2
"""Half of all connections may be unidentified."""

_RESERVED_SHARE: Final = 8
"""An eighth of all connections stays for connections that are not identified yet."""

_CLOSED_BURST: Final = 32.0
"""Excess connections of an unknown network, closed within seconds, after which it is banned."""

_CLOSED_PER_S: Final = 1.0
"""Excess connections of an unknown network that may be closed per second without a ban, on average."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Numbers of concurrent connections.

    Attributes:
        total: Of all addresses other than loopback, at least 1.
        per_network: Of one network, at least 1.
    """

    total: int
    per_network: int

    @property
    def unidentified(self) -> int:
        return max(1, self.total // _STRANGERS_SHARE)

    @property
    def identified(self) -> int:
        return self.total - self.total // _RESERVED_SHARE


@dataclass(frozen=True, slots=True)
class Excess:
    """What exceeds the limits."""

    connections: frozenset[Connection] = frozenset()
    banned: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Entry:
    connection: Connection
    network: str
    local: bool
    seen_at: float
    order: int
    identified: bool = False


@dataclass(slots=True)
class _Members:
    """The connections of one network, the oldest first."""

    local: bool = False
    identified: list[_Entry] = field(default_factory=list)
    unidentified: list[_Entry] = field(default_factory=list)


class ConnectionTable:
    """The connections there are. Used from one event loop.

    Args:
        clock: Monotonic seconds.
        is_local: Whether an address is one of this host; such connections count for their own address only, and are
            never banned.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        clock: Callable[[], float] = monotonic,
        is_local: Callable[[str], bool] = is_loopback,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._is_local = is_local
        self._entries: dict[Connection, _Entry] = {}
        self._order = 0
        self._known: dict[str, float] = {}
        self._banned: dict[str, float] = {}
        self._closed: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def banned(self) -> tuple[str, ...]:
        return tuple(self._banned)

    @property
    def unidentified(self) -> int:
        return sum(1 for each in self._entries.values() if not each.identified and not each.local)

    def identified(self, connection: Connection) -> None:
        entry = self._entries.get(connection) or self._add(connection)
        entry.identified = True
        self._known.pop(entry.network, None)
        self._known[entry.network] = self._clock()
        if len(self._known) > _KNOWN_NETWORKS:
            del self._known[next(iter(self._known))]

    def is_identified(self, connection: Connection) -> bool:
        entry = self._entries.get(connection)
        return entry is not None and entry.identified

    def is_known(self, network: str) -> bool:
        known_at = self._known.get(network)
        return known_at is not None and self._clock() - known_at <= KNOWN_S

    def ban(self, connection: Connection) -> bool:
        """Bans a network for ``BAN_S``, unless it is known or local; returns whether it is banned now."""
        network = network_of(connection.host)
        if network in self._banned:
            return True
        # The kernel's filter does not distinguish interfaces, and each of them has the same link-local addresses.
        if self._is_local(connection.host) or "%" in network or self.is_known(network):
            return False
        self._banned[network] = self._clock() + BAN_S
        return True

    def lift_expired_bans(self) -> bool:
        now = self._clock()
        over = [network for network, until in self._banned.items() if until <= now]
        for network in over:
            del self._banned[network]
        return bool(over)

    def update(self, present: Collection[Connection], seen_at: float) -> Excess:
        """Takes over what connections there are; returns what exceeds the limits. That is forgotten as if closed."""
        there = present if isinstance(present, (set, frozenset)) else set(present)
        for gone in [c for c, each in self._entries.items() if c not in there and each.seen_at < seen_at]:
            del self._entries[gone]
        for connection in present:
            if connection not in self._entries:
                self._add(connection)
        excess = self._excess()
        banned = {each.network for each in excess if self._count_closed(each)}
        excess += [each for each in self._entries.values() if each.network in self._banned]
        for each in excess:
            self._entries.pop(each.connection, None)
        return Excess(frozenset(each.connection for each in excess), frozenset(banned))

    def _add(self, connection: Connection) -> _Entry:
        self._order += 1
        host = connection.host
        made = _Entry(connection, network_of(host), self._is_local(host), self._clock(), self._order)
        self._entries[connection] = made
        return made

    def _excess(self) -> list[_Entry]:
        if len(self._entries) <= min(self._limits.per_network, self._limits.unidentified):
            return []
        by_network: defaultdict[str, _Members] = defaultdict(_Members)
        for each in self._entries.values():
            there = by_network[each.network]
            there.local = each.local
            (there.identified if each.identified else there.unidentified).append(each)
        excess = [each for there in by_network.values() for each in self._over_their_network(there)]
        others = [there for there in by_network.values() if not there.local]
        excess += _newest_identified(others, self._limits.identified)
        return excess + self._oldest_unidentified(others)

    def _over_their_network(self, there: _Members) -> list[_Entry]:
        """Removes and returns the connections over the limit of their network: unidentified ones, the oldest first."""
        over = len(there.identified) + len(there.unidentified) - self._limits.per_network
        if over <= 0:
            return []
        unidentified = there.unidentified[:over]
        there.unidentified = there.unidentified[over:]
        rest = over - len(unidentified)
        newest = there.identified[len(there.identified) - rest :] if rest else []
        there.identified = there.identified[: len(there.identified) - rest]
        return unidentified + newest

    def _oldest_unidentified(self, others: list[_Members]) -> list[_Entry]:
        """Returns the unidentified connections over their limit: the oldest of the network with most, repeatedly."""
        identified = sum(len(there.identified) for there in others)
        over = sum(len(there.unidentified) for there in others)
        over -= max(1, min(self._limits.unidentified, self._limits.total - identified))
        if over <= 0:
            return []
        heap = [(*self._rank(there, 0), index, 0) for index, there in enumerate(others) if there.unidentified]
        heapq.heapify(heap)
        excess = []
        for _ in range(over):
            *_, index, begin = heapq.heappop(heap)
            connections = others[index].unidentified
            excess.append(connections[begin])
            if begin + 1 < len(connections):
                heapq.heappush(heap, (*self._rank(others[index], begin + 1), index, begin + 1))
        return excess

    def _rank(self, there: _Members, begin: int) -> tuple[int, int]:
        oldest = there.unidentified[begin]
        reserve = _KNOWN_RESERVE if self.is_known(oldest.network) else 0
        return -max(0, len(there.unidentified) - begin - reserve), oldest.order

    def _count_closed(self, entry: _Entry) -> bool:
        if entry.identified:
            return False
        now = self._clock()
        left, at = self._closed.pop(entry.network, (_CLOSED_BURST, now))
        left = min(_CLOSED_BURST, left + (now - at) * _CLOSED_PER_S) - 1
        self._closed[entry.network] = max(left, 0.0), now
        if len(self._closed) > _KNOWN_NETWORKS:
            del self._closed[next(iter(self._closed))]
        return left < 0 and entry.network not in self._banned and self.ban(entry.connection)


def _newest_identified(others: list[_Members], most: int) -> list[_Entry]:
    """Removes and returns the identified connections over their limit: the newest one of the network with most."""
    over = sum(len(there.identified) for there in others) - most
    excess = []
    for _ in range(over):
        largest = max(others, key=lambda there: len(there.identified))
        excess.append(largest.identified.pop())
    return excess
