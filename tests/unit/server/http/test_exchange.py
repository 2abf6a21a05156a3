"""Calls over ASGI without sockets: how each ends, and that slots and memory are returned whichever way."""

import asyncio
import json
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from edge_rag.access.certificates import CertificateFolder, TlsFiles
from edge_rag.access.quotas import QuotaLedger
from edge_rag.core.identity import Identity, Role
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.query import AnswerMode
from edge_rag.errors import DocumentNotFound, Unauthenticated
from edge_rag.server.http import connection as http_connection
from edge_rag.server.http import exchange as http_exchange
from edge_rag.server.http import server as http_server
from edge_rag.server.http.calls import HttpCalls, HttpRoute
from edge_rag.server.http.exchange import Exchange, HttpLimits, event_line
from edge_rag.server.http.server import HttpServer
from edge_rag.server.limits.connection_table import ConnectionLimits
from edge_rag.server.limits.connections import Connections
from edge_rag.server.listeners import HttpListener, TlsOptions
from edge_rag.service.authentication import Authenticator, Credentials
from edge_rag.service.call import Call, CallContext, Operation
from edge_rag.service.lifecycle import Backend, Lifecycle
from edge_rag.service.limits import AnonymousPool, CallLimits, ConcurrencyLimiter, MessageBudget, Timeouts
from edge_rag.service.refusals import RefusalRecorder
from edge_rag.telemetry.activity import Latencies
from edge_rag.telemetry.audit_log import AuditLog
from edge_rag.telemetry.metrics.calls import Metrics

READ = Operation("Read", Role.READER)
REQUESTS = RequestLimits(100, AnswerMode.QUOTE, 4)
WRITE = Operation("Write", Role.WRITER)
Handler = Callable[[Call, Exchange], Awaitable[None]]


class ByToken(Authenticator):
    def __init__(self) -> None:
        pass

    def authenticate(self, credentials: Credentials) -> Identity:
        if credentials.token is None:
            raise Unauthenticated("credentials are needed")
        return Identity(credentials.token, frozenset({Role.READER}))

    def anonymous(self, credentials: Credentials) -> Identity:
        raise AssertionError("not used")


@dataclass
class Client:
    """The other end: what it sends, and what it has received.

    Attributes:
        body: Its request's body; None if that never arrives.
        reads: Whether it reads the response.
    """

    body: bytes | None = b"{}"
    reads: bool = True
    sent: bool = False
    aborted: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    messages: list[dict[str, Any]] = field(default_factory=list)
    certificate_names: tuple[str, ...] = ()

    @property
    def can_write(self) -> bool:
        return self.reads

    def abort(self) -> None:
        self.aborted = True

    async def receive(self) -> dict[str, Any]:
        if not self.sent and self.body is not None:
            self.sent = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if not self.reads:
            await asyncio.Event().wait()
        self.messages.append(message)

    @property
    def status(self) -> int:
        return cast(int, self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def text(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])


class Served:
    """The calls under test, and what they share."""

    def __init__(self, slow_client_s: float = 60) -> None:
        self.limiter, self.messages = ConcurrencyLimiter(4), MessageBudget(1 << 20)
        self.registry = CollectorRegistry()
        self.audit = AuditLog(10)
        lifecycle = Lifecycle()
        lifecycle.open(cast(Backend, object()))
        self.context = CallContext(
            lifecycle,
            ByToken(),
            QuotaLedger(),
            CallLimits(self.limiter, AnonymousPool(), self.messages),
            Timeouts(60, 60),
            Metrics(self.registry, Latencies()),
            RefusalRecorder(self.audit),
        )
        self.limits = HttpLimits(1 << 14, 1 << 18, slow_client_s, frozenset())
        self._calls = HttpCalls(self.context, self.limits, REQUESTS, Connections(ConnectionLimits(100, 10)))

    async def serve(
        self,
        client: Client,
        handler: Handler,
        operation: Operation = READ,
        token: str | None = "reader",
        more: Mapping[str, str] = MappingProxyType({}),
        streams: bool = False,
    ) -> None:
        headers = {"host": "box", "content-type": "application/json", "content-length": "2", **more}
        if token is not None:
            headers["authorization"] = f"bearer {token}"
        scope = {
            "type": "http",
            "scheme": "https",
            "client": ("192.0.2.7", 5000),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "query_string": b"",
            "state": {"connection": client},
        }
        await self._calls.serve(
            HttpRoute("POST", "/", operation, handler, streams=streams), scope, client.receive, client.send
        )
        assert (self.limiter.in_use, self.messages.in_use) == (0, 0)

    def count(self, method: str, status: str) -> float | None:
        return self.registry.get_sample_value("edge_rag_requests_total", {"method": method, "status": status})


async def echo(call: Call, exchange: Exchange) -> None:
    await exchange.respond(200, exchange.body, "application/json", {"x-request-id": call.request_id})


async def begin(exchange: Exchange) -> None:
    await exchange.start(200, "text/event-stream", {})
    await exchange.write(event_line({"text": "so far"}))


