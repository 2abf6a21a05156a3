"""The rate limit of cancelled calls (HTTP/2 rapid reset)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final


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
"""Limits of all others. What a stranger cancels was refused or was a health check."""

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
    bucket was last full: only a connection with many of them is to blame.

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
