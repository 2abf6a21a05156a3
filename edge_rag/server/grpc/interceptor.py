"""The gRPC server interceptor: admission, timeouts and slow clients, for calls of every service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import grpc

from edge_rag.errors import CallTimeout, EdgeRagError, InvalidRequest, Overloaded, SlowConsumer, UndecodableMessage
from edge_rag.server.grpc.call import (
    ADMITTED,
    REQUEST_ID,
    AdmittedCall,
    CallMessages,
    GrpcStatus,
    ServicerContext,
    credentials,
    error_status,
    grpc_status,
    metadata_value,
)
from edge_rag.server.limits.connections import CANCEL_DELAY_S, Connections
from edge_rag.service.call import (
    IDENTIFIED_REFUSALS,
    STAGES_FIRST_S,
    Admission,
    CallContext,
    CallFailed,
    Operation,
)

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_FIRST_MESSAGE_S: Final = 20.0
"""How long the request message of a started call may take, seconds."""

_STATUS_S: Final = 10.0
"""How long a client may take to receive the status of a failed call, seconds; after that its connection is closed. The
status of others comes after data, for which ``limits.slow_client_seconds`` applies."""

_DISPLACED_RETRY_S: Final = 1.0
"""When a caller without identity whose call was displaced may try again, seconds."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """A method of a service."""

    operation: Operation
    handler: Handler
    function: Callable[[Any, ServicerContext], Any]


class AdmissionInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps the handlers of all services, health and reflection included.

    Every handler is called as a bidirectional stream of bytes. This allows identifying the caller and refusing a call
    before its request is read, and ending one whose request never arrives.

    Args:
        slow_client_s: How long a client may leave a message unread, seconds.
    """

    def __init__(self, calls: CallContext, slow_client_s: float, message_bytes: int, connections: Connections) -> None:
        self._calls = calls
        self._slow_client_s = slow_client_s
        self._message_bytes = message_bytes
        self._connections = connections
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
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
            wrapped = self._wrapped[path] = self._wrap(handler)
        return wrapped

    def _wrap(self, handler: Handler) -> Handler:
        function = _function(handler)
        rpc = Rpc(cast(Any, function).operation, handler, function)

        async def serve(_: AsyncIterator[Any], context: ServicerContext) -> None:
            await self._admit(rpc, context)

        return grpc.stream_stream_rpc_method_handler(cast(Any, serve))

    async def _admit(self, rpc: Rpc, context: ServicerContext) -> None:
        metadata = tuple(context.invocation_metadata() or ())
        known = credentials(context, metadata)
        peer = known.peer
        try:
            if self._connections.is_cancelling(peer):
                await asyncio.sleep(CANCEL_DELAY_S)
            displacing = _Displacing()
            request_id = metadata_value(metadata, REQUEST_ID) or ""
            try:
                admission = self._calls.admit(rpc.operation, known, request_id, displacing)
            except CallFailed as refusal:
                if refusal.code in IDENTIFIED_REFUSALS and not rpc.operation.anonymous:
                    self._connections.identified(peer)
                _set_status(context, grpc_status(refusal))
                return
            if admission.identity is not None:
                self._connections.identified(peer)
            ending = _Ending(admission)
            # The slot is held until the status is sent: unread messages are in memory until then.
            cast("asyncio.Task[None]", asyncio.current_task()).add_done_callback(ending.ended)
            ADMITTED.set(AdmittedCall(rpc.operation, known, metadata, admission.identity))
            messages = self._messages(rpc, admission, context)
            await self._serve(rpc, admission, displacing, messages, context)
            seconds = self._slow_client_s if context.code() is None else _STATUS_S
            ending.limit(seconds, lambda: self._connections.cut(peer, "it does not read the status of its call"))
            await messages.sent_first()
        except asyncio.CancelledError:
            self._connections.call_cancelled(peer)
            raise

    def _messages(self, rpc: Rpc, admission: Admission, context: ServicerContext) -> CallMessages:
        silent_s = self._calls.timeouts.request_s if rpc.handler.request_streaming else _FIRST_MESSAGE_S
        return CallMessages(
            context,
            rpc.handler,
            self._calls.messages,
            admission.account,
            self._message_bytes,
            silent_s,
            self._slow_client_s,
        )

    async def _serve(
        self, rpc: Rpc, admission: Admission, displacing: _Displacing, messages: CallMessages, context: ServicerContext
    ) -> None:
        anonymous = admission.identity is None
        seconds = self._calls.timeouts.seconds(rpc.operation.long, context.time_remaining(), anonymous)
        try:
            async with asyncio.timeout(seconds + STAGES_FIRST_S) as timeout:
                displacing.timeout = timeout
                await self._run(rpc, admission, messages, context)
        except TimeoutError:
            error = CallTimeout(f"the call took longer than {seconds:g} s")
            ended = Overloaded("call", _DISPLACED_RETRY_S) if displacing.displaced else error
            _set_status(context, error_status(ended))
        except CallFailed as failed:
            _set_status(context, grpc_status(failed))
        except (UndecodableMessage, Overloaded) as refusal:
            _set_status(context, grpc_status(self._refused(rpc, refusal)))
        except EdgeRagError as failed:
            _set_status(context, error_status(failed))
        finally:
            displacing.timeout = None
            messages.close()

    def _refused(self, rpc: Rpc, error: EdgeRagError) -> CallFailed:
        call = ADMITTED.get()
        client = call.credentials.address if call.identity is None else call.identity.name
        return self._calls.refused(rpc.operation, client, metadata_value(call.metadata, REQUEST_ID) or "", error)

    async def _run(self, rpc: Rpc, admission: Admission, messages: CallMessages, context: ServicerContext) -> None:
        if rpc.handler.request_streaming:
            async with aclosing(messages.requests()) as requests:
                await self._respond(rpc, requests, messages, context)
            return
        request = await messages.receive()
        if request is grpc.aio.EOF:  # type: ignore[attr-defined]
            raise InvalidRequest("request", "is missing")
        if not rpc.handler.response_streaming:
            admission.keep()
        await self._respond(rpc, request, messages, context)

    async def _respond(self, rpc: Rpc, request: Any, messages: CallMessages, context: ServicerContext) -> None:
        if not rpc.handler.response_streaming:
            await messages.send(await rpc.function(request, context))
        else:
            await self._stream(rpc.function(request, context), messages)

    async def _stream(self, responses: AsyncGenerator[Any, None], messages: CallMessages) -> None:
        async with aclosing(responses):
            async for response in responses:
                try:
                    await messages.send(response)
                except (SlowConsumer, Overloaded) as error:
                    await responses.athrow(error)


