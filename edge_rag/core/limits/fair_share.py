"""Fair shares between clients: virtual service, a fair queue, and how much of a bounded resource one may hold; pure."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_MIN_CLEANUP: Final = 64


class VirtualService:
    """Virtual service counters of the clients that share something; the unit of service is the caller's.

    The client with the least service goes first, as in Sheng et al., "Fairness in serving large language models", OSDI
    2024. A client that becomes active is lifted to the virtual time, so that idle time gives no credit. Virtual
    time is that of weighted fair queueing (Demers, Keshav and Shenker, 1989): it advances by the service given, divided
    by the number of active clients. Sheng et al. lift to the smallest active counter, under which an endless row of new
    clients with one request each would starve an old one; virtual time advances whichever client is served.

    A client is active while it has requests that wait or run. When no client is active, all counters are reset.
    """

    def __init__(self) -> None:
        self._service: dict[str, float] = {}
        self._active: dict[str, int] = {}
        self._virtual = 0.0
        self._cleanup_at = _MIN_CLEANUP

    def enter(self, client: str) -> None:
        """Counts a request of the client."""
        if client not in self._active:
            self._active[client] = 0
            self._service[client] = max(self._service.get(client, 0.0), self._virtual)
        self._active[client] += 1

    def leave(self, client: str) -> None:
        """Counts off a request that is over or moves to other counters."""
        self._active[client] -= 1
        if not self._active[client]:
            del self._active[client]
            self._clean_up()

    def charge(self, client: str, amount: float) -> None:
        """Adds service of an active client."""
        self._service[client] += amount
        self._virtual += amount / len(self._active)

    def service(self, client: str) -> float:
        """Returns the service of an active client; grows while the client is active."""
        return self._service[client]

    @property
    def tracked_clients(self) -> int:
        """Number of clients with a counter."""
        return len(self._service)

    def _clean_up(self) -> None:
        if not self._active:
            self._service.clear()
            self._virtual = 0.0
        elif len(self._service) >= self._cleanup_at:
            for client in [c for c, s in self._service.items() if s <= self._virtual and c not in self._active]:
                del self._service[client]
            self._cleanup_at = max(_MIN_CLEANUP, 2 * len(self._service))


FREE_SHARE: Final = 3
"""One client may hold at most this many times the free amount: 3/4 of all, or 3/7 beside another client."""


def may_hold_more(held: int, free: int) -> bool:
    """Whether a client may take one more of a bounded resource: the dynamic threshold of Choudhury and Hahne (1998).

    What remains free is for clients that come later; the more clients there are, the less each may hold.
    """
    return free > 0 and held < FREE_SHARE * free


@dataclass(slots=True, eq=False)
class Queued(Generic[T]):
    """An entry of a fair queue.

    Attributes:
        cost: Estimated cost, more than 0; in the queue's unit of service.
        order: Place among the client's own entries; smaller is next.
    """

    client: str
    value: T
    cost: float
    order: tuple[int, int]


@dataclass(slots=True, eq=False)
class _Client(Generic[T]):
    turn: int = 0
    taken: int = 0
    taken_cost: float = 0.0
    waiting: list[Queued[T]] = field(default_factory=list)


class FairQueue(Generic[T]):
    """A bounded queue in which the client with the least service is next. For one thread at a time.

    An entry is taken with its estimated cost and finished with its measured one. While it runs, its estimate counts for
    the order of its client only; the virtual time advances once the cost is known. A client that comes while another's
    entry runs is therefore next: it waits only for the entry that runs (the start tags of Goyal, Vin and Cheng,
    "Start-time fair queueing", 1996). Among backlogged clients no one's service is behind another's by more than
    the largest entry, so nobody starves. Entries that are removed cost nothing.

    Args:
        capacity: Most entries that wait, of all clients; one client's share of it is ``may_hold_more``.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._shares = VirtualService()
        self._clients: dict[str, _Client[T]] = {}
        self._size = 0
        self._serial = count(1)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Queued[T]]:
        return (entry for client in self._clients.values() for entry in client.waiting)

    def has_room(self, client: str) -> bool:
        """Whether one more entry of a client may wait."""
        known = self._clients.get(client)
        return may_hold_more(0 if known is None else len(known.waiting), self._capacity - self._size)

    def put(self, client: str, value: T, cost: float, urgency: int = 0) -> Queued[T]:
        """Adds an entry, whether or not there is room.

        Args:
            cost: Estimated cost, more than 0.
            urgency: Among the client's own entries smaller goes first, then the one that came first.
        """
        entry = Queued(client, value, cost, (urgency, next(self._serial)))
        self._shares.enter(client)
        insort(self._clients.setdefault(client, _Client()).waiting, entry, key=lambda each: each.order)
        self._size += 1
        return entry

    def first(self, eligible: Callable[[Queued[T]], bool] = lambda entry: True) -> Queued[T] | None:
        """Returns the next entry, or None."""
        heads = [known.waiting[0] for known in self._clients.values() if known.waiting and eligible(known.waiting[0])]
        return min(heads, key=self._place, default=None)

    def service(self, client: str) -> float:
        """Returns the service of a client with entries; those that are taken count with their estimates."""
        return self._shares.service(client) + self._clients[client].taken_cost

    def take(self, entry: Queued[T]) -> None:
        """Takes a waiting entry out, to be finished with ``finish``."""
        known = self._detach(entry)
        known.taken += 1
        known.taken_cost += entry.cost
        known.turn = next(self._serial)

    def charge(self, entry: Queued[T], cost: float) -> None:
        """Charges a part of a taken entry's measured cost, and lowers the estimate of the rest by as much."""
        used = min(cost, entry.cost)
        entry.cost -= used
        self._clients[entry.client].taken_cost -= used
        self._shares.charge(entry.client, cost)

    def finish(self, entry: Queued[T], cost: float) -> None:
        """Ends a taken entry.

        Args:
            cost: Its cost, at least 0, without the part charged before.
        """
        known = self._clients[entry.client]
        known.taken -= 1
        known.taken_cost = known.taken_cost - entry.cost if known.taken else 0.0
        self._shares.charge(entry.client, cost)
        self._leave(entry.client)

    def remove(self, entry: Queued[T]) -> None:
        """Removes a waiting entry, which cost nothing."""
        self._detach(entry)
        self._leave(entry.client)

    def _place(self, entry: Queued[T]) -> tuple[float, int, tuple[int, int]]:
        return self.service(entry.client), self._clients[entry.client].turn, entry.order

    def _detach(self, entry: Queued[T]) -> _Client[T]:
        known = self._clients[entry.client]
        known.waiting.remove(entry)
        self._size -= 1
        return known

    def _leave(self, client: str) -> None:
        self._shares.leave(client)
        known = self._clients[client]
        if not known.waiting and not known.taken:
            del self._clients[client]
