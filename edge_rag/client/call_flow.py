"""What a call does, step by step, without doing it.

A flow is a generator. It yields one step after the other, is sent what came of each, or has thrown into it what went
wrong, and returns the result of the call. ``blocking`` and ``asynchronous`` take the steps; nothing else tells the two
clients apart.

The RPCs that the client calls, each with the types that go over it.

When a failed call is worth repeating. Pure: the caller sleeps and draws the random number.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from edge_rag.api.v1 import access_pb2, admin_pb2, collections_pb2, documents_pb2, rag_pb2
from edge_rag.client.failures import CallStatus, ClientError

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Reply]):
    """An RPC.

    Attributes:
        file: Where it is declared.
        service: Its service, without the package.
        name: Its name in the service.
        request: Type of a request.
        reply: Type of a reply.
    """

    file: FileDescriptor
    service: str
    name: str
    request: type[Request]
    reply: type[Reply]

    @property
    def descriptor(self) -> MethodDescriptor:
        """What the proto says of it."""
        return self.file.services_by_name[self.service].methods_by_name[self.name]

    @property
    def path(self) -> str:
        """What gRPC calls it."""
        return f"/{self.file.package}.{self.service}/{self.name}"

    @property
    def takes_many(self) -> bool:
        """Whether requests are a stream."""
        return bool(self.descriptor.client_streaming)

    @property
    def gives_many(self) -> bool:
        """Whether replies are a stream."""
        return bool(self.descriptor.server_streaming)


_RAG: Final = rag_pb2.DESCRIPTOR
_DOCUMENTS: Final = documents_pb2.DESCRIPTOR
_COLLECTIONS: Final = collections_pb2.DESCRIPTOR
_ADMIN: Final = admin_pb2.DESCRIPTOR

ASK: Final = Method(_RAG, "Rag", "Ask", rag_pb2.AskRequest, rag_pb2.AskResponse)
SEARCH: Final = Method(_RAG, "Rag", "Search", rag_pb2.SearchRequest, rag_pb2.SearchResponse)

INGEST: Final = Method(_DOCUMENTS, "Documents", "Ingest", documents_pb2.IngestRequest, documents_pb2.IngestResponse)
START_INGEST: Final = Method(
    _DOCUMENTS, "Documents", "StartIngest", documents_pb2.IngestRequest, documents_pb2.StartIngestResponse
)
WATCH_JOB: Final = Method(
    _DOCUMENTS, "Documents", "WatchJob", documents_pb2.WatchJobRequest, documents_pb2.WatchJobResponse
)
LIST_JOBS: Final = Method(
    _DOCUMENTS, "Documents", "ListJobs", documents_pb2.ListJobsRequest, documents_pb2.ListJobsResponse
)
CANCEL_JOB: Final = Method(
    _DOCUMENTS, "Documents", "CancelJob", documents_pb2.CancelJobRequest, documents_pb2.CancelJobResponse
)
GET_DOCUMENT: Final = Method(
    _DOCUMENTS, "Documents", "Get", documents_pb2.GetDocumentRequest, documents_pb2.GetDocumentResponse
)
LIST_DOCUMENTS: Final = Method(
    _DOCUMENTS, "Documents", "List", documents_pb2.ListDocumentsRequest, documents_pb2.ListDocumentsResponse
)
DELETE_DOCUMENT: Final = Method(
    _DOCUMENTS, "Documents", "Delete", documents_pb2.DeleteDocumentRequest, documents_pb2.DeleteDocumentResponse
)

CREATE_COLLECTION: Final = Method(
    _COLLECTIONS,
    "Collections",
    "Create",
    collections_pb2.CreateCollectionRequest,
    collections_pb2.CreateCollectionResponse,
)
GET_COLLECTION: Final = Method(
    _COLLECTIONS, "Collections", "Get", collections_pb2.GetCollectionRequest, collections_pb2.GetCollectionResponse
)
LIST_COLLECTIONS: Final = Method(
    _COLLECTIONS, "Collections", "List", collections_pb2.ListCollectionsRequest, collections_pb2.ListCollectionsResponse
)
UPDATE_COLLECTION: Final = Method(
    _COLLECTIONS,
    "Collections",
    "Update",
    collections_pb2.UpdateCollectionRequest,
    collections_pb2.UpdateCollectionResponse,
)
DELETE_COLLECTION: Final = Method(
    _COLLECTIONS,
    "Collections",
    "Delete",
    collections_pb2.DeleteCollectionRequest,
    collections_pb2.DeleteCollectionResponse,
)

GET_STATUS: Final = Method(_ADMIN, "Admin", "GetStatus", admin_pb2.GetStatusRequest, admin_pb2.GetStatusResponse)
WATCH_STATUS: Final = Method(
    _ADMIN, "Admin", "WatchStatus", admin_pb2.WatchStatusRequest, admin_pb2.WatchStatusResponse
)
GET_USAGE: Final = Method(_ADMIN, "Admin", "GetUsage", admin_pb2.GetUsageRequest, admin_pb2.GetUsageResponse)
LIST_AUDIT_EVENTS: Final = Method(
    _ADMIN, "Admin", "ListAuditEvents", admin_pb2.ListAuditEventsRequest, admin_pb2.ListAuditEventsResponse
)
USE_MODEL: Final = Method(_ADMIN, "Admin", "UseModel", admin_pb2.UseModelRequest, admin_pb2.UseModelResponse)
MOVE_INDEX: Final = Method(_ADMIN, "Admin", "MoveIndex", admin_pb2.MoveIndexRequest, admin_pb2.MoveIndexResponse)
BACKUP: Final = Method(_ADMIN, "Admin", "Backup", admin_pb2.BackupRequest, admin_pb2.BackupResponse)

WHO_AM_I: Final = Method(access_pb2.DESCRIPTOR, "Access", "WhoAmI", access_pb2.WhoAmIRequest, access_pb2.WhoAmIResponse)

WATCH_HEALTH: Final = Method(
    health_pb2.DESCRIPTOR, "Health", "Watch", health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of repeating a call.

    Attributes:
        patience_s: Longest time spent waiting between attempts of one call, all together, seconds; 0 never repeats.
        first_delay_s: Delay after the first failure when the server names none, seconds; doubles each time.
        longest_delay_s: Bound of that doubling, seconds.
    """

    patience_s: float = 5.0
    first_delay_s: float = 0.1
    longest_delay_s: float = 2.0

    def delay(
        self, error: ClientError, failures: int, waited_s: float, jitter: float, *, reached: bool = False
    ) -> float | None:
        """Decides about one failure.

        A full queue is asked again only when the server says when; without that, it is a limit and not a queue. A
        server that asked not to be asked again is not. One that was never reached is not asked again, because waiting
        will not start it.

        Args:
            error: What the last attempt ended with.
            failures: Failed attempts so far, at least 1.
            waited_s: Seconds waited between attempts so far.
            jitter: Random number, 0 to 1; keeps clients that were refused together from coming back together.
            reached: Whether the server answered before, so that one that is not there now is expected back.

        Returns:
            Seconds to wait before the next attempt, or None to give up.
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
        return delay if waited_s + delay <= self.patience_s else None


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What a client was told about all of its calls.

    Attributes:
        address: The daemon.
        timeout_s: Deadline of a call with all its repetitions, seconds; None leaves it to the server.
        retry: When a call is repeated.
        now: A clock, seconds.
        draw: A random number, 0 to 1.
    """

    address: str
    timeout_s: float | None
    retry: RetryPolicy
    now: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class Exchange:
    """Call a method that gives one reply, and have it sent back.

    Attributes:
        method: The method.
        request: Its request; where it takes a stream, the requests, which may block and raise OSError or ClientError.
        timeout_s: Seconds until it fails; None for never.
    """

    method: Method[Any, Any]
    request: Message | Iterable[Message]
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Begin:
    """Call a method that gives a stream of replies, in place of the one called before.

    Attributes:
        method: The method.
        request: As for ``Exchange``.
        timeout_s: Seconds until it fails; None for never.
        wait_for_ready: Whether a server that is not there is waited for.
    """

    method: Method[Any, Any]
    request: Message | Iterable[Message]
    timeout_s: float | None
    wait_for_ready: bool = False


