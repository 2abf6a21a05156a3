"""What callers without credentials, and callers that send or read halves, can take from the others: next to nothing."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from edge_rag.api.v1 import access_pb2, access_pb2_grpc, rag_pb2, rag_pb2_grpc
from edge_rag.bootstrap.network import message_memory_bytes
from edge_rag.config.settings import Settings
from edge_rag.service.limits import ANONYMOUS_CALLS
from tests.e2e.support.running_daemon import status_of
from tests.e2e.support.secured_daemon import METHODS, Box
from tests.support.raw_connection import RawConnection

HEALTH = "/grpc.health.v1.Health"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
SEARCH = "/edge_rag.v1.Rag/Search"
PAIR = "/edge_rag.v1.Access/Pair"
ADDRESSES = 64
CALLS_PER_ADDRESS = 4
MIB = 1 << 20
UNDECODABLE = b"\xff\xff\xff\xff"
WITHIN_S = 60.0


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connect(box: Box, opened: ExitStack, number: int) -> RawConnection:
    authority = box.data / "tls" / "ca.pem"
    raw = RawConnection(box.running.address, source=f"127.0.1.{number + 1}", authority=authority)
    return opened.enter_context(raw)


@dataclass
class HalfSent:
    """A request of which all but the last byte is to be sent."""

    connection: RawConnection
    stream: int
    rest: bytes

    def send(self) -> bool:
        sent = False
        while self.rest and not self.ended and (room := min(self.connection.room(self.stream), 1 << 14)):
            self.connection.send(self.stream, self.rest[:room])
            self.rest, sent = self.rest[room:], True
        return sent

    @property
    def ended(self) -> bool:
        return self.connection.closed or self.connection.streams[self.stream].ended


def send_halves(connections: list[RawConnection], path: str, headers: tuple[tuple[str, str], ...], size: int) -> None:
    """Begins sixteen requests on each connection, and sends all but the end of them, as far as the server takes it."""
    request = struct.pack(">BI", 0, size) + bytes(size - 1)
    halves = [
        HalfSent(connection, connection.call(path, None, headers, end=False), request)
        for connection in connections
        for _ in range(16)
    ]
    idle = 0
    while idle < 10:  # passes without anything taken
        taken = [half.send() for half in halves]
        came = [connection.read(0.02) for connection in connections if not connection.closed]
        idle = 0 if any(taken) or any(came) else idle + 1


def resident_bytes(box: Box) -> int:
    return psutil.Process(box.running.process.pid).memory_info().rss


def known_calls_succeed(box: Box, calls: int = 10) -> None:
    with box.channel("reader") as channel:
        for _ in range(calls):
            found = rag_pb2_grpc.RagStub(channel).Search(
                rag_pb2.SearchRequest(query="When does the galley open?", collection="a"), timeout=WITHIN_S
            )
            assert found.hits


def a_stranger_gets_a_health_check(box: Box) -> None:
    with box.channel() as channel:
        check = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=WITHIN_S)
    assert check.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    ("path", "message"),
    [(f"{HEALTH}/Watch", b""), (REFLECTION, None), (PAIR, None), (f"{HEALTH}/Check", None)],
    ids=["watch", "reflection", "pair", "check"],
)
def test_idle_calls_of_strangers_from_many_addresses_keep_nobody_out(
    box: Box, opened: ExitStack, path: str, message: bytes | None
) -> None:
    connections = [connect(box, opened, number) for number in range(ADDRESSES)]
    streams = []
    for connection in connections:
        for _ in range(CALLS_PER_ADDRESS):
            streams.append(connection.streams[connection.call(path, message, end=False)])
    known_calls_succeed(box)
    a_stranger_gets_a_health_check(box)
    until = time.monotonic() + WITHIN_S
    while len(displaced := [stream for stream in streams if stream.ended]) < len(streams) - ANONYMOUS_CALLS:
        assert time.monotonic() < until, f"only {len(displaced)} calls had to make room"
        for connection in connections:
            connection.read(0.01)
    assert {stream.headers["grpc-status"] for stream in displaced} == {str(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])}


@pytest.mark.parametrize("size", [16 * MIB, MIB], ids=["16 MiB", "1 MiB"])
@pytest.mark.parametrize(("path", "name"), [(SEARCH, None), (PAIR, None), (SEARCH, "reader")])
def test_half_sent_requests_take_no_more_memory_than_planned(
    box: Box,
    opened: ExitStack,
    path: str,
    name: str | None,
    size: int,
    record_property: Callable[[str, object], None],
) -> None:
    headers = () if name is None else (("authorization", f"Bearer {box.tokens[name]}"),)
    known_calls_succeed(box)
    before = resident_bytes(box)
    send_halves([connect(box, opened, number) for number in range(4)], path, headers, size)
    grown = resident_bytes(box) - before
    planned = message_memory_bytes(Settings())
    record_property("measured", f"64 half-sent requests: +{grown / MIB:.0f} of {planned / MIB:.0f} MiB")
    assert grown <= planned, f"{grown / MIB:.0f} MiB"
    with box.channel("reader-a") as channel:
        identity = access_pb2_grpc.AccessStub(channel).WhoAmI(access_pb2.WhoAmIRequest(), timeout=WITHIN_S)
    assert identity.name == "reader-a"


def test_a_request_of_a_stranger_is_refused_before_it_is_sent(box: Box, opened: ExitStack) -> None:
    connection = connect(box, opened, 0)
    for service, method in sorted(METHODS - {("Access", "Pair")}):
        stream = connection.read_until_ended(connection.call(f"/edge_rag.v1.{service}/{method}"), WITHIN_S)
        assert stream.headers["grpc-status"] == str(grpc.StatusCode.UNAUTHENTICATED.value[0]), method


def test_an_undecodable_message_is_the_clients_error_in_every_method(box: Box) -> None:
    methods = [(f"/edge_rag.v1.{service}/{method}", "admin") for service, method in sorted(METHODS)]
    for path, name in (*methods, (f"{HEALTH}/Check", None), (REFLECTION, None)):
        with box.channel(name) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                list(cast(Any, channel).stream_stream(path)(iter([UNDECODABLE]), timeout=WITHIN_S))
        assert status_of(refused.value) == (grpc.StatusCode.INVALID_ARGUMENT, "request: could not be decoded"), path
    with box.channel("admin") as channel:
        for _ in range(100):
            with pytest.raises(grpc.RpcError):
                cast(Any, channel).unary_unary(SEARCH)(UNDECODABLE, timeout=WITHIN_S)
    log = box.running.log.read_text()
    assert "Traceback" not in log
    assert 1 <= log.count("a message could not be decoded") < len(methods) + 100
