"""Room for calls: how many are served at once, and how many of them may be one caller's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Final

from edge_rag.engine.command_queue import DrainRate
from edge_rag.errors import Overloaded

_SHARE: Final = 3
"""A caller may have up to so many times the places that are free. Alone, it gets three quarters of all."""


class ConcurrencyLimiter:
    """Counts calls by caller. For one event loop.

    A caller may take a place as long as it has fewer than ``3 *`` the free ones (Choudhury and Hahne, Dynamic Queue
    Length Thresholds for Shared-Memory Packet Switches, 1998). So whoever is alone gets most of the places, several get
    equal parts, and some stay free for the next one to come, without a bound that would have to be set for each.

    Args:
        capacity: Most calls at once, at least 1.
        clock: Monotonic seconds.
    """

    def __init__(self, capacity: int, clock: Callable[[], float] = monotonic) -> None:
        self.capacity = capacity
        self._clock = clock
        self._by_caller: Counter[str] = Counter()
        self._taken = 0
        self._told = 0
        self._rate = DrainRate()

    @property
    def taken(self) -> int:
        """Calls that have a place."""
        return self._taken

    def take(self, caller: str) -> None:
        """Takes a place; pair it with ``leave``.

        Raises:
            Overloaded: There is none, or none for this caller. Those refused one after the other are told to come back
                one after the other, at the pace at which places come free.
        """
        free = self.capacity - self._taken
        if free <= 0 or self._by_caller[caller] >= _SHARE * free:
            self._told = min(self._told + 1, self.capacity)
            raise Overloaded("call", self._rate.retry_after_s(self._told))
        self._taken += 1
        self._by_caller[caller] += 1

    def leave(self, caller: str) -> None:
        """Gives a place back."""
        self._rate.left(self._clock(), others_wait=self._told > 0, tokens=1)
        self._told = max(0, self._told - 1)
        self._taken -= 1
        self._by_caller[caller] -= 1
        if not self._by_caller[caller]:
            del self._by_caller[caller]
