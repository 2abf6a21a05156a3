"""The gRPC server interceptor: admission, timeouts and slow clients, for calls of every service."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, TypeAlias, cast

import grpc

from edge_rag.core.address import network_of_peer
from edge_rag.errors import CallTimeout, EdgeRagError, InvalidRequest, SlowConsumer
from edge_rag.server.grpc.call import REQUEST_ID, ServicerContext, error_status, grpc_status, metadata_value
from edge_rag.server.limits.connections import Connections
from edge_rag.service.call import CallContext, CallFailed

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_FIRST_MESSAGE_S: Final = 20.0
"""How long the request message of a started call may take, seconds."""

_STATUS_S: Final = 10.0
"""How long a client may take to receive the status of its call, seconds; after that its connection is closed."""

_CANCEL_DELAY_S: Final = 0.01
"""How long a call of a client that cancels many is delayed, seconds; by then its cancellation has arrived."""

_STAGES_FIRST_S: Final = 0.5
"""How much longer a call may take than its stages, seconds; their errors say more precisely where the time went."""

_HEALTH_CHECK: Final = "Check"
"""Health checks bypass admission control."""


class AdmissionInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps the handlers of all services, health and reflection included.

    Every handler is called as a bidirectional stream. This allows refusing a call before its request is read, and
    ending one whose request never arrives.

    Args:
        calls: Admits calls.
        slow_client_s: How long a client may leave a message unread, seconds.
        long_methods: Names of the RPCs that ``limits.long_call_seconds`` applies to.
        connections: Closes connections of clients that do not read even the status, or cancel too many calls.
    """

    def __init__(
        self, calls: CallContext, slow_client_s: float, long_methods: frozenset[str], connections: Connections
    ) -> None:
        self._calls = calls
        self._slow_client_s = slow_client_s
        self._long_methods = long_methods
        self._connections = connections
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(  # noqa: D102 - described by gRPC
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        path = handler_call_details.method
        wrapped = self._wrapped.get(path)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None  # type: ignore[return-value]
            wrapped = self._wrapped[path] = self._wrap(path.rpartition("/")[2], handler)
        return wrapped

    def _wrap(self, method: str, handler: Handler) -> Handler:
        async def serve(_: AsyncIterator[Any], context: ServicerContext) -> None:
            await self._admit(method, handler, context)

        return grpc.stream_stream_rpc_method_handler(
            cast(Any, serve), handler.request_deserializer, handler.response_serializer
        )

    async def _admit(self, method: str, handler: Handler, context: ServicerContext) -> None:
        if method == _HEALTH_CHECK:
            await self._serve(method, handler, context)
            return
        client = network_of_peer(context.peer())
        try:
            if self._connections.is_cancelling(context.peer()):
                await asyncio.sleep(_CANCEL_DELAY_S)
            await self._serve_in_slot(client, method, handler, context)
        except asyncio.CancelledError:
            self._connections.call_cancelled(context.peer())
            raise

    async def _serve_in_slot(self, client: str, method: str, handler: Handler, context: ServicerContext) -> None:
        try:
            self._calls.acquire(method, client, context.peer(), metadata_value(context, REQUEST_ID) or "")
        except CallFailed as refusal:
            _set_status(context, refusal)
            return
        try:
            await self._serve(method, handler, context)
        finally:
            self._calls.release(client)

    async def _serve(self, method: str, handler: Handler, context: ServicerContext) -> None:
        seconds = self._calls.timeouts.seconds(method in self._long_methods, context.time_remaining())
        try:
            async with asyncio.timeout(seconds + _STAGES_FIRST_S):
                await self._run(handler, context)
        except TimeoutError:
            await self._end(context, CallTimeout(f"the call took longer than {seconds:g} s"))
        except (CallTimeout, InvalidRequest, SlowConsumer) as error:
            await self._end(context, error)

    async def _run(self, handler: Handler, context: ServicerContext) -> None:
        silent_s = self._calls.timeouts.request_s if handler.request_streaming else _FIRST_MESSAGE_S
        async with aclosing(received(context, silent_s)) as messages:
            request = messages if handler.request_streaming else await anext(messages, None)
            if request is None:
                raise InvalidRequest("request", "is missing or could not be decoded")
            function = _function(handler)
            if not handler.response_streaming:
                await self._write(context, await function(request, context))
            elif inspect.isasyncgenfunction(function):
                await self._stream(function(request, context), context)
            else:
                await function(request, context)

    async def _stream(self, responses: AsyncGenerator[Any, None], context: ServicerContext) -> None:
        async with aclosing(responses):
            async for response in responses:
                try:
                    await self._write(context, response)
                except SlowConsumer as error:
                    await self._send_status(context, responses.athrow(error))

    async def _write(self, context: ServicerContext, response: Any) -> None:
        try:
            async with asyncio.timeout(self._slow_client_s):
                await context.write(response)
        except TimeoutError:
            raise SlowConsumer(self._slow_client_s) from None

    async def _end(self, context: ServicerContext, error: EdgeRagError) -> None:
        if not context.done():
            await self._send_status(context, context.abort(*error_status(error)))

    async def _send_status(self, context: ServicerContext, ending: Awaitable[object]) -> None:
        """Ends a call; closes the connection of a client that does not receive the status."""
        try:
            async with asyncio.timeout(_STATUS_S):
                await ending
        except TimeoutError:
            self._connections.cut(context.peer(), "it does not read the status of its call")


def _set_status(context: ServicerContext, refusal: CallFailed) -> None:
    """Sets the status with which a call ends when its handler returns.

    ``context.abort`` raises, and its exception and frames form a reference cycle with the call, which only a garbage
    collection frees. At a thousand refusals a second all threads waited 0.1 s for one every other second.
    """
    code, details, trailers = grpc_status(refusal)
    context.set_code(code)
    context.set_details(details)
    context.set_trailing_metadata(trailers)


def _function(handler: Handler) -> Callable[[Any, ServicerContext], Any]:
    """Returns the servicer's method."""
    if handler.request_streaming:
        function = handler.stream_stream if handler.response_streaming else handler.stream_unary
    else:
        function = handler.unary_stream if handler.response_streaming else handler.unary_unary
    return cast(Callable[[Any, ServicerContext], Any], function)


async def received(context: ServicerContext, silent_s: float) -> AsyncGenerator[Any, None]:
    """Yields the messages of a client.

    gRPC's own iterator forms a reference cycle with its call, which only a garbage collection frees.

    Args:
        context: The call.
        silent_s: How long the client may take between two messages, seconds.

    Raises:
        CallTimeout: It took longer.
    """
    while True:
        try:
            async with asyncio.timeout(silent_s):
                message = await context.read()
        except TimeoutError:
            raise CallTimeout(f"nothing came from the client for {silent_s:g} s") from None
        if message is grpc.aio.EOF:  # type: ignore[attr-defined]
            return
        yield message
