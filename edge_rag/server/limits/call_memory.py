"""Memory of one call's messages, for every transport."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from edge_rag.service.limits import MessageBudget

_SMALL_BYTES: Final = 16 << 10
"""Messages up to this size are not counted once they are received, nor when sent: they fit gRPC's own buffers."""

_MEMORY_WAIT_S: Final = 20.0
"""How long a message waits for memory before its call is refused, seconds."""

_UPLOADS: Final = " (uploads)"
_ANSWERS: Final = " (answers)"
"""Accounts of their own: open uploads that wait for their clients, and answers that nobody reads, leave room for the
other calls of the same caller."""


class CallMemory:
    """The share of the message budget that one call holds. Pair with ``close``.

    A message is received only after memory for the largest one is reserved, unless its size is announced. A stream
    keeps that memory: otherwise a stream that sends would wait for those that do not.

    Args:
        account: Whose share of the budget they take; None if they need none.
    """

    def __init__(self, budget: MessageBudget, account: str | None, streaming: bool = False) -> None:
        self._budget = budget
        self._answers = None if account is None else account + _ANSWERS
        self._account = account + _UPLOADS if account is not None and streaming else account
        self._streaming = streaming
        self._held = 0  # bytes reserved for received messages

    async def reserve(self, most_bytes: int) -> None:
        """Reserves memory for the next message, unless that is held."""
        if self._account is not None and not self._held:
            self._held = await self._budget.reserve(self._account, most_bytes, _MEMORY_WAIT_S, stream=self._streaming)

    def received(self, size: int) -> None:
        """Returns the memory that a received message does not need; a stream keeps all."""
        if not self._streaming:
            self._shrink(size if size > _SMALL_BYTES else 0)

    @asynccontextmanager
    async def sending(self, size: int) -> AsyncIterator[None]:
        """Holds memory for a message while it is sent."""
        if self._answers is None or size <= _SMALL_BYTES:
            yield
            return
        if not self._streaming:
            # It has read its request; while it waits for memory, others must not wait for that.
            self.close()
        reserved = await self._budget.reserve(self._answers, size, _MEMORY_WAIT_S, exists=True)
        try:
            yield
        finally:
            self._budget.release(self._answers, reserved)

    def close(self) -> None:
        self._shrink(0)

    def _shrink(self, size: int) -> None:
        if self._account is not None and self._held > size:
            self._budget.release(self._account, self._held - size, stream=self._streaming)
            self._held = size