@dataclass(frozen=True, slots=True)
class Receive:
    """Have the next reply of the stream sent back; None after the last."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait.

    Attributes:
        seconds: How long.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """Do something that may block.

    Attributes:
        action: What; its result is sent back. May raise OSError.
    """

    action: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Tell(Generic[T]):
    """Give the caller a value and go on when it asks for the next one."""

    value: T


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A flow is over.

    Attributes:
        result: What it returned.
    """

    result: T


Step: TypeAlias = Exchange | Begin | Receive | Pause | Work
Flow: TypeAlias = Generator[Step, Any, T]
"""A call with one result."""
Streaming: TypeAlias = Generator[Step | Tell[T], Any, None]
"""A call that tells one value after the other."""


def resumed(flow: Generator[Step | Tell[Any], Any, T], outcome: object = None) -> Step | Tell[Any] | Done[T]:
    """Lets a flow go on with what came of its last step; returns its next one."""
    try:
        return flow.send(outcome)
    except StopIteration as end:
        return Done(end.value)


def failed(flow: Generator[Step | Tell[Any], Any, T], error: Exception) -> Step | Tell[Any] | Done[T]:
    """Lets a flow go on where its last step failed; returns its next one, or raises what the flow does not catch."""
    try:
        return flow.throw(error)
    except StopIteration as end:
        return Done(end.value)


