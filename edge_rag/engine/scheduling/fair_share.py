"""Fair sharing between clients: the service that each of them received."""

from __future__ import annotations

from typing import Final

PROMPT_WEIGHT: Final = 1
"""Charge for a computed prompt token; one found in the cache is free."""

GENERATED_WEIGHT: Final = 2
"""Charge for a generated token, which is computed one at a time (weights of Sheng et al., 2024)."""

_MIN_CLEANUP: Final = 64


class VirtualTokenCounter:
    """Virtual token counters of the clients of one scheduling class.

    The client with the least service goes first, as in Sheng et al., "Fairness in serving
    large language models", OSDI 2024. A client that becomes active is lifted to the class's virtual time, so that idle
    time gives no credit. Virtual time is that of weighted fair queueing (Demers, Keshav and Shenker,
    1989): it advances by the service given, divided by the number of active clients. Sheng et al. lift to the smallest
    active counter, under which an endless row of new clients with one request each would starve an old one;
    virtual time advances whichever client is served, so it does not starve.

    A client is active while it has requests that wait or run. When no client is active, all counters are reset.
    """

    def __init__(self) -> None:
        self._service: dict[str, float] = {}
        self._active: dict[str, int] = {}
        self._virtual = 0.0
        self._cleanup_at = _MIN_CLEANUP

    def enter(self, client: str) -> None:
        """Counts a request of the client in the class."""
        if client not in self._active:
            self._active[client] = 0
            self._service[client] = max(self._service.get(client, 0.0), self._virtual)
        self._active[client] += 1

    def leave(self, client: str) -> None:
        """Counts off a request that is over or changed its class."""
        self._active[client] -= 1
        if not self._active[client]:
            del self._active[client]
            self._clean_up()

    def charge(self, client: str, amount: float) -> None:
        """Adds service of an active client, weighted tokens."""
        self._service[client] += amount
        self._virtual += amount / len(self._active)

    def service(self, client: str) -> float:
        """Returns the service of an active client, weighted tokens; grows while the client is active."""
        return self._service[client]

    @property
    def tracked_clients(self) -> int:
        """Number of clients with a counter."""
        return len(self._service)

    def _clean_up(self) -> None:
        """Drops the counters of idle clients that would be lifted anyway."""
        if not self._active:
            self._service.clear()
            self._virtual = 0.0
        elif len(self._service) >= self._cleanup_at:
            for client in [c for c, s in self._service.items() if s <= self._virtual and c not in self._active]:
                del self._service[client]
            self._cleanup_at = max(_MIN_CLEANUP, 2 * len(self._service))
