"""Calls over gRPC: credentials, request ids and status of the transport-free call context, and their messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError

from edge_rag import errors
from edge_rag.core.identity import Identity
from edge_rag.errors import CallTimeout, SlowConsumer, UndecodableMessage
from edge_rag.server.limits.call_memory import CallMemory
from edge_rag.service.authentication import Credentials
from edge_rag.service.call import (
    Call,
    CallContext,
    CallFailed,
    CallRequest,
    Operation,
    bearer_token,
    retry_after_s,
)
from edge_rag.service.codes import CODES, Code
from edge_rag.service.limits import MessageBudget

ServicerContext = grpc.aio.ServicerContext[Any, Any]
Metadata = tuple[tuple[str, str | bytes], ...]
GrpcStatus = tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]
"""Status, message and trailing metadata of a failed call."""

REQUEST_ID: Final = "edge-rag-request-id"
"""Metadata key of the request id, in requests, replies (initial metadata) and failed calls (trailing metadata)."""

STATUS: Final[dict[type[errors.EdgeRagError], grpc.StatusCode]] = {
    error: grpc.StatusCode[code.name] for error, code in CODES.items()
}
"""The gRPC status of every error."""

_AUTHORIZATION: Final = "authorization"


_Method = TypeVar("_Method", bound=Callable[..., Any])


def serves(operation: Operation) -> Callable[[_Method], _Method]:
    def declare(method: _Method) -> _Method:
        cast(Any, method).operation = operation
        return method

    return declare


@dataclass(frozen=True, slots=True)
class AdmittedCall:
    """The facts about a call that the interceptor knows before its request is read.

    Attributes:
        identity: The caller; None if it is not identified.
    """

    operation: Operation
    credentials: Credentials
    metadata: Metadata
    identity: Identity | None


ADMITTED: Final[ContextVar[AdmittedCall]] = ContextVar("admitted call")
"""The call of the present task: each call runs in one of its own."""


class GrpcCalls:
    """Opens a call context for a gRPC call."""

    def __init__(self, calls: CallContext) -> None:
        self._calls = calls

    @asynccontextmanager
    async def handle(self, context: ServicerContext, request_id: str = "", question: str = "") -> AsyncIterator[Call]:
        """Runs the body of a call that the interceptor admitted.

        Args:
            request_id: Id from the request message; empty for the one from the metadata, if any.
            question: The question that it asks, if it is one.
        """
        admitted = ADMITTED.get()
        request = CallRequest(
            admitted.credentials,
            request_id or metadata_value(admitted.metadata, REQUEST_ID) or "",
            context.time_remaining(),
            admitted.metadata,
            admitted.identity,
            question,
        )
        with self._calls.handle(admitted.operation, request) as call:
            await context.send_initial_metadata(((REQUEST_ID, call.request_id),))
            yield call


def grpc_status(failed: CallFailed) -> GrpcStatus:
    trailers = ((REQUEST_ID, failed.request_id), *pushback(failed.retry_after_s))
    return _status(failed.code), failed.message, trailers


def error_status(error: errors.EdgeRagError) -> GrpcStatus:
    return STATUS[type(error)], str(error), pushback(retry_after_s(error))


def pushback(seconds: float | None) -> tuple[tuple[str, str], ...]:
    """Returns the trailing metadata that asks a client to retry after a time (gRFC A6); none without one."""
    return () if seconds is None else (("grpc-retry-pushback-ms", str(round(seconds * 1000))),)


def credentials(context: ServicerContext, metadata: Metadata) -> Credentials:
    """Returns the credentials of a call."""
    peer = context.auth_context()
    return Credentials(
        peer=context.peer(),
        tls=b"ssl" in tuple(peer.get("transport_security_type", ())),
        token=bearer_token(metadata_value(metadata, _AUTHORIZATION)),
        certificate_names=tuple(name.decode("utf-8", "replace") for name in peer.get("x509_common_name", ())),
    )


def metadata_value(metadata: Metadata, name: str) -> str | None:
    """Returns the first value of a key in the metadata of a call; None without one."""
    for key, value in metadata:
        if key == name:
            return value if isinstance(value, str) else value.decode("latin-1")
    return None


def _status(code: Code) -> grpc.StatusCode:
    return grpc.StatusCode[code.name]


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
        """Waits until the message whose sending began first is sent, or cannot be sent any more.

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
