"""Many connections at once that want nothing but to be there: others are served, over HTTP and over gRPC.

The daemon accepts 128 connections here instead of 2,048, and strangers open 500; with EDGE_RAG_SOAK_SECONDS it has the
default limits, and they open 5,000.
"""

import http.client
import os
import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import psutil
import pytest

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from edge_rag.server.http.connection import HEAD_S
from tests.e2e.support.running_daemon import ingest, start_daemon
from tests.e2e.support.secured_daemon import OPEN, Box, edge_rag, token

LONG = "EDGE_RAG_SOAK_SECONDS" in os.environ
CONNECTIONS = 5_000 if LONG else 500
TIMES = 100 if LONG else 10
LIMITS = "" if LONG else "connections = 64\n"
CONFIG = f"""
[tls]
always = true
[http]
enabled = true
address = "127.0.0.1:0"
[limits]
slow_client_seconds = 5
{LIMITS}"""
WITHIN_S = 60.0
MIB = 1 << 20
MOST_MIB = 192 if LONG else 48
"""Memory of all connections that are accepted at once, TLS included, and of what is allocated for them."""

HEAD = "GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n"
CHAT = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A box on the network with two readers."""
    folder = tmp_path_factory.mktemp("box")
    data = folder / "data"
    edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
    tokens = {name: token(name, data) for name in ("reader", "other")}
    with start_daemon(data, folder / "log", f'local_listen = "unix:{folder}/socket"\n{CONFIG}') as running:
        ingest(f"unix:{folder}/socket", {"galley.txt": OPEN.encode()}, "default")
        yield Box(running, data, tokens)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(16_384, before[1]), before[1]))
    with ExitStack() as stack:
        yield stack
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def place(box: Box) -> tuple[str, int]:
    host, _, port = box.running.http.removeprefix("https://").rpartition(":")
    return host, int(port)


def trusted(box: Box) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(box.data / "tls" / "ca.pem"))


def is_served(box: Box) -> bool:
    """Makes a call over a connection of its own, which waits for no timeout of a stranger's."""
    connection = http.client.HTTPSConnection(*place(box), timeout=HEAD_S - 1, context=trusted(box))
    try:
        connection.request("GET", "/v1/models", headers={"authorization": f"Bearer {box.tokens['reader']}"})
        return connection.getresponse().status == 200
    finally:
        connection.close()


def others_are_served(box: Box) -> None:
    assert [is_served(box) for _ in range(TIMES)] == [True] * TIMES
    with box.channel("reader") as channel:
        search = rag_pb2.SearchRequest(query="When does the galley open?")
        assert rag_pb2_grpc.RagStub(channel).Search(search, timeout=WITHIN_S).hits


def connect(box: Box, opened: ExitStack, number: int) -> socket.socket:
    """Begins to connect from one of 40 addresses; a flood does not wait for its connections."""
    connection = opened.enter_context(socket.socket())
    connection.setblocking(False)
    connection.bind((f"127.0.2.{number % 40 + 1}", 0))
    with suppress(BlockingIOError):
        connection.connect(place(box))
    return connection


def secured(box: Box, opened: ExitStack, number: int) -> ssl.SSLSocket:
    connection = opened.enter_context(
        socket.create_connection(place(box), timeout=WITHIN_S, source_address=(f"127.0.3.{number % 4 + 1}", 0))
    )
    return opened.enter_context(trusted(box).wrap_socket(connection, server_hostname="127.0.0.1"))


def hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="box").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("first", [b"", b"\x16", hello()], ids=["nothing", "one byte", "a TLS hello"])
def test_idle_connections_keep_nobody_out(
    box: Box, opened: ExitStack, first: bytes, record_property: Callable[[str, object], None]
) -> None:
    others_are_served(box)
    process = psutil.Process(box.running.process.pid)
    before = process.memory_info().rss
    flood = [connect(box, opened, number) for number in range(CONNECTIONS)]
    if first:
        for connection in flood:
            with suppress(OSError):
                connection.send(first)
    others_are_served(box)
    grown = process.memory_info().rss - before
    record_property("measured", f"{TIMES} of {TIMES} calls beside {CONNECTIONS:,}: {grown / MIB:+.0f} MiB")
    assert grown < MOST_MIB * MIB, f"{grown / MIB:.0f} MiB"


@pytest.mark.parametrize(
    "sent",
    [
        HEAD,
        f"{HEAD}\r\n" * 500,
        f"{CHAT}authorization: Bearer {{other}}\r\ncontent-length: 500000\r\n\r\n{{{{",
        f"{CHAT}authorization: Bearer {{other}}\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{{{{\r\n",
        f"{HEAD}authorization: Bearer {{other}}\r\n\r\n" * 300,
    ],
    ids=["half a head", "500 calls of a stranger", "half a body", "a chunk of a body", "300 calls, none read"],
)
def test_halves_and_floods_on_many_connections_hold_up_nobody(
    box: Box, opened: ExitStack, sent: str, record_property: Callable[[str, object], None]
) -> None:
    """What strangers and one reader send takes nothing from another reader."""
    process = psutil.Process(box.running.process.pid)
    before = process.memory_info().rss
    flood = [secured(box, opened, number) for number in range(48)]
    for connection in flood:
        connection.setblocking(False)
        with suppress(OSError):
            connection.send(sent.format(**box.tokens).encode())
    others_are_served(box)
    grown = process.memory_info().rss - before
    record_property("measured", f"{TIMES} of {TIMES} calls beside 48 connections: {grown / MIB:+.0f} MiB")
    assert grown < MOST_MIB * MIB, f"{grown / MIB:.0f} MiB"


def test_connections_that_come_and_go_hold_up_nobody(box: Box, opened: ExitStack) -> None:
    for number in range(CONNECTIONS):
        connect(box, opened, number).close()
    others_are_served(box)


def test_nothing_of_all_that_is_an_error_of_the_daemon(box: Box) -> None:
    log = box.running.log.read_text()
    assert "Traceback" not in log
    assert "exception was never retrieved" not in log
