"""What every call passes, of whatever service: room for it, a bound on its time, and on how long it goes unread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, TypeAlias, cast

import grpc

from edge_rag.errors import CallTimeout, EdgeRagError, InvalidRequest, NotReady, Overloaded, SlowConsumer
from edge_rag.server.grpc import status_codes as status
from edge_rag.server.lifecycle import Lifecycle
from edge_rag.server.limits.concurrency import ConcurrencyLimiter
from edge_rag.server.limits.connections import CancelRateLimiter, Connections, address_of
from edge_rag.server.limits.timeouts import Deadlines
from edge_rag.telemetry.metrics.calls import Metrics

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
ServicerContext = grpc.aio.ServicerContext[Any, Any]

_FIRST_MESSAGE_S: Final = 20.0
"""How long the request of a call that was begun may take to come, seconds."""

_LAST_WORD_S: Final = 10.0
"""How long a client may take to take in how its call ended, seconds; after that its connection is closed."""

_KNOWN_AFTER_S: Final = 0.01
"""After so long it is known of a call that came whether it has been given up since, seconds."""

_STAGES_FIRST_S: Final = 0.5
"""How much longer a call may take than its stages, which can say more exactly where its time went, seconds."""

_ALWAYS: Final = "Check"
"""Who asks whether the daemon is well gets an answer, however busy it is."""


class AdmissionInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Stands before every service, health and reflection too.

    Handlers are called as if both sides streamed, whatever they are: so a call can be refused before its request was
    read, and one whose request never comes has an end.

    Args:
        places: Room for calls.
        deadlines: How long each may take.
        unread_s: How long a client may leave a message unread, seconds.
        gate: Knows whether the daemon is draining.
        connections: Closes those of clients that do not even take in how their call ended, or give up too many.
        metrics: Counts calls that are refused here.
    """

    def __init__(
        self,
        places: ConcurrencyLimiter,
        deadlines: Deadlines,
        unread_s: float,
        gate: Lifecycle,
        connections: Connections,
        metrics: Metrics,
    ) -> None:
        self._places = places
        self._deadlines = deadlines
        self._unread_s = unread_s
        self._gate = gate
        self._connections = connections
        self._metrics = metrics
        self._resets = CancelRateLimiter()
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
            await self._let_through(method, handler, context)

        return grpc.stream_stream_rpc_method_handler(
            cast(Any, serve), handler.request_deserializer, handler.response_serializer
        )

    async def _let_through(self, method: str, handler: Handler, context: ServicerContext) -> None:
        if method == _ALWAYS:
            await self._serve(method, handler, context)
            return
        caller = address_of(context.peer())
        try:
            if self._resets.hasty(caller):
                await asyncio.sleep(_KNOWN_AFTER_S)
            await self._with_a_place(caller, method, handler, context)
        except asyncio.CancelledError:
            if self._resets.another(caller):
                self._connections.shut_out(context.peer(), "it gives up too many calls")
            raise

    async def _with_a_place(self, caller: str, method: str, handler: Handler, context: ServicerContext) -> None:
        try:
            self._places.take(caller)
        except Overloaded as refusal:
            self._refuse(method, NotReady("the daemon is shutting down") if self._gate.draining else refusal, context)
            return
        try:
            await self._serve(method, handler, context)
        finally:
            self._places.leave(caller)

    def _refuse(self, method: str, error: EdgeRagError, context: ServicerContext) -> None:
        """Has a call end with this, once its handler returns.

        ``context.abort`` raises, and its exception and frames hold each other and the call: garbage that only a
        collection finds. At a thousand refusals a second all threads waited for one for 0.1 s every other second.
        """
        code = status.STATUS[type(error)]
        self._metrics.requests.labels(method, code.name).inc()
        context.set_code(code)
        context.set_details(str(error))
        context.set_trailing_metadata(status.trailers(error))

    async def _serve(self, method: str, handler: Handler, context: ServicerContext) -> None:
        seconds = self._deadlines.seconds(method, context.time_remaining())
        try:
            async with asyncio.timeout(seconds + _STAGES_FIRST_S):
                await self._run(handler, context)
        except TimeoutError:
            await self._end(context, CallTimeout(f"the call took longer than {seconds:g} s"))
        except (CallTimeout, InvalidRequest, SlowConsumer) as error:
            await self._end(context, error)

    async def _run(self, handler: Handler, context: ServicerContext) -> None:
        silent_s = self._deadlines.request_s if handler.request_streaming else _FIRST_MESSAGE_S
        async with aclosing(heard(context, silent_s)) as messages:
            request = messages if handler.request_streaming else await anext(messages, None)
            if request is None:
                raise InvalidRequest("request", "did not come, or could not be taken")
            method = _function(handler)
            if not handler.response_streaming:
                await self._write(context, await method(request, context))
            elif inspect.isasyncgenfunction(method):
                await self._stream(method(request, context), context)
            else:
                await method(request, context)

    async def _stream(self, responses: AsyncGenerator[Any, None], context: ServicerContext) -> None:
        async with aclosing(responses):
            async for response in responses:
                try:
                    await self._write(context, response)
                except SlowConsumer as error:
                    await self._within_last_word(context, responses.athrow(error))

    async def _write(self, context: ServicerContext, response: Any) -> None:
        try:
            async with asyncio.timeout(self._unread_s):
                await context.write(response)
        except TimeoutError:
            raise SlowConsumer(self._unread_s) from None

    async def _end(self, context: ServicerContext, error: EdgeRagError) -> None:
        """Ends a call that has not been ended."""
        if not context.done():
            code = status.STATUS[type(error)]
            await self._within_last_word(context, context.abort(code, str(error), status.trailers(error)))

    async def _within_last_word(self, context: ServicerContext, ending: Awaitable[object]) -> None:
        """Lets a call end; a client that does not take that in loses its connection."""
        try:
            async with asyncio.timeout(_LAST_WORD_S):
                await ending
        except TimeoutError:
            self._connections.cut(context.peer(), "it takes nothing in")


def _function(handler: Handler) -> Callable[[Any, ServicerContext], Any]:
    """Returns what a service implements a method with."""
    if handler.request_streaming:
        function = handler.stream_stream if handler.response_streaming else handler.stream_unary
    else:
        function = handler.unary_stream if handler.response_streaming else handler.unary_unary
    return cast(Callable[[Any, ServicerContext], Any], function)


async def heard(context: ServicerContext, silent_s: float) -> AsyncGenerator[Any, None]:
    """Yields what a client sends.

    gRPC's own iterator holds its call and is held by it: garbage that only a collection finds.

    Args:
        context: Of the call.
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
