"""Takes the steps of calls on the threads of the program."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, cast

import grpc
from google.protobuf.message import Message

from edge_rag.client.call_flow import (
    Begin,
    CallOptions,
    Done,
    Exchange,
    Flow,
    Method,
    Pause,
    Receive,
    RetryPolicy,
    Step,
    Streaming,
    Tell,
    Work,
    failed,
    resumed,
)
from edge_rag.client.channel import open_channel, server_address
from edge_rag.client.credentials import Credentials, credentials_for
from edge_rag.client.failures import ClientError, cancelled, client_error

T = TypeVar("T")


class BlockingDriver:
    """A connection to one daemon whose calls block the thread that makes them.

    Attributes:
        address: The daemon.
        terms: What holds for all calls.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.address = server_address(address)
        self.terms = CallOptions(self.address, timeout_s, retry or RetryPolicy())
        self._channel = open_channel(self.address, credentials or credentials_for(self.address))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cancels every call under way and closes the connection."""
        self._channel.close()

    def complete(self, flow: Flow[T]) -> T:
        """Takes all steps of a call that has one result, and returns it."""
        link = _Link(self._channel, self.address)
        try:
            while not isinstance(now := _advanced(flow, link), Done):
                pass
            return now.result
        finally:
            link.close()
            flow.close()

    def iterate(self, flow: Streaming[T]) -> Generator[T, None, None]:
        """Takes the steps of a call up to the next value it tells; closing the generator cancels the call."""
        link = _Link(self._channel, self.address)
        try:
            while isinstance(now := _advanced(flow, link), Tell):
                yield now.value
        finally:
            link.close()
            flow.close()


def _advanced(flow: Generator[Step | Tell[Any], Any, T], link: _Link) -> Tell[Any] | Done[T]:
    step = resumed(flow)
    while not isinstance(step, Tell | Done):
        try:
            outcome = link.take(step)
        except (ClientError, OSError) as error:
            step = failed(flow, error)
        else:
            step = resumed(flow, outcome)
    return step


class _Call(Protocol):
    """A call under way, as gRPC gives it."""

    def cancel(self) -> object: ...


class _Replies(_Call, Protocol):
    """A call with a stream of replies, as gRPC gives it."""

    def __next__(self) -> Message: ...


class _Link:
    """Takes the steps of one call after the other."""

    def __init__(self, channel: grpc.Channel, address: str) -> None:
        self._channel = channel
        self._address = address
        self._call: _Replies | None = None
        self._sending: _Sending | None = None

    def take(self, step: Step) -> object:
        """Takes a step and returns what came of it.

        Raises:
            ClientError: The call failed.
            OSError: What was to be sent could not be read, or work failed.
        """
        try:
            match step:
                case Exchange():
                    return self._exchange(step)
                case Begin():
                    self._begin(step)
                case Receive():
                    return None if self._call is None else next(self._call, None)
                case Pause():
                    time.sleep(step.seconds)
                case Work():
                    return step.action()
            return None
        except grpc.FutureCancelledError as failure:
            self._raise_what_kept_from_sending()
            raise cancelled() from failure
        except grpc.RpcError as failure:
            self._raise_what_kept_from_sending()
            raise client_error(failure, self._address) from failure

    def close(self) -> None:
        """Ends the stream that was begun last, if it has not ended."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _exchange(self, step: Exchange) -> object:
        method = step.method
        if isinstance(step.request, Message):
            return self._channel.unary_unary(method.path, *_codecs(method))(step.request, timeout=step.timeout_s)
        self._sending = sending = _Sending(step.request)
        call = self._channel.stream_unary(method.path, *_codecs(method)).future(iter(sending), timeout=step.timeout_s)
        sending.bind(cast(_Call, call))
        try:
            return call.result()
        finally:
            cast(_Call, call).cancel()

    def _begin(self, step: Begin) -> None:
        self.close()
        method, timeout_s, wait = step.method, step.timeout_s, step.wait_for_ready
        if isinstance(step.request, Message):
            call = self._channel.unary_stream(method.path, *_codecs(method))(
                step.request, timeout=timeout_s, wait_for_ready=wait
            )
            self._call = cast(_Replies, call)
            return
        self._sending = sending = _Sending(step.request)
        call = self._channel.stream_stream(method.path, *_codecs(method))(
            iter(sending), timeout=timeout_s, wait_for_ready=wait
        )
        self._call = cast(_Replies, call)
        sending.bind(self._call)

    def _raise_what_kept_from_sending(self) -> None:
        if self._sending is not None and self._sending.error is not None:
            raise self._sending.error from None


class _Sending:
    """Requests on their way; gRPC iterates on a thread of its own. What they raise ends the call and is kept."""

    def __init__(self, requests: Iterable[Message]) -> None:
        self.error: OSError | ClientError | None = None
        self._requests = requests
        self._call: _Call | None = None
        self._bound = threading.Event()

    def bind(self, call: _Call) -> None:
        """Names the call that the requests belong to; must follow its start."""
        self._call = call
        self._bound.set()

    def __iter__(self) -> Iterator[Message]:
        try:
            yield from self._requests
        except (OSError, ClientError) as error:
            self.error = error
            self._bound.wait()
            if self._call is not None:
                self._call.cancel()


def _codecs(method: Method[Any, Any]) -> tuple[Any, Any]:
    return method.request.SerializeToString, method.reply.FromString
