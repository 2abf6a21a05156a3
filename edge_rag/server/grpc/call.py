"""Calls over gRPC: credentials, request ids and status of the transport-free call context."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import grpc

from edge_rag import errors
from edge_rag.core.identity import Identity
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
    """What the interceptor knows of a call before its request is read.

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
