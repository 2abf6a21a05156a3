"""Limits of concurrent calls, of messages in memory and of a call's duration."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from edge_rag.core.limits.drain_rate import DrainRate
from edge_rag.errors import Overloaded

_SHARE: Final = 3
"""A client may hold up to this many times the free slots; a lone client gets three quarters of all slots."""

ANONYMOUS_CALLS: Final = 16
"""Calls of callers that are not identified, at once."""

_ANONYMOUS_CALLS_PER_NETWORK: Final = 4
"""Those of one network, at once."""

_ANONYMOUS_RETRY_S: Final = 1.0
"""When a caller that is not identified may try again, seconds."""

ANONYMOUS_S: Final = 120.0
"""Longest duration of a call of such a caller, seconds."""


class ConcurrencyLimiter:
    """Counts calls by client. For one event loop.

    A client gets a slot while it holds fewer than ``3 *`` the free slots (Choudhury and Hahne, Dynamic Queue Length
    Thresholds for Shared-Memory Packet Switches, 1998). A lone client gets most slots, several get equal shares, and
    some stay free for the next client, without a limit to configure per client.
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
        return self._in_use

    def acquire(self, client: str) -> None:
        """Takes a slot; pair it with ``release``."""
        free = self.capacity - self._in_use
        if free <= 0 or self._by_client[client] >= _SHARE * free:
            self._refused = min(self._refused + 1, self.capacity)
            raise Overloaded("call", self._rate.retry_after_s(self._refused))
        self._in_use += 1
        self._by_client[client] += 1

    def release(self, client: str) -> None:
        self._rate.left(self._clock(), others_wait=self._refused > 0, tokens=1)
        self._refused = max(0, self._refused - 1)
        self._in_use -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]


class AnonymousPool:
    """Slots for calls of callers that are not identified. For one event loop.

    Whoever waits for nothing, holds on to its slot or comes in numbers loses it to a newcomer: a call displaces the
    oldest one of its own network if that has all it may have, else, in a full pool, the oldest one of the network with
    the most calls. Only calls at work (``AnonymousSlot.keep``) stay, which are short.

    Args:
        per_network: Concurrent calls of one network, at least 1; see ``core.address.network_of``.
    """

    def __init__(self, capacity: int = ANONYMOUS_CALLS, per_network: int = _ANONYMOUS_CALLS_PER_NETWORK) -> None:
        self._capacity = capacity
        self._per_network = per_network
        self._slots: dict[AnonymousSlot, None] = {}  # the oldest first
        self._by_network: Counter[str] = Counter()

    @property
    def in_use(self) -> int:
        return len(self._slots)

    def acquire(self, network: str, displace: Callable[[], None]) -> AnonymousSlot:
        """Takes a slot; pair it with ``AnonymousSlot.release``."""
        if self._by_network[network] >= self._per_network:
            self._displace([slot for slot in self._slots if slot.network == network])
        elif len(self._slots) >= self._capacity:
            # Sorting is stable: among equals, the oldest stays first.
            self._displace(sorted(self._slots, key=lambda slot: -self._by_network[slot.network]))
        slot = AnonymousSlot(network, displace, self.release)
        self._slots[slot] = None
        self._by_network[network] += 1
        return slot

    def release(self, slot: AnonymousSlot) -> None:
        if slot in self._slots:
            del self._slots[slot]
            self._by_network[slot.network] -= 1
            if not self._by_network[slot.network]:
                del self._by_network[slot.network]

    def _displace(self, candidates: list[AnonymousSlot]) -> None:
        for slot in candidates:
            if not slot.at_work:
                self.release(slot)
                slot.displace()
                return
        raise Overloaded("call", _ANONYMOUS_RETRY_S)


@dataclass(slots=True, eq=False)
class AnonymousSlot:
    """A slot of an ``AnonymousPool``."""

    network: str
    displace: Callable[[], None]
    on_release: Callable[[AnonymousSlot], None]
    at_work: bool = False

    def keep(self) -> None:
        """Says that the request has come and is being worked on: the call is not displaced any more."""
        self.at_work = True

    def release(self) -> None:
        self.on_release(self)


