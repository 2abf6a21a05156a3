"""Errors of the client, grouped by the remedy of the caller, and the policy that repeats calls.

ClientError
├── TransientError          the call may succeed later, as it is
│   ├── Unavailable         no daemon answers, or it is starting or shutting down
│   ├── Busy                a queue is full, a quota is used up or a disk is full; ``retry_after_s`` where that is known
│   └── Aborted             the daemon gave the call up, for example because its reply was not read
├── DeadlineExceeded        the call needs more time
├── RequestError            the call has to be changed
│   ├── InvalidArgument     an argument is unusable; the message names it
│   ├── NotFound            there is no such collection, document, job or model
│   ├── AlreadyExists       there is one of that name
│   ├── FailedPrecondition  the daemon cannot do this in its present state or configuration
│   └── AnswerTruncated     the answer was cut before it was complete in its format
├── AccessError             the call needs other credentials
│   ├── Unauthenticated     there are none, or the daemon does not know them, or the server is not the known one
│   └── PermissionDenied    the caller's role does not allow this
├── Cancelled               the client was closed
└── ServerError             the daemon failed, or is of another version; its log has the details

An error is made from a status, and is of the class of that status.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Self, cast

import grpc

from edge_rag.errors import InvalidRequest

_PUSHBACK = "grpc-retry-pushback-ms"
_UNTRUSTED = "certificate_verify_failed"
_CLOSED = ("socket closed", "connection reset")
_NOT_CONNECTED = ("failed to connect", "connection refused", "dns resolution failed", "no such file or directory")


class CallStatus(Enum):
    """gRPC's status codes by name, without OK."""

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

    ``ClientError(status, ...)`` makes an error of the class of the status, as ``OSError`` does of an error number.

    Args:
        status: gRPC's status.
        message: The problem, fit to show to a user.
        advice: A remedy; empty if the message contains it.
        retry_after_s: Delay after which the server takes the call again, seconds; None if it named none.
        final: Whether the server asked the client not to repeat the call.
        connected: False where no server was reached.
    """

    def __new__(cls, status: CallStatus, *_: object, **__: object) -> Self:
        """Returns an error of the class of the status."""
        return cast(Self, super().__new__(_CLASSES[status] if cls is ClientError else cls))

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


class TransientError(ClientError):
    """The call may succeed later, as it is."""


class Unavailable(TransientError):
    """No daemon answers, or it is starting or shutting down."""


class Busy(TransientError):
    """A queue is full, a quota is used up or a disk is full. ``retry_after_s`` is set if the daemon named a delay."""


class Aborted(TransientError):
    """The daemon gave the call up, for example because the client did not read its reply."""


class DeadlineExceeded(ClientError):
    """The call took longer than its deadline, or than the daemon allows."""


class RequestError(ClientError):
    """The call cannot succeed as it is."""


class InvalidArgument(RequestError):
    """An argument is unusable; the message names it."""


class NotFound(RequestError):
    """There is no such collection, document, job or model."""


class AlreadyExists(RequestError):
    """There is one of that name."""


class FailedPrecondition(RequestError):
    """The daemon cannot do this in its present state or configuration."""


class AnswerTruncated(RequestError):
    """The answer was cut before it was complete in its format; more ``max_tokens`` are needed."""


class AccessError(ClientError):
    """The call needs other credentials."""


class Unauthenticated(AccessError):
    """There are no credentials, the daemon does not know them, or the server is not the known one."""


class PermissionDenied(AccessError):
    """The caller's role does not allow this."""


class Cancelled(ClientError):
    """The client was closed during the call."""


class ServerError(ClientError):
    """The daemon failed, or is of another version. Its log has the details."""


_CLASSES: Final[dict[CallStatus, type[ClientError]]] = {
    CallStatus.UNAVAILABLE: Unavailable,
    CallStatus.RESOURCE_EXHAUSTED: Busy,
    CallStatus.ABORTED: Aborted,
    CallStatus.DEADLINE_EXCEEDED: DeadlineExceeded,
    CallStatus.INVALID_ARGUMENT: InvalidArgument,
    CallStatus.OUT_OF_RANGE: AnswerTruncated,
    CallStatus.NOT_FOUND: NotFound,
    CallStatus.ALREADY_EXISTS: AlreadyExists,
    CallStatus.FAILED_PRECONDITION: FailedPrecondition,
    CallStatus.UNAUTHENTICATED: Unauthenticated,
    CallStatus.PERMISSION_DENIED: PermissionDenied,
    CallStatus.CANCELLED: Cancelled,
    CallStatus.UNIMPLEMENTED: ServerError,
    CallStatus.INTERNAL: ServerError,
    CallStatus.UNKNOWN: ServerError,
    CallStatus.DATA_LOSS: ServerError,
}


