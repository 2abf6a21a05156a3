"""What a call can end with, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, cast

import grpc

_PUSHBACK = "grpc-retry-pushback-ms"
_NOT_BELIEVED = "certificate_verify_failed"
_NEVER_CONNECTED = ("failed to connect", "connection refused", "dns resolution failed", "no such file or directory")


class CallStatus(Enum):
    """How a call ended: gRPC's status codes by name, without OK."""

    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    UNAUTHENTICATED = "UNAUTHENTICATED"


class ClientError(Exception):
    """A call failed, or was not made because it could only fail.

    Args:
        status: How it ended.
        message: What is wrong, fit to show to a user.
        advice: What to do about it; empty where the message says it.
        retry_after_s: When the server wants to be asked again, seconds; None where it did not say.
        final: Whether the server asked not to be asked again.
        connected: False where no server was reached.
    """

    def __init__(
        self,
        status: CallStatus,
        message: str,
        *,
        advice: str = "",
        retry_after_s: float | None = None,
        final: bool = False,
        connected: bool = True,
    ) -> None:
        super().__init__(f"{message}. {advice}" if advice else message)
        self.status = status
        self.message = message
        self.advice = advice
        self.retry_after_s = retry_after_s
        self.final = final
        self.connected = connected


def unreadable_reply(message: str) -> ClientError:
    """Returns the error for a reply that breaks the protocol."""
    return ClientError(CallStatus.INTERNAL, message, advice="Client and daemon may be of different versions")


def cancelled() -> ClientError:
    """Returns the error for a call that was ended here, by closing the client."""
    return ClientError(CallStatus.CANCELLED, "the call was cancelled")


def client_error(failure: grpc.RpcError, address: str) -> ClientError:
    """Translates gRPC's exception.

    Args:
        failure: What a call raised.
        address: Server that was called.

    Returns:
        The same failure with the server's message, and advice where the status alone says what to do.
    """
    status = CallStatus[failure.code().name]
    details = failure.details() or status.value.replace("_", " ").lower()
    if status is CallStatus.UNAVAILABLE and _NOT_BELIEVED in details.lower():
        return ClientError(
            CallStatus.UNAUTHENTICATED,
            f"what answers at {address} is not the box that is known there: its certificate is of somebody else",
            advice="It was told nothing. Where the box got new certificates, pair anew with `edge-rag connect`; else "
            "somebody may be in between",
            connected=False,
        )
    if status is CallStatus.UNAVAILABLE and any(mark in details.lower() for mark in _NEVER_CONNECTED):
        return ClientError(
            status,
            f"no daemon answers at {address}",
            advice="Start one with `edge-rag serve`, or name another with --server or EDGE_RAG_SERVER",
            connected=False,
        )
    retry_after_s, final = _pushback(failure)
    return ClientError(status, details.rstrip("."), advice=_advice(status), retry_after_s=retry_after_s, final=final)


def _advice(status: CallStatus) -> str:
    match status:
        case CallStatus.UNAVAILABLE:
            return "`edge-rag status --wait 60` waits until the daemon serves"
        case CallStatus.DEADLINE_EXCEEDED:
            return "Allow more time with --timeout"
        case CallStatus.UNIMPLEMENTED:
            return "Client and daemon may be of different versions"
        case CallStatus.INTERNAL | CallStatus.UNKNOWN | CallStatus.DATA_LOSS:
            return "The daemon's log says more"
        case _:
            return ""


def _pushback(failure: grpc.RpcError) -> tuple[float | None, bool]:
    """Returns when to ask again, seconds, where the server said it, and whether not to, as gRFC A6 has it."""
    trailers: Iterable[tuple[str, str | bytes]] = cast(Any, failure.trailing_metadata()) or ()
    for key, value in trailers:
        if key == _PUSHBACK:
            try:
                milliseconds = int(value)
            except ValueError:
                return None, True
            return (milliseconds / 1000, False) if milliseconds >= 0 else (None, True)
    return None, False
