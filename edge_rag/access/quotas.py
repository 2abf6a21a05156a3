"""Enforces the quotas of callers: requests, tokens and concurrent requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from edge_rag.core.identity import Identity, Quota
from edge_rag.core.monitoring.metrics import QuotaUse
from edge_rag.errors import QuotaExceeded

_MINUTE_S = 60.0
_BUSY_RETRY_S = 1.0
_UNLIMITED = Quota()

ANONYMOUS_ACCOUNTS: Final = 4096
"""Accounts of callers without a role that are kept, about 0.5 KiB each; beyond that the least recently used is dropped,
which gives its caller a full quota again. Other accounts are as many as there are tokens."""


@dataclass(slots=True)
class _Bucket:
    """A token bucket (Turner, New directions in communications, 1986) with a capacity of one minute."""

    level: float
    filled_at: float

    def refill(self, per_minute: int, now: float) -> None:
        self.level = min(per_minute, self.level + (now - self.filled_at) * per_minute / _MINUTE_S)
        self.filled_at = now

    def seconds_until(self, level: float, per_minute: int) -> float:
        return max(0.0, (level - self.level) * _MINUTE_S / per_minute)


@dataclass(slots=True)
class _Account:
    requests: _Bucket
    tokens: _Bucket
    quota: Quota
    in_flight: int = 0


class QuotaLedger:
    """Counts by identity name. Any thread.

    The tokens of a request are known when it is over and charged then. A caller whose bucket is negative is refused
    until it is refilled.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._accounts: dict[str, _Account] = {}
        self._anonymous: dict[str, _Account] = {}

    @property
    def accounts(self) -> int:
        return len(self._accounts) + len(self._anonymous)

    def acquire(self, identity: Identity) -> None:
        """Starts a call; pair it with ``release``."""
        quota, now = identity.quota, self._clock()
        if quota == _UNLIMITED:
            return
        with self._lock:
            account = self._account(identity, now)
            if quota.concurrent_requests is not None and account.in_flight >= quota.concurrent_requests:
                raise QuotaExceeded(f"{quota.concurrent_requests} requests at once", _BUSY_RETRY_S)
            if quota.tokens_per_minute is not None:
                account.tokens.refill(quota.tokens_per_minute, now)
                if account.tokens.level <= 0:
                    wait_s = account.tokens.seconds_until(1, quota.tokens_per_minute)
                    raise QuotaExceeded(f"{quota.tokens_per_minute} tokens a minute", wait_s)
            if quota.requests_per_minute is not None:
                account.requests.refill(quota.requests_per_minute, now)
                if account.requests.level < 1:
                    wait_s = account.requests.seconds_until(1, quota.requests_per_minute)
                    raise QuotaExceeded(f"{quota.requests_per_minute} requests a minute", wait_s)
                account.requests.level -= 1
            account.in_flight += 1

    def release(self, identity: Identity) -> None:
        if identity.quota == _UNLIMITED:
            return
        with self._lock:
            self._table(identity)[identity.name].in_flight -= 1

    def charge(self, identity: Identity, tokens: int) -> None:
        """Charges tokens to a caller."""
        per_minute = identity.quota.tokens_per_minute
        if per_minute is None:
            return
        now = self._clock()
        with self._lock:
            account = self._account(identity, now)
            account.tokens.refill(per_minute, now)
            account.tokens.level -= tokens

    def read(self) -> tuple[QuotaUse, ...]:
        now = self._clock()
        with self._lock:
            return tuple(_use(name, account, now) for name, account in sorted(self._accounts.items()))

    def _account(self, identity: Identity, now: float) -> _Account:
        table, quota = self._table(identity), identity.quota
        account = table.pop(identity.name, None) or _Account(
            _Bucket(quota.requests_per_minute or 0, now), _Bucket(quota.tokens_per_minute or 0, now), quota
        )
        account.quota = quota
        table[identity.name] = account  # the most recently used is the last
        if table is self._anonymous and len(table) > ANONYMOUS_ACCOUNTS:
            idle = next((name for name, other in table.items() if not other.in_flight and other is not account), None)
            if idle is not None:
                del table[idle]
        return account

    def _table(self, identity: Identity) -> dict[str, _Account]:
        return self._accounts if identity.roles else self._anonymous


def _use(name: str, account: _Account, now: float) -> QuotaUse:
    quota = account.quota

    def left(bucket: _Bucket, per_minute: int | None) -> int | None:
        if per_minute is None:
            return None
        bucket.refill(per_minute, now)
        return max(0, int(bucket.level))

    return QuotaUse(
        name,
        quota.requests_per_minute,
        left(account.requests, quota.requests_per_minute),
        quota.tokens_per_minute,
        left(account.tokens, quota.tokens_per_minute),
        quota.concurrent_requests,
        account.in_flight,
    )