MESSAGE_MEMORY_BYTES: Final = 32 << 20
"""Memory for messages that are being received and for answers that clients have not read."""

_MESSAGE_RETRY_S: Final = 1.0
"""When a caller whose message found no memory may try again, seconds."""


class MessageBudget:
    """Bytes of messages in memory: requests that are being received, and responses that clients have not read yet.

    For one event loop. An account gets bytes while it holds fewer than are free (dynamic thresholds as in
    ``ConcurrencyLimiter``, with a factor of 1): a lone account gets half, and half of the rest remains for the next.
    One that is over its share waits, and others pass it. Streams, which keep their memory until they end, get three
    quarters together, so that many open uploads leave room for questions.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._held: Counter[str] = Counter()
        self._free = capacity_bytes
        self._free_for_streams = capacity_bytes * 3 // 4
        self._unbudgeted = 0  # bytes of messages that wait
        self._waiting: list[_Waiting] = []

    @property
    def in_use(self) -> int:
        return self.capacity_bytes - self._free

    async def reserve(
        self, account: str, wanted_bytes: int, wait_s: float, *, stream: bool = False, exists: bool = False
    ) -> int:
        """Reserves memory for a message; pair it with ``release``.

        Args:
            stream: Whether a stream keeps the memory until it ends.
            exists: Whether the message is in memory while it waits; such messages have a quarter of the budget on top.

        Returns:
            The bytes to release.
        """
        bytes_ = min(wanted_bytes, self.capacity_bytes * 3 // 4 if stream else self.capacity_bytes)
        waiting = _Waiting(account, bytes_, stream, asyncio.get_running_loop().create_future())
        if self._grant(waiting):
            return bytes_
        unbudgeted = bytes_ if exists else 0
        if self._unbudgeted + unbudgeted > self.capacity_bytes // 4:
            raise Overloaded("message", _MESSAGE_RETRY_S)
        self._unbudgeted += unbudgeted
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(wait_s):
                await waiting.granted
        except BaseException as ended:
            if waiting.granted.done() and not waiting.granted.cancelled():
                self.release(account, bytes_, stream=stream)
            else:
                self._waiting.remove(waiting)
            if isinstance(ended, TimeoutError):
                raise Overloaded("message", _MESSAGE_RETRY_S) from None
            raise
        finally:
            self._unbudgeted -= unbudgeted
        return bytes_

    def release(self, account: str, bytes_: int, *, stream: bool = False) -> None:
        """Returns reserved memory, or a part of it, and grants what fits to those who wait, the oldest first."""
        self._free += bytes_
        self._free_for_streams += bytes_ if stream else 0
        self._held[account] -= bytes_
        if not self._held[account]:
            del self._held[account]
        if self._waiting:
            self._waiting = [waiting for waiting in self._waiting if not self._grant(waiting)]

    def _grant(self, waiting: _Waiting) -> bool:
        free = min(self._free, self._free_for_streams) if waiting.stream else self._free
        if waiting.granted.done() or waiting.bytes > free or self._held[waiting.account] >= self._free:
            return False
        self._free -= waiting.bytes
        self._free_for_streams -= waiting.bytes if waiting.stream else 0
        self._held[waiting.account] += waiting.bytes
        waiting.granted.set_result(None)
        return True


@dataclass(slots=True, eq=False)
class _Waiting:
    account: str
    bytes: int
    stream: bool
    granted: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What calls share."""

    calls: ConcurrencyLimiter
    anonymous: AnonymousPool
    messages: MessageBudget


class Timeouts:
    """Maximum durations of calls. They apply if a client sets none or a longer one."""

    def __init__(self, request_s: float, long_call_s: float) -> None:
        self.request_s = request_s
        self.long_call_s = long_call_s

    def set(self, request_s: float, long_call_s: float) -> None:
        """Changes the durations for calls that start later, seconds."""
        self.request_s = request_s
        self.long_call_s = long_call_s

    def seconds(self, long: bool, client_timeout_s: float | None, anonymous: bool = False) -> float:
        """Returns the maximum duration of a call, seconds."""
        most = self.long_call_s if long else self.request_s
        if anonymous:
            most = min(most, ANONYMOUS_S)
        return most if client_timeout_s is None else min(most, client_timeout_s)
