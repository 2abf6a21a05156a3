"""How calls are carried out over gRPC: on an event loop, or blocking.

``AsyncTransport`` and ``SyncTransport`` have the same methods. Everything above them is written once, for the event
loop, and the blocking client is generated from it (``scripts/generate_sync_client``).
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, Self, TypeVar, cast

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2_grpc

from edge_rag.api.v1 import (
    access_pb2_grpc,
    admin_pb2_grpc,
    collections_pb2_grpc,
    documents_pb2_grpc,
    rag_pb2,
    rag_pb2_grpc,
)
from edge_rag.client.channel import open_async_channel, open_channel
from edge_rag.client.credentials import Credentials
from edge_rag.client.errors import ClientError, cancelled, client_error
from edge_rag.core.ids import is_request_id

_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")
_Result = TypeVar("_Result")
_Received = TypeVar("_Received", covariant=True)


def _metadata(request: object) -> tuple[tuple[str, str], ...] | None:
    """Returns the request id as metadata, so that a call that the daemon refuses unread has it in the audit log."""
    if isinstance(request, rag_pb2.AskRequest | rag_pb2.SearchRequest) and is_request_id(request.request_id):
        return (("edge-rag-request-id", request.request_id),)
    return None


class _Cancellable(Protocol):
    def cancel(self) -> object: ...


class _ReplyIterator(_Cancellable, Protocol[_Received]):
    def __next__(self) -> _Received: ...


class AsyncStubs:
    """The services of a daemon, for calls on an event loop."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.access: access_pb2_grpc.AccessAsyncStub = access_pb2_grpc.AccessStub(channel)
        self.admin: admin_pb2_grpc.AdminAsyncStub = admin_pb2_grpc.AdminStub(channel)
        self.collections: collections_pb2_grpc.CollectionsAsyncStub = collections_pb2_grpc.CollectionsStub(channel)
        self.documents: documents_pb2_grpc.DocumentsAsyncStub = documents_pb2_grpc.DocumentsStub(channel)
        self.rag: rag_pb2_grpc.RagAsyncStub = rag_pb2_grpc.RagStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)


class AsyncTransport:
    """Makes calls on an event loop. The first call opens the channel, which belongs to the loop that runs then."""

    def __init__(self, address: str, credentials: Credentials | None) -> None:
        self._address = address
        self._credentials = credentials
        self._channel: grpc.aio.Channel | None = None
        self._stubs: AsyncStubs | None = None

    @property
    def stubs(self) -> AsyncStubs:
        """The services."""
        if self._stubs is None:
            self._channel = open_async_channel(self._address, self._credentials)
            self._stubs = AsyncStubs(self._channel)
        return self._stubs

    async def close(self) -> None:
        """Cancels all calls and closes the channel."""
        if self._channel is not None:
            await self._channel.close(None)

    async def call(
        self, rpc: grpc.aio.UnaryUnaryMultiCallable[_Request, _Reply], request: _Request, timeout_s: float | None
    ) -> _Reply:
        """Makes a call with one request and one reply."""
        try:
            return await rpc(request, timeout=timeout_s, metadata=_metadata(request))
        except (asyncio.CancelledError, grpc.RpcError) as failure:
            _raise_async(failure, self._address)

    async def upload(
        self,
        rpc: grpc.aio.StreamUnaryMultiCallable[_Request, _Reply],
        requests: Iterable[_Request],
        timeout_s: float | None,
    ) -> _Reply:
        """Makes a call with a stream of requests and one reply. Each request is made on another thread.

        Raises:
            OSError: The iterable raised it; the call is cancelled.
            ClientError: The call failed, or the iterable raised it.
        """
        outgoing = _AsyncOutgoing(requests)
        try:
            call = rpc(aiter(outgoing), timeout=timeout_s)
            outgoing.call = call
            return await call
        except (asyncio.CancelledError, grpc.RpcError) as failure:
            _raise_async(failure, self._address, outgoing)

    def stream(
        self,
        rpc: grpc.aio.UnaryStreamMultiCallable[_Request, _Reply],
        request: _Request,
        timeout_s: float | None,
        *,
        wait_for_ready: bool = False,
    ) -> AsyncReplies[_Reply]:
        """Starts a call with one request and a stream of replies."""
        call = rpc(request, timeout=timeout_s, wait_for_ready=wait_for_ready, metadata=_metadata(request))
        return AsyncReplies(call, self._address)

    def upload_stream(
        self,
        rpc: grpc.aio.StreamStreamMultiCallable[_Request, _Reply],
        requests: Iterable[_Request],
        timeout_s: float | None,
    ) -> AsyncReplies[_Reply]:
        """Starts a call with a stream of requests, as for ``upload``, and a stream of replies."""
        outgoing = _AsyncOutgoing(requests)
        call = rpc(aiter(outgoing), timeout=timeout_s)
        outgoing.call = call
        return AsyncReplies(call, self._address, outgoing)

    async def sleep(self, seconds: float) -> None:
        """Waits."""
        await asyncio.sleep(seconds)

    async def run(self, action: Callable[[], _Result]) -> _Result:
        """Runs what may block on another thread and returns its result."""
        return await asyncio.to_thread(action)