async def test_a_call_is_answered_and_counted() -> None:
    served, client = Served(), Client()
    await served.serve(client, echo, more={"x-request-id": "ticket-17"})
    assert (client.status, client.text, client.headers["x-request-id"]) == (200, b"{}", "ticket-17")
    assert served.count("Read", "OK") == 1


async def test_a_large_response_is_handed_over_in_pieces() -> None:
    served, client = Served(), Client()

    async def large(call: Call, exchange: Exchange) -> None:
        await exchange.respond(200, b"x" * 200_000, "text/plain", {})

    await served.serve(client, large)
    assert client.text == b"x" * 200_000
    assert max(len(message["body"]) for message in client.messages[1:]) <= 32 << 10


async def test_a_failure_in_mid_stream_is_its_last_line() -> None:
    served, client = Served(), Client()

    async def fail_late(call: Call, exchange: Exchange) -> None:
        await begin(exchange)
        raise DocumentNotFound("a.txt")

    await served.serve(client, fail_late)
    *_, last, end = client.text.split(b"\n\n")
    assert end == b""
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "document_not_found"
    assert client.messages[-1]["more_body"] is False


async def test_a_programming_error_is_told_by_the_id_of_the_call_only() -> None:
    served, client = Served(), Client()

    async def fail(call: Call, exchange: Exchange) -> None:
        raise ValueError("a secret")

    await served.serve(client, fail)
    assert client.status == 500
    assert client.headers["x-request-id"] in client.text.decode()
    assert b"secret" not in client.text


async def test_a_client_that_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_exchange, "_REFUSAL_S", 0.01)
    served, client = Served(slow_client_s=0.01), Client(reads=False)
    await served.serve(client, echo)
    assert client.aborted
    assert served.count("Read", "ABORTED") == 1


async def test_a_client_that_goes_ends_its_call() -> None:
    served, client = Served(), Client()
    ended: list[str] = []

    async def wait(call: Call, exchange: Exchange) -> None:
        await begin(exchange)
        client.gone.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(call.request_id)

    await served.serve(client, wait)
    assert len(ended) == 1
    assert served.count("Read", "CANCELLED") == 1


@pytest.fixture
def short_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BODY_S", "_DISCARD_S"):
        monkeypatch.setattr(http_exchange, name, 0.01)


@pytest.mark.usefixtures("short_of_time")
async def test_a_body_that_never_arrives_ends_its_call() -> None:
    served, client = Served(), Client(body=None)
    await served.serve(client, echo)
    assert (client.status, client.headers["connection"]) == (504, "close")
    assert served.count("Read", "DEADLINE_EXCEEDED") == 1


@pytest.mark.usefixtures("short_of_time")
@pytest.mark.parametrize(("token", "status"), [(None, 401), ("reader", 403)])
async def test_who_may_not_is_refused_before_the_body_is_asked_for(token: str | None, status: int) -> None:
    served, client = Served(), Client()
    await served.serve(client, echo, WRITE, token, {"expect": "100-continue"})
    assert (client.status, client.sent) == (status, False)
    assert client.headers["connection"] == "close"
    assert [entry.event.kind for entry in served.audit.entries().entries] == [AuditEventKind.REFUSED]


async def test_a_head_that_arrives_byte_by_byte_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 0.05)
    served = Served()
    connections = Connections(ConnectionLimits(100, 10))
    server = HttpServer(HttpListener("127.0.0.1:0", None), served.context, REQUESTS, served.limits, connections, 100)
    host, port = (await server.start()).removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    closed = asyncio.ensure_future(reader.read())
    writer.write(b"GET /v1/models HTTP/1.1\r\nx: ")
    async with asyncio.timeout(60):
        while not closed.done():
            writer.write(b"a")
            await asyncio.wait({closed}, timeout=0.01)
    assert closed.exception() is not None or closed.result() == b""
    writer.close()
    await server.stop(0)


async def test_a_handshake_that_never_ends_closes_its_connection_and_a_connection_takes_little_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = CertificateFolder(tmp_path)
    folder.make("box", ["127.0.0.1"], datetime.now(UTC))
    pair = folder.server
    tls = TlsOptions(TlsFiles(pair.certificate, pair.key, None, None), client_certificates=False)
    monkeypatch.setattr(http_server, "_HANDSHAKE_S", 0.05)
    served = Served()
    connections = Connections(ConnectionLimits(100, 10))
    listener = HttpListener("127.0.0.1:0", tls)
    server = HttpServer(listener, served.context, REQUESTS, served.limits, connections, 100)
    host, port = (await server.start()).removeprefix("https://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(60):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
    assert SSLProtocol.max_size <= 1 << 15
    await server.stop(0)


async def test_a_client_that_leaves_with_its_whole_response_has_cancelled_nothing() -> None:
    served, client = Served(), Client()

    async def answer(call: Call, exchange: Exchange) -> None:
        await exchange.respond(200, b"all of it", "text/plain", {})
        client.gone.set()
        for _ in range(10):
            await asyncio.sleep(0)

    await served.serve(client, answer)
    assert client.text == b"all of it"
    assert served.count("Read", "OK") == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_kernel_does_not_hold_events_back(host: str) -> None:
    with http_server._bind(host, 0) as listening, socket.create_connection(listening.getsockname()[:2]):
        listening.settimeout(60)
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
