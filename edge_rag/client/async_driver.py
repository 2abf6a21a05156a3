"""Takes the steps of calls on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from google.protobuf.message import Message

from edge_rag.client.call_flow import (
    Begin,
    CallOptions,
    Done,
    Exchange,
    Flow,
    Method,
    Pause,
    Receive,
    RetryPolicy,
    Step,
    Streaming,
    Tell,
    Work,
    failed,
    resumed,
)
from edge_rag.client.channel import open_async_channel, server_address
from edge_rag.client.credentials import Credentials, credentials_for
from edge_rag.client.failures import ClientError, cancelled, client_error

T = TypeVar("T")


class AsyncDriver:
    """A connection to one daemon whose calls let the event loop go on.

    Attributes:
        address: The daemon.
        terms: What holds for all calls.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.address = server_address(address)
        self.terms = CallOptions(self.address, timeout_s, retry or RetryPolicy())
        self._credentials = credentials or credentials_for(self.address)
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels every call under way and closes the connection."""
        if self._channel is not None:
            await self._channel.close(None)

    async def complete(self, flow: Flow[T]) -> T:
        """Takes all steps of a call that has one result, and returns it."""
        link = self._link()
        try:
            while not isinstance(now := await _advanced(flow, link), Done):
                pass
            return now.result
        finally:
            link.close()
            flow.close()

    async def iterate(self, flow: Streaming[T]) -> AsyncGenerator[T, None]:
        """Takes the steps of a call up to the next value it tells; closing the generator cancels the call."""
        link = self._link()
        try:
            while isinstance(now := await _advanced(flow, link), Tell):
                yield now.value
        finally:
            link.close()
            flow.close()

    def _link(self) -> _Link:
        if self._channel is None:  # not before: a channel belongs to the event loop that runs when it is made
            self._channel = open_async_channel(self.address, self._credentials)
        return _Link(self._channel, self.address)


async def _advanced(flow: Generator[Step | Tell[Any], Any, T], link: _Link) -> Tell[Any] | Done[T]:
    step = resumed(flow)
    while not isinstance(step, Tell | Done):
        try:
            outcome = await link.take(step)
        except (ClientError, OSError) as error:
            step = failed(flow, error)
        else:
            step = resumed(flow, outcome)
    return step


class _Link:
    """Takes the steps of one call after the other."""

    def __init__(self, channel: grpc.aio.Channel, address: str) -> None:
        self._channel = channel
        self._address = address
        self._call: grpc.aio.Call | None = None
        self._replies: AsyncIterator[Message] | None = None
        self._sending: _Sending | None = None

    async def take(self, step: Step) -> object:
        """Takes a step and returns what came of it.

        Raises:
            ClientError: The call failed.
            OSError: What was to be sent could not be read, or work failed.
        """
        try:
            match step:
                case Exchange():
                    return await self._exchange(step)
                case Begin():
                    self._begin(step)
                case Receive():
                    return None if self._replies is None else await anext(self._replies, None)
                case Pause():
                    await asyncio.sleep(step.seconds)
                case Work():
                    return await asyncio.to_thread(step.action)
            return None
        except asyncio.CancelledError as failure:
            if _is_to_stop():
                raise
            self._raise_what_kept_from_sending()
            raise cancelled() from failure
        except grpc.RpcError as failure:
            self._raise_what_kept_from_sending()
            raise client_error(failure, self._address) from failure

    def close(self) -> None:
        """Ends the stream that was begun last, if it has not ended."""
        if self._call is not None:
            self._call.cancel()
            self._call = self._replies = None

    async def _exchange(self, step: Exchange) -> object:
        method = step.method
        if isinstance(step.request, Message):
            return await self._channel.unary_unary(method.path, *_codecs(method))(step.request, timeout=step.timeout_s)
        self._sending = sending = _Sending(step.request)
        call = self._channel.stream_unary(method.path, *_codecs(method))(aiter(sending), timeout=step.timeout_s)
        sending.bind(call)
        return await call

    def _begin(self, step: Begin) -> None:
        self.close()
        method, timeout_s, wait = step.method, step.timeout_s, step.wait_for_ready
        call: grpc.aio.UnaryStreamCall[Any, Any] | grpc.aio.StreamStreamCall[Any, Any]
        if isinstance(step.request, Message):
            call = self._channel.unary_stream(method.path, *_codecs(method))(
                step.request, timeout=timeout_s, wait_for_ready=wait
            )
        else:
            self._sending = sending = _Sending(step.request)
            call = self._channel.stream_stream(method.path, *_codecs(method))(
                aiter(sending), timeout=timeout_s, wait_for_ready=wait
            )
            sending.bind(call)
        self._call, self._replies = call, aiter(call)

    def _raise_what_kept_from_sending(self) -> None:
        if self._sending is not None and self._sending.error is not None:
            raise self._sending.error from None


class _Sending:
    """Requests on their way, each made on another thread. What they raise ends the call and is kept."""

    def __init__(self, requests: Iterable[Message]) -> None:
        self.error: OSError | ClientError | None = None
        self._requests = iter(requests)
        self._call: grpc.aio.Call | None = None

    def bind(self, call: grpc.aio.Call) -> None:
        """Names the call that the requests belong to; must follow its start."""
        self._call = call

    async def __aiter__(self) -> AsyncIterator[Message]:
        try:
            while (request := await asyncio.to_thread(next, self._requests, None)) is not None:
                yield request
        except (OSError, ClientError) as error:
            self.error = error
            if self._call is not None:
                self._call.cancel()


def _is_to_stop() -> bool:
    """Whether it is this task that was cancelled, and not only the call that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _codecs(method: Method[Any, Any]) -> tuple[Any, Any]:
    return method.request.SerializeToString, method.reply.FromString