class _Displacing:
    """Ends a call whose slot another one takes."""

    __slots__ = ("displaced", "timeout")

    def __init__(self) -> None:
        self.timeout: asyncio.Timeout | None = None
        self.displaced = False

    def __call__(self) -> None:
        self.displaced = True
        if self.timeout is not None and not self.timeout.expired():
            self.timeout.reschedule(0)


class _Ending:
    """Returns the slot of a call once its status is sent, and limits how long that takes."""

    __slots__ = ("_release", "_timer")

    def __init__(self, admission: Admission) -> None:
        self._release = admission.release
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, seconds: float, cut: Callable[[], None]) -> None:
        """Calls back if the status is not sent within the time, seconds."""
        self._timer = asyncio.get_running_loop().call_later(seconds, cut)

    def ended(self, _: asyncio.Task[None]) -> None:
        self._release()
        if self._timer is not None:
            self._timer.cancel()


def _set_status(context: ServicerContext, status: GrpcStatus) -> None:
    """Sets the status with which a call ends when its handler returns.

    ``context.abort`` raises, and its exception and frames form a reference cycle with the call, which only a garbage
    collection frees. At a thousand refusals a second all threads waited 0.1 s for one every other second.
    """
    code, details, trailers = status
    context.set_code(code)
    context.set_details(details)
    context.set_trailing_metadata(trailers)


def _function(handler: Handler) -> Callable[[Any, ServicerContext], Any]:
    if handler.request_streaming:
        function = handler.stream_stream if handler.response_streaming else handler.stream_unary
    else:
        function = handler.unary_stream if handler.response_streaming else handler.unary_unary
    return cast(Callable[[Any, ServicerContext], Any], function)
