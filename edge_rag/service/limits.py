"""Limits of concurrent calls and of a call's duration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Final

from edge_rag.engine.command_queue import DrainRate
from edge_rag.errors import Overloaded

_SHARE: Final = 3
"""A client may hold up to this many times the free slots; a lone client gets three quarters of all slots."""


class ConcurrencyLimiter:
    """Counts calls by client. For one event loop.

    A client gets a slot while it holds fewer than ``3 *`` the free slots (Choudhury and Hahne, Dynamic Queue Length
    Thresholds for Shared-Memory Packet Switches, 1998). A lone client gets most slots, several get equal shares, and
    some stay free for the next client, without a limit to configure per client.

    Args:
        capacity: Concurrent calls, at least 1.
        clock: Monotonic seconds.
    """

    def __init__(self, capacity: int, clock: Callable[[], float] = monotonic) -> None:
        self.capacity = capacity
        self._clock = clock
        self._by_client: Counter[str] = Counter()
        self._in_use = 0
        self._refused = 0
        self._rate = DrainRate()

    @property
    def in_use(self) -> int:
        """Slots in use."""
        return self._in_use

    def acquire(self, client: str) -> None:
        """Takes a slot; pair it with ``release``.

        Raises:
            Overloaded: No slot is free for this client. Consecutive refusals get increasing retry delays, at the rate
                at which slots become free.
        """
        free = self.capacity - self._in_use
        if free <= 0 or self._by_client[client] >= _SHARE * free:
            self._refused = min(self._refused + 1, self.capacity)
            raise Overloaded("call", self._rate.retry_after_s(self._refused))
        self._in_use += 1
        self._by_client[client] += 1

    def release(self, client: str) -> None:
        """Returns a slot."""
        self._rate.left(self._clock(), others_wait=self._refused > 0, tokens=1)
        self._refused = max(0, self._refused - 1)
        self._in_use -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]


class Timeouts:
    """Maximum durations of calls. They apply if a client sets none or a longer one.

    Args:
        request_s: Of a call, seconds.
        long_call_s: Of a long operation, seconds.
    """

    def __init__(self, request_s: float, long_call_s: float) -> None:
        self.request_s = request_s
        self.long_call_s = long_call_s

    def set(self, request_s: float, long_call_s: float) -> None:
        """Changes the durations for calls that start later, seconds."""
        self.request_s = request_s
        self.long_call_s = long_call_s

    def seconds(self, long: bool, client_timeout_s: float | None) -> float:
        """Returns the maximum duration of a call, seconds.

        Args:
            long: Whether the operation is a long one.
            client_timeout_s: Timeout that the client has set, seconds, or None.
        """
        most = self.long_call_s if long else self.request_s
        return most if client_timeout_s is None else min(most, client_timeout_s)
