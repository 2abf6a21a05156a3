"""The messages of a call: received and sent within the message budget, and decoded here instead of in gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from edge_rag.errors import CallTimeout, SlowConsumer, UndecodableMessage
from edge_rag.server.grpc.call import ServicerContext
from edge_rag.server.limits.call_memory import CallMemory
from edge_rag.service.limits import MessageBudget


class CallMessages:
    """The messages of one call. Pair with ``close``.

    A message is received only after memory for the largest one is reserved, because gRPC reports its size when it has
    all of it. An error of the decoder inside gRPC would end the call with the status UNKNOWN and a traceback.

    Args:
        account: Whose share of the budget they take; None if they need none.
        silent_s: How long the client may take between two messages, seconds.
        slow_client_s: How long the client may leave a message unread, seconds.
    """

    def __init__(
        self,
        context: ServicerContext,
        handler: grpc.RpcMethodHandler[Any, Any],
        budget: MessageBudget,
        account: str | None,
        message_bytes: int,
        silent_s: float,
        slow_client_s: float,
    ) -> None:
        self._context = context
        self._handler = handler
        self._memory = CallMemory(budget, account, handler.request_streaming)
        self._message_bytes = message_bytes
        self._silent_s = silent_s
        self._slow_client_s = slow_client_s
        self._first: asyncio.Future[None] | None = None

    async def receive(self) -> Any:
        """Returns the next message; ``grpc.aio.EOF`` after the last one.

        gRPC's own iterator forms a reference cycle with its call, which only a garbage collection frees.
        """
        await self._memory.reserve(self._message_bytes)
        try:
            async with asyncio.timeout(self._silent_s):
                data = await self._context.read()
        except TimeoutError:
            raise CallTimeout(f"nothing came from the client for {self._silent_s:g} s") from None
        if data is grpc.aio.EOF:  # type: ignore[attr-defined]
            self.close()
            return data
        self._memory.received(len(data))
        decode = self._handler.request_deserializer
        try:
            return data if decode is None else decode(data)
        except (DecodeError, ValueError, RecursionError):
            raise UndecodableMessage from None

    async def requests(self) -> AsyncGenerator[Any, None]:
        while (message := await self.receive()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            yield message

    async def send(self, response: Any) -> None:
        encode = self._handler.response_serializer
        data = response if encode is None else encode(response)
        del response  # while the message waits, its bytes are all that is kept
        async with self._memory.sending(len(data)):
            await self._write(data)

    def close(self) -> None:
        self._memory.close()

    async def sent_first(self) -> None:
        """Waits until the first message of which the sending began is sent, or cannot be sent any more.

        It takes the headers along. With a status that comes before it is sent, gRPC sends the headers once more, which
        its core refuses, and the call never ends.
        """
        if self._first is not None and not self._first.done():
            await asyncio.wait([self._first])

    async def _write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._slow_client_s):
                if self._first is None:
                    self._first = asyncio.ensure_future(self._context.write(data))
                    await asyncio.shield(self._first)
                else:
                    await self._context.write(data)
        except TimeoutError:
            raise SlowConsumer(self._slow_client_s) from None