class AsyncReplies(Generic[_Reply]):
    """The replies of a call, in order; leaving its ``async with`` block cancels the call if it has not ended."""

    def __init__(
        self,
        call: grpc.aio.UnaryStreamCall[Any, _Reply] | grpc.aio.StreamStreamCall[Any, _Reply],
        address: str,
        outgoing: _AsyncOutgoing[Any] | None = None,
    ) -> None:
        self._call = call
        self._replies = aiter(call)
        self._address = address
        self._outgoing = outgoing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the call if it has not ended."""
        self._call.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Reply:
        try:
            return await anext(self._replies)
        except (asyncio.CancelledError, grpc.RpcError) as failure:
            _raise_async(failure, self._address, self._outgoing)


class _AsyncOutgoing(Generic[_Request]):
    """Requests of a call. An error of the iterable cancels the call and is kept."""

    def __init__(self, requests: Iterable[_Request]) -> None:
        self.error: OSError | ClientError | None = None
        self.call: _Cancellable | None = None
        self._requests = iter(requests)

    async def __aiter__(self) -> AsyncIterator[_Request]:
        try:
            while (request := await asyncio.to_thread(next, self._requests, None)) is not None:
                yield request
        except (OSError, ClientError) as error:
            self.error = error
            if self.call is not None:
                self.call.cancel()


def _raise_async(
    failure: asyncio.CancelledError | grpc.RpcError, address: str, outgoing: _AsyncOutgoing[Any] | None = None
) -> NoReturn:
    if isinstance(failure, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is not None and task.cancelling() > 0:  # the task is cancelled, and not only the call
            raise failure
    if outgoing is not None and outgoing.error is not None:
        raise outgoing.error from None
    if isinstance(failure, asyncio.CancelledError):
        raise cancelled() from failure
    raise client_error(failure, address) from failure


class SyncStubs:
    """The services of a daemon, for blocking calls."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.access = access_pb2_grpc.AccessStub(channel)
        self.admin = admin_pb2_grpc.AdminStub(channel)
        self.collections = collections_pb2_grpc.CollectionsStub(channel)
        self.documents = documents_pb2_grpc.DocumentsStub(channel)
        self.rag = rag_pb2_grpc.RagStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)


class SyncTransport:
    """Makes calls that block the calling thread; several threads may use it at once."""

    def __init__(self, address: str, credentials: Credentials | None) -> None:
        self._address = address
        self._channel = open_channel(address, credentials)
        self.stubs = SyncStubs(self._channel)

    def close(self) -> None:
        """Cancels all calls and closes the channel."""
        self._channel.close()

    def call(
        self, rpc: grpc.UnaryUnaryMultiCallable[_Request, _Reply], request: _Request, timeout_s: float | None
    ) -> _Reply:
        """Makes a call with one request and one reply."""
        with _CtrlC() as ctrl_c:
            try:
                # Not the blocking form: it cannot be cancelled.
                started = rpc.future(request, timeout=timeout_s, metadata=_metadata(request))
                ctrl_c.cancels(cast(_Cancellable, started))
                return started.result()
            except (grpc.FutureCancelledError, grpc.RpcError) as failure:
                _raise_sync(failure, self._address)

    def upload(
        self,
        rpc: grpc.StreamUnaryMultiCallable[_Request, _Reply],
        requests: Iterable[_Request],
        timeout_s: float | None,
    ) -> _Reply:
        """Makes a call with a stream of requests and one reply. gRPC iterates the requests on a thread of its own.

        Raises:
            OSError: The iterable raised it; the call is cancelled.
            ClientError: The call failed, or the iterable raised it.
        """
        outgoing = _SyncOutgoing(requests)
        with _CtrlC() as ctrl_c:
            try:
                started = rpc.future(iter(outgoing), timeout=timeout_s)
                call = cast(_Cancellable, started)
                outgoing.bind(call)
                ctrl_c.cancels(call)
                try:
                    return started.result()
                finally:
                    call.cancel()  # a program's own handler may have raised
            except (grpc.FutureCancelledError, grpc.RpcError) as failure:
                _raise_sync(failure, self._address, outgoing)

    def stream(
        self,
        rpc: grpc.UnaryStreamMultiCallable[_Request, _Reply],
        request: _Request,
        timeout_s: float | None,
        *,
        wait_for_ready: bool = False,
    ) -> SyncReplies[_Reply]:
        """Starts a call with one request and a stream of replies."""
        with _CtrlC() as ctrl_c:
            call = rpc(request, timeout=timeout_s, wait_for_ready=wait_for_ready, metadata=_metadata(request))
            ctrl_c.cancels(cast(_Cancellable, call))
        return SyncReplies(call, self._address)

    def upload_stream(
        self,
        rpc: grpc.StreamStreamMultiCallable[_Request, _Reply],
        requests: Iterable[_Request],
        timeout_s: float | None,
    ) -> SyncReplies[_Reply]:
        """Starts a call with a stream of requests, as for ``upload``, and a stream of replies."""
        outgoing = _SyncOutgoing(requests)
        with _CtrlC() as ctrl_c:
            call = rpc(iter(outgoing), timeout=timeout_s)
            outgoing.bind(cast(_Cancellable, call))
            ctrl_c.cancels(cast(_Cancellable, call))
        return SyncReplies(call, self._address, outgoing)

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)

    def run(self, action: Callable[[], _Result]) -> _Result:
        """Runs what may block and returns its result."""
        return action()