def exchange(method: Method[Request, Reply], request: Request | Iterable[Request], terms: CallOptions) -> Flow[Reply]:
    """Calls a method that gives one reply, once, and returns the reply."""
    return (yield Exchange(method, request, terms.timeout_s))  # type: ignore[no-any-return]


def repeated(
    method: Method[Request, Reply], request: Callable[[], Request | Iterable[Request]], terms: CallOptions
) -> Flow[Reply]:
    """Calls a method that gives one reply as often as the terms allow, and returns the reply.

    Args:
        method: The method.
        request: Makes the request, for each attempt anew.
        terms: The terms.

    Raises:
        ClientError: The last attempt failed.
    """

    def attempt(timeout_s: float | None) -> Flow[Reply]:
        return (yield Exchange(method, request(), timeout_s))  # type: ignore[no-any-return]

    return (yield from repeating(attempt, terms))


def received(method: Method[Any, Reply]) -> Flow[Reply | None]:
    """Returns the next reply of the stream that was begun with a method; None after the last."""
    return (yield Receive())  # type: ignore[no-any-return]


def repeating(attempt: Callable[[float | None], Flow[T]], terms: CallOptions) -> Flow[T]:
    """Attempts something as often as the terms allow.

    Args:
        attempt: Attempts it within so many seconds.
        terms: The terms.

    Returns:
        What the first attempt that succeeded returned.

    Raises:
        ClientError: The last attempt failed.
    """
    deadline = None if terms.timeout_s is None else terms.now() + terms.timeout_s
    waited_s, failures = 0.0, 0
    while True:
        left_s = None if deadline is None else max(0.0, deadline - terms.now())
        try:
            return (yield from attempt(left_s))
        except ClientError as error:
            failures += 1
            delay_s = terms.retry.delay(error, failures, waited_s, terms.draw())
            if delay_s is None or (left_s is not None and delay_s >= left_s):
                raise
        yield Pause(delay_s)
        waited_s += delay_s
