"""What all calls to a daemon have in common: the address, deadlines and retries."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar

import grpc.aio

from edge_rag.client.channel import server_address
from edge_rag.client.credentials import Credentials, credentials_for
from edge_rag.client.errors import ClientError, RetryPolicy
from edge_rag.client.transport import AsyncTransport

_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")
_Result = TypeVar("_Result")


class AsyncConnection:
    """A connection to one daemon."""

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.address = server_address(address)
        self._timeout_s = timeout_s
        self._retry = retry or RetryPolicy()
        self._transport = AsyncTransport(self.address, credentials or credentials_for(self.address))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels all calls and closes the connection."""
        await self._transport.close()

    async def _call(
        self, rpc: grpc.aio.UnaryUnaryMultiCallable[_Request, _Reply], request: _Request, *, repeat: bool = True
    ) -> _Reply:
        """Makes a call with one request and one reply, and repeats it as the retry policy says."""
        if not repeat:
            return await self._transport.call(rpc, request, self._timeout_s)
        return await self._repeat(lambda timeout_s: self._transport.call(rpc, request, timeout_s))

    async def _upload(
        self,
        rpc: grpc.aio.StreamUnaryMultiCallable[_Request, _Reply],
        requests: Callable[[], Iterable[_Request]],
    ) -> _Reply:
        """Makes a call with a stream of requests, made anew for each attempt, and one reply; repeats it likewise."""
        return await self._repeat(lambda timeout_s: self._transport.upload(rpc, requests(), timeout_s))

    async def _repeat(self, attempt: Callable[[float | None], Awaitable[_Result]]) -> _Result:
        """Repeats a call as the retry policy says.

        Args:
            attempt: Makes one attempt with a deadline in so many seconds; None for no deadline.
        """
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        waited_s, failures = 0.0, 0
        while True:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                return await attempt(left_s)
            except ClientError as error:
                failures += 1
                delay_s = self._retry.delay(error, failures, waited_s, random.random())
                if delay_s is None or (left_s is not None and delay_s >= left_s):
                    raise
            await self._transport.sleep(delay_s)
            waited_s += delay_s
