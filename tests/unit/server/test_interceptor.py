"""Calls over a real server: what is refused before it is read, what ends them, and that they leave no garbage."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
import pytest
from google.protobuf.message import DecodeError
from prometheus_client import CollectorRegistry

from edge_rag.access.quotas import QuotaLedger
from edge_rag.core.identity import Identity, Role
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.errors import DocumentNotFound, Unauthenticated
from edge_rag.server.grpc.call import REQUEST_ID, GrpcCalls, serves
from edge_rag.server.grpc.interceptor import AdmissionInterceptor
from edge_rag.server.limits.connection_table import ConnectionLimits
from edge_rag.server.limits.connections import Connections
from edge_rag.service.authentication import Authenticator, Credentials
from edge_rag.service.call import CallContext, Operation
from edge_rag.service.lifecycle import Backend, Lifecycle
from edge_rag.service.limits import AnonymousPool, CallLimits, ConcurrencyLimiter, MessageBudget, Timeouts
from edge_rag.service.refusals import RefusalRecorder
from edge_rag.telemetry.activity import Latencies
from edge_rag.telemetry.audit_log import AuditLog
from edge_rag.telemetry.metrics.calls import Metrics
from tests.support.raw_connection import RawConnection

CALLS = 50
MESSAGE_BYTES = 1 << 16
USES = {
    "Echo": Operation("Echo", Role.READER),
    "EchoAll": Operation("EchoAll", Role.READER),
    "EchoOnce": Operation("EchoOnce", Role.READER),
    "Fail": Operation("Fail", Role.READER),
    "FailLate": Operation("FailLate", Role.READER),
    "Break": Operation("Break", Role.READER),
    "Write": Operation("Write", Role.WRITER),
    "Open": Operation("Open", None, anonymous=True),
}
Context = grpc.aio.ServicerContext[Any, Any]


def decode(data: bytes) -> bytes:
    if data == b"undecodable":
        raise DecodeError("Error parsing message with type 'secret.Type'")
    return data


class Methods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Methods that answer with their request, or fail."""

    def __init__(self, calls: GrpcCalls, served: Served) -> None:
        self._calls = calls
        self._served = served
        unary, streaming = grpc.unary_stream_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        self._handlers = {
            "Echo": unary(self._echo, decode),
            "EchoAll": streaming(self._echo_all, decode),
            "EchoOnce": grpc.unary_unary_rpc_method_handler(self._echo_once, decode),
            "Fail": grpc.unary_unary_rpc_method_handler(self._fail, decode),
            "FailLate": unary(self._fail_late, decode),
            "Break": unary(self._break, decode),
            "Write": grpc.unary_unary_rpc_method_handler(self._write, decode),
            "Open": streaming(self._open, decode),
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = self._handlers
        return handlers.get(handler_call_details.method.rpartition("/")[2])

    @serves(USES["Echo"])
    async def _echo(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        async with self._calls.handle(context):
            yield request
            yield request

    @serves(USES["EchoAll"])
    async def _echo_all(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        async with self._calls.handle(context):
            async for request in requests:
                yield request

    @serves(USES["EchoOnce"])
    async def _echo_once(self, request: bytes, context: Context) -> bytes:
        async with self._calls.handle(context):
            return request

    @serves(USES["Fail"])
    async def _fail(self, request: bytes, context: Context) -> bytes:
        async with self._calls.handle(context):
            raise DocumentNotFound("a.txt")

    @serves(USES["FailLate"])
    async def _fail_late(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        async with self._calls.handle(context):
            yield request
            raise DocumentNotFound("a.txt")

    @serves(USES["Break"])
    async def _break(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        async with self._calls.handle(context):
            yield request
            raise ValueError("a programming error")

    @serves(USES["Write"])
    async def _write(self, request: bytes, context: Context) -> bytes:
        async with self._calls.handle(context):
            return request

    @serves(USES["Open"])
    async def _open(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        async for request in requests:
            self._served.before_open()
            yield request


class ByToken(Authenticator):
    """Knows callers by their token, which is their name; nobody without one."""

    def __init__(self) -> None:
        pass

    def authenticate(self, credentials: Credentials) -> Identity:
        if credentials.token is None:
            raise Unauthenticated("credentials are needed")
        return Identity(credentials.token, frozenset({Role.READER}))

    def anonymous(self, credentials: Credentials) -> Identity:
        raise AssertionError("not used")


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never was so")


@dataclass
class Served:
    """A server with the interceptor, and its parts."""

    address: str = ""
    limiter: ConcurrencyLimiter = field(default_factory=lambda: ConcurrencyLimiter(4))
    anonymous: AnonymousPool = field(default_factory=lambda: AnonymousPool(4, 2))
    messages: MessageBudget = field(default_factory=lambda: MessageBudget(4 * MESSAGE_BYTES))
    audit: AuditLog = field(default_factory=lambda: AuditLog(4 * CALLS))
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    before_open: Callable[[], None] = lambda: None

    def count(self, method: str, status: str) -> float | None:
        return self.registry.get_sample_value("edge_rag_requests_total", {"method": method, "status": status})

    async def settled(self) -> None:
        """Waits until all slots and all memory are returned: the client hears of the end before."""
        await until(lambda: not (self.limiter.in_use or self.anonymous.in_use or self.messages.in_use))

    def fill(self) -> None:
        for client in "abcd":
            self.limiter.acquire(client)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served()
    lifecycle = Lifecycle()
    lifecycle.open(cast(Backend, object()))
    calls = CallContext(
        lifecycle,
        ByToken(),
        QuotaLedger(),
        CallLimits(made.limiter, made.anonymous, made.messages),
        Timeouts(60, 60),
        Metrics(made.registry, Latencies()),
        RefusalRecorder(made.audit),
    )
    server = grpc.aio.server(
        interceptors=[AdmissionInterceptor(calls, 60, MESSAGE_BYTES, Connections(ConnectionLimits(100, 10)))]
    )
    server.add_generic_rpc_handlers((Methods(GrpcCalls(calls), made),))
    made.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield made
    await server.stop(0)


@pytest.fixture
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def calls_in_memory() -> int:
    return sum(type(each).__name__ == "RPCState" for each in gc.get_objects())


async def ended_calls_are_freed() -> None:
    """Waits until the last ones have ended on the server's side, too."""
    for _ in range(3000):
        if calls_in_memory() < CALLS // 5:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"{calls_in_memory()} of {CALLS} calls are left")


def start(channel: grpc.aio.Channel, method: str, token: str | None = "reader", request_id: str | None = None) -> Any:
    metadata = [("authorization", f"Bearer {token}")] if token is not None else []
    metadata += [(REQUEST_ID, request_id)] if request_id is not None else []
    return cast(Any, channel).stream_stream(f"/test.Test/{method}")(metadata=metadata)


async def ended(call: Any, *requests: bytes) -> tuple[grpc.StatusCode, str, list[bytes]]:
    """Sends requests; returns status, message and responses.

    gRPC's client replaces the status of a call by INTERNAL if it ends before a write of it: a call that is refused
    unread is only waited for.
    """
    responses: list[bytes] = []
    try:
        for request in requests:
            await call.write(request)
        await call.done_writing()
        while (response := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            responses.append(response)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass  # it ended before all requests were sent
    return await call.code(), await call.details(), responses


OUTCOMES = [
    ("Echo", "reader", b"payload", grpc.StatusCode.OK),
    ("Echo", None, None, grpc.StatusCode.UNAUTHENTICATED),
    ("EchoOnce", None, None, grpc.StatusCode.UNAUTHENTICATED),
    ("Write", "reader", None, grpc.StatusCode.PERMISSION_DENIED),
    ("Echo", "reader", b"undecodable", grpc.StatusCode.INVALID_ARGUMENT),
    ("EchoOnce", "reader", b"undecodable", grpc.StatusCode.INVALID_ARGUMENT),
    ("EchoAll", "reader", b"undecodable", grpc.StatusCode.INVALID_ARGUMENT),
    ("Open", None, b"undecodable", grpc.StatusCode.INVALID_ARGUMENT),
    ("Fail", "reader", b"payload", grpc.StatusCode.NOT_FOUND),
    ("FailLate", "reader", b"payload", grpc.StatusCode.NOT_FOUND),
    ("Break", "reader", b"payload", grpc.StatusCode.INTERNAL),
]


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize(("method", "token", "request_", "code"), OUTCOMES)
async def test_an_ended_call_is_freed_without_a_garbage_collection(
    served: Served, method: str, token: str | None, request_: bytes | None, code: grpc.StatusCode
) -> None:
    async with grpc.aio.insecure_channel(served.address) as channel:
        for _ in range(CALLS):
            call = start(channel, method, token)
            if request_ is not None:
                await ended(call, request_)
            assert await call.code() is code
        assert served.count(method, code.name) == CALLS
        await served.settled()
        await ended_calls_are_freed()


@pytest.mark.usefixtures("without_collections")
async def test_a_call_without_a_slot_is_freed_without_a_garbage_collection(served: Served) -> None:
    served.fill()
    async with grpc.aio.insecure_channel(served.address) as channel:
        for _ in range(CALLS):
            call = start(channel, "Echo")
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "grpc-retry-pushback-ms" in dict(await call.trailing_metadata())
        await ended_calls_are_freed()


async def test_a_refused_call_gets_a_request_id_that_the_audit_log_knows(served: Served) -> None:
    served.fill()
    async with grpc.aio.insecure_channel(served.address) as channel:
        for given in (None, "my-request", "not legal"):
            call = start(channel, "Echo", request_id=given)
            request_id = dict(await call.trailing_metadata())[REQUEST_ID]
            assert (request_id == given) is (given == "my-request")
            (entry,) = served.audit.entries(request_id).entries
            assert entry.event.kind is AuditEventKind.REFUSED
            assert entry.event.client == "reader"
            assert entry.event.reason == "Echo: the limit of concurrent calls is reached"
            assert entry.event.numbers["retry_after_s"] > 0


async def test_a_caller_without_identity_displaces_the_oldest_one_and_takes_no_slot_of_others(served: Served) -> None:
    async with grpc.aio.insecure_channel(served.address) as channel:
        calls = []
        for _ in range(4):
            call = start(channel, "Open", None)
            await call.write(b"hello")
            assert await call.read() == b"hello"
            calls.append(call)
        for displaced in calls[:2]:
            assert await displaced.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "grpc-retry-pushback-ms" in dict(await displaced.trailing_metadata())
        assert served.limiter.in_use == 0
        for kept in calls[2:]:
            assert await ended(kept) == (grpc.StatusCode.OK, "", [])
    await served.settled()


async def test_a_call_displaced_while_its_first_response_is_being_sent_ends(served: Served) -> None:
    def displace_while_it_is_sent() -> None:
        def displace() -> None:
            for _ in range(2):
                served.anonymous.acquire("127.0.0.1", lambda: None).release()
                served.anonymous.acquire("127.0.0.1", lambda: None)

        asyncio.get_running_loop().call_soon(displace)

    served.before_open = displace_while_it_is_sent
    async with grpc.aio.insecure_channel(served.address) as channel:
        call = start(channel, "Open", None)
        await call.write(b"hello")
        code, _, responses = await asyncio.wait_for(ended(call), 20)
        assert (code, responses) == (grpc.StatusCode.RESOURCE_EXHAUSTED, [b"hello"])


async def test_memory_is_reserved_while_a_message_comes_and_returned_after(served: Served) -> None:
    async with grpc.aio.insecure_channel(served.address) as channel:
        idle = [start(channel, "EchoAll") for _ in range(2)]
        await until(lambda: served.messages.in_use == 2 * MESSAGE_BYTES)
        waiting = start(channel, "EchoAll")
        other = start(channel, "EchoOnce", "other")
        assert (await ended(other, b"x" * (MESSAGE_BYTES // 2)))[2] == [b"x" * (MESSAGE_BYTES // 2)]
        assert await ended(idle[0], b"a") == (grpc.StatusCode.OK, "", [b"a"])
        assert await ended(waiting, b"b") == (grpc.StatusCode.OK, "", [b"b"])
        assert await ended(idle[1], b"c") == (grpc.StatusCode.OK, "", [b"c"])
    await served.settled()


async def test_a_slot_is_held_until_the_client_has_read_the_status(served: Served) -> None:
    with RawConnection(served.address, window=1) as slow:

        def begin() -> int:
            stream = slow.call("/test.Test/EchoOnce", b"hello", (("authorization", "Bearer slow"),))
            while not slow.streams[stream].body:
                assert slow.read(30)
            return stream

        stream = await asyncio.to_thread(begin)
        await until(lambda: served.count("EchoOnce", "OK") == 1)
        async with grpc.aio.insecure_channel(served.address) as channel:
            assert await ended(start(channel, "EchoOnce"), b"other") == (grpc.StatusCode.OK, "", [b"other"])
        await until(lambda: served.limiter.in_use <= 1)
        assert served.limiter.in_use == 1
        read = await asyncio.to_thread(slow.read_until_ended, stream, 30)
        assert read.messages == [b"hello"]
    await served.settled()


@pytest.mark.parametrize(("method", "token"), [("Echo", "reader"), ("EchoAll", "reader"), ("Open", None)])
async def test_an_undecodable_message_is_counted_and_recorded_without_its_type(
    served: Served, method: str, token: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "grpc"):
        async with grpc.aio.insecure_channel(served.address) as channel:
            code, details, responses = await ended(start(channel, method, token), b"undecodable")
    assert (code, details, responses) == (grpc.StatusCode.INVALID_ARGUMENT, "request: could not be decoded", [])
    assert served.count(method, "INVALID_ARGUMENT") == 1
    (entry,) = served.audit.entries().entries
    assert entry.event.reason == f"{method}: a message could not be decoded"
    assert not caplog.records, "gRPC logs a traceback"
