"""Fair shares: how much service each client had, and who is owed the most."""

from __future__ import annotations

from typing import Final

PROMPT_WEIGHT: Final = 1
"""Charge for a prompt token that was computed; one found in the cache costs nothing."""

GENERATED_WEIGHT: Final = 2
"""Charge for a generated token, which is computed one at a time (weights of Sheng et al., 2024)."""

_TIDY_AT_LEAST: Final = 64


class VirtualTokenCounter:
    """Virtual token counters of the clients of one scheduling class.

    The client with the least service goes first, as in the virtual token counter of Sheng et al., "Fairness in serving
    large language models", OSDI 2024. A client that becomes active is lifted to the class's virtual time, so that time
    without requests saves nothing up. Virtual time is that of weighted fair queueing (Demers, Keshav and Shenker,
    1989): it passes by the service given, divided by the number of active clients. Sheng et al. lift to the smallest
    active counter, under which an endless row of new clients with one request each would hold back an old one for
    ever; virtual time passes whoever is served, so they would not.

    A client is active while it has requests that wait or run. Once nobody is, everything is forgotten.
    """

    def __init__(self) -> None:
        self._service: dict[str, float] = {}
        self._active: dict[str, int] = {}
        self._virtual = 0.0
        self._tidy_at = _TIDY_AT_LEAST

    def enter(self, client: str) -> None:
        """A request of the client came into the class."""
        if client not in self._active:
            self._active[client] = 0
            self._service[client] = max(self._service.get(client, 0.0), self._virtual)
        self._active[client] += 1

    def leave(self, client: str) -> None:
        """A request of the client that had entered is over, or in another class now."""
        self._active[client] -= 1
        if not self._active[client]:
            del self._active[client]
            self._forget()

    def charge(self, client: str, amount: float) -> None:
        """Counts service to an active client, weighted tokens."""
        self._service[client] += amount
        self._virtual += amount / len(self._active)

    def service(self, client: str) -> float:
        """Returns the service an active client had, weighted tokens; grows while the client is active."""
        return self._service[client]

    @property
    def known(self) -> int:
        """Clients whose service is remembered."""
        return len(self._service)

    def _forget(self) -> None:
        """Drops what cannot matter any more: idle clients that would be lifted anyway."""
        if not self._active:
            self._service.clear()
            self._virtual = 0.0
        elif len(self._service) >= self._tidy_at:
            for client in [c for c, s in self._service.items() if s <= self._virtual and c not in self._active]:
                del self._service[client]
            self._tidy_at = max(_TIDY_AT_LEAST, 2 * len(self._service))