@contextmanager
def invalid_argument() -> Iterator[None]:
    """Turns the error of a request that cannot be built into ``InvalidArgument``."""
    try:
        yield
    except InvalidRequest as error:
        raise ClientError(CallStatus.INVALID_ARGUMENT, str(error)) from error


def unreadable_reply(message: str) -> ClientError:
    """Returns the error for a reply that breaks the protocol."""
    return ClientError(CallStatus.INTERNAL, message, advice="Client and daemon may be of different versions")


def cancelled() -> ClientError:
    """Returns the error for a call that closing the client has ended."""
    return ClientError(CallStatus.CANCELLED, "the call was cancelled")


def client_error(failure: grpc.RpcError, address: str) -> ClientError:
    """Returns the error for an exception of gRPC."""
    status = CallStatus[failure.code().name]
    details = failure.details() or status.value.replace("_", " ").lower()
    if status is CallStatus.UNAVAILABLE and _UNTRUSTED in details.lower():
        return ClientError(
            CallStatus.UNAUTHENTICATED,
            f"the server at {address} is not the box that is known there: its certificate is another one",
            advice="No credentials were sent. If the box has new certificates, pair again with `edge-rag connect`; "
            "otherwise the connection may be intercepted",
            connected=False,
        )
    if status is CallStatus.UNAVAILABLE and any(mark in details.lower() for mark in _NOT_CONNECTED):
        if any(mark in details.lower() for mark in _CLOSED):  # a TLS server does so to a client without TLS
            return ClientError(
                status,
                f"a server answers at {address}, but closes the connection: it speaks TLS and wants credentials",
                advice="`edge-rag pair` on that machine makes a code for `edge-rag connect` on this one",
                connected=False,
            )
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
            return "The daemon's log has the details"
        case _:
            return ""


def _pushback(failure: grpc.RpcError) -> tuple[float | None, bool]:
    """Returns the server's delay for a retry, seconds, and whether it asked for none (gRFC A6)."""
    trailers: Iterable[tuple[str, str | bytes]] = cast(Any, failure.trailing_metadata()) or ()
    for key, value in trailers:
        if key == _PUSHBACK:
            try:
                milliseconds = int(value)
            except ValueError:
                return None, True
            return (milliseconds / 1000, False) if milliseconds >= 0 else (None, True)
    return None, False


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of repeating a call. A policy decides; the client waits and draws the random number.

    Attributes:
        max_backoff_s: Longest time between the attempts of one call, all together, seconds; 0 never repeats.
        first_delay_s: Delay after the first failure if the server names none, seconds; doubles each time.
        longest_delay_s: Bound of that doubling, seconds.
    """

    max_backoff_s: float = 5.0
    first_delay_s: float = 0.1
    longest_delay_s: float = 2.0

    def delay(
        self, error: ClientError, failures: int, waited_s: float, jitter: float, *, reached: bool = False
    ) -> float | None:
        """Decides about one failure.

        A call that a full queue refused is repeated only if the server names a delay: otherwise the refusal is a limit
        and not a queue. A call is not repeated if the server asks for that, or if no server was reached: waiting does
        not start one.

        Args:
            failures: Failed attempts so far, at least 1.
            waited_s: Time between attempts so far, seconds.
            jitter: Random number, 0 to 1; spreads the retries of clients that were refused at the same time.
            reached: Whether the server answered before, so that one that is not there now is expected back.

        Returns:
            Delay before the next attempt, seconds, or None to give up.
        """
        if error.final:
            return None
        match error.status:
            case CallStatus.RESOURCE_EXHAUSTED if error.retry_after_s is not None:
                delay = error.retry_after_s * (1 + jitter / 4)
            case CallStatus.UNAVAILABLE if error.connected or reached:
                doubling = min(self.longest_delay_s, self.first_delay_s * 2.0 ** min(failures - 1, 30))
                delay = (error.retry_after_s if error.retry_after_s is not None else doubling) * (1 + jitter / 4)
            case _:
                return None
        return delay if waited_s + delay <= self.max_backoff_s else None
