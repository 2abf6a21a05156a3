"""Calls over gRPC: credentials, request ids and status of the transport-free call context."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from edge_rag import errors
from edge_rag.service.call import Call, CallContext, CallFailed, CallRequest, Credentials, Operation, retry_after_s
from edge_rag.service.codes import CODES, Code

ServicerContext = grpc.aio.ServicerContext[Any, Any]

REQUEST_ID: Final = "edge-rag-request-id"
"""Metadata key of the request id, in requests, replies (initial metadata) and failed calls (trailing metadata)."""

STATUS: Final[dict[type[errors.EdgeRagError], grpc.StatusCode]] = {
    error: grpc.StatusCode[code.name] for error, code in CODES.items()
}
"""The gRPC status of every error."""

_AUTHORIZATION: Final = "authorization"
_SCHEME: Final = "bearer "


class GrpcCalls:
    """Opens a call context for a gRPC call.

    Args:
        calls: The call context.
        identified: Called with the name of the peer when a call was authenticated.
    """

    def __init__(self, calls: CallContext, identified: Callable[[str], None]) -> None:
        self._calls = calls
        self._identified = identified

    @asynccontextmanager
    async def handle(self, operation: Operation, context: ServicerContext, request_id: str = "") -> AsyncIterator[Call]:
        """Runs the body of a call; ends the call with the status of the error that it raises.

        Args:
            operation: The operation that the call requests.
            context: The call.
            request_id: Id from the request message; empty for the one from the metadata, if any.
        """
        request = CallRequest(
            credentials(context),
            request_id or metadata_value(context, REQUEST_ID) or "",
            context.time_remaining(),
            tuple(context.invocation_metadata() or ()),
        )
        status: tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]] | None = None
        try:
            with self._calls.handle(operation, request) as call:
                if not operation.anonymous:
                    self._identified(call.peer)
                await context.send_initial_metadata(((REQUEST_ID, call.request_id),))
                yield call
        except CallFailed as failed:
            status = grpc_status(failed)
        if status is not None:
            await context.abort(*status)


def grpc_status(failed: CallFailed) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """Returns status, message and trailing metadata of a failed call."""
    trailers = ((REQUEST_ID, failed.request_id), *pushback(failed.retry_after_s))
    return _status(failed.code), failed.message, trailers


def error_status(error: errors.EdgeRagError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """Returns status, message and trailing metadata of an error outside a call context."""
    return STATUS[type(error)], str(error), pushback(retry_after_s(error))


def pushback(seconds: float | None) -> tuple[tuple[str, str], ...]:
    """Returns the trailing metadata that asks a client to retry after a time (gRFC A6); none without one."""
    return () if seconds is None else (("grpc-retry-pushback-ms", str(round(seconds * 1000))),)


def credentials(context: ServicerContext) -> Credentials:
    """Returns the credentials of a call."""
    peer = context.auth_context()
    return Credentials(
        peer=context.peer(),
        tls=b"ssl" in tuple(peer.get("transport_security_type", ())),
        token=_bearer(context),
        certificate_names=tuple(name.decode("utf-8", "replace") for name in peer.get("x509_common_name", ())),
    )


def metadata_value(context: ServicerContext, name: str) -> str | None:
    """Returns the first value of a key in the metadata of a call; None without one."""
    for key, value in context.invocation_metadata() or ():
        if key == name:
            return value if isinstance(value, str) else value.decode("latin-1")
    return None


def _bearer(context: ServicerContext) -> str | None:
    text = metadata_value(context, _AUTHORIZATION)
    if text is None:
        return None
    return text[len(_SCHEME) :].strip() if text.lower().startswith(_SCHEME) else text


def _status(code: Code) -> grpc.StatusCode:
    return grpc.StatusCode[code.name]