class _CtrlC:
    """While a block runs, Ctrl-C cancels its call; KeyboardInterrupt is raised when gRPC has returned.

    Raised inside gRPC's code, KeyboardInterrupt may leave a lock held, and the channel's thread waits for it without
    end. Also for SIGTERM where the program handles it like Ctrl-C.
    """

    def __init__(self, call: _Cancellable | None = None) -> None:
        self._call = call
        self._interrupted = False
        self._signals: list[signal.Signals] = []

    def cancels(self, call: _Cancellable) -> None:
        """Sets the call when it has been started; cancels it if Ctrl-C was pressed meanwhile."""
        self._call = call
        if self._interrupted:
            call.cancel()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            numbers = (signal.SIGINT, signal.SIGTERM)
            self._signals = [each for each in numbers if signal.getsignal(each) is signal.default_int_handler]
        for number in self._signals:
            signal.signal(number, self._cancel)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number in self._signals:
            signal.signal(number, signal.default_int_handler)
        if self._interrupted:
            raise KeyboardInterrupt

    def _cancel(self, number: int, frame: object) -> None:
        self._interrupted = True
        if self._call is not None:
            self._call.cancel()


class SyncReplies(Generic[_Reply]):
    """The replies of a call, in order; leaving its ``with`` block cancels the call if it has not ended."""

    def __init__(
        self, call: grpc.CallIterator[_Reply], address: str, outgoing: _SyncOutgoing[Any] | None = None
    ) -> None:
        self._call = cast(_ReplyIterator[_Reply], call)
        self._address = address
        self._outgoing = outgoing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the call if it has not ended."""
        with _CtrlC():
            self._call.cancel()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _Reply:
        with _CtrlC(self._call):
            try:
                return next(self._call)
            except (grpc.FutureCancelledError, grpc.RpcError) as failure:
                _raise_sync(failure, self._address, self._outgoing)


class _SyncOutgoing(Generic[_Request]):
    """Requests of a call. An error of the iterable cancels the call and is kept."""

    def __init__(self, requests: Iterable[_Request]) -> None:
        self.error: OSError | ClientError | None = None
        self._requests = requests
        self._call: _Cancellable | None = None
        self._bound = threading.Event()

    def bind(self, call: _Cancellable) -> None:
        """Sets the call that the requests belong to; must follow its start."""
        self._call = call
        self._bound.set()

    def __iter__(self) -> Iterator[_Request]:
        try:
            yield from self._requests
        except (OSError, ClientError) as error:
            self.error = error
            self._bound.wait()
            if self._call is not None:
                self._call.cancel()


def _raise_sync(
    failure: grpc.FutureCancelledError | grpc.RpcError, address: str, outgoing: _SyncOutgoing[Any] | None = None
) -> NoReturn:
    if outgoing is not None and outgoing.error is not None:
        raise outgoing.error from None
    if isinstance(failure, grpc.FutureCancelledError):
        raise cancelled() from failure
    raise client_error(failure, address) from failure
