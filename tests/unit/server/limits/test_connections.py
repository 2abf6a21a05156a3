"""Connection limits and bans, with real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from edge_rag.server.limits.connections import BAN_S, Connections
from tests.unit.server.limits.test_socket_filter import is_taken


class Server:
    """Accepts and keeps all connections."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.accepted: list[socket.socket] = []
        self.clients: list[socket.socket] = []

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), source_address=(address, 0))
        client.settimeout(5)
        self.clients.append(client)
        self.accepted.append(self.listener.accept()[0])
        return client

    def open(self) -> list[socket.socket]:
        """Those that the server has not ended."""
        still = []
        for client in self.clients:
            client.setblocking(False)
            try:
                assert client.recv(1) == b""
            except BlockingIOError:
                still.append(client)
        return still

    def close(self) -> None:
        for each in (*self.clients, *self.accepted, self.listener):
            each.close()


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


def connections(server: Server, most: int) -> Connections:
    made = Connections(most)
    made.set_ports(frozenset({server.port}))
    return made


def test_the_newest_connections_over_the_limit_are_closed_and_other_addresses_keep_theirs(server: Server) -> None:
    kept = connections(server, 3)
    first = [server.connect() for _ in range(2)]
    other = [server.connect("127.0.0.2") for _ in range(3)]
    assert kept.close_excess() == 0
    for _ in range(4):
        server.connect()
    assert kept.close_excess() == 3
    still = server.open()
    assert set(first) | set(other) <= set(still)
    assert len(still) == 6
    for accepted in server.accepted[-3:]:
        accepted.close()
    assert kept.close_excess() == 0


def test_a_closed_connection_makes_room_for_another(server: Server) -> None:
    kept = connections(server, 3)
    gone, *_ = [server.connect() for _ in range(3)]
    assert kept.close_excess() == 0
    server.accepted[0].close()
    gone.close()
    server.clients.remove(gone)
    newest = server.connect()
    assert kept.close_excess() == 0
    assert newest in server.open()


def test_only_the_named_peers_connection_is_closed(server: Server) -> None:
    kept = connections(server, 100)
    one, two = server.connect(), server.connect()
    kept.cut(f"ipv4:127.0.0.1:{one.getsockname()[1]}", "a test")
    kept.cut("unix:", "a test")
    assert server.open() == [two]


def test_connections_to_other_ports_are_neither_counted_nor_closed(server: Server) -> None:
    elsewhere = connections(server, 1)
    elsewhere.set_ports(frozenset({1}))
    server.connect()
    two = server.connect()
    assert elsewhere.close_excess() == 0
    elsewhere.cut(f"ipv4:127.0.0.1:{two.getsockname()[1]}", "a test")
    assert len(server.open()) == 2


def test_a_banned_address_loses_its_connections_and_gets_none_until_the_ban_ends(server: Server) -> None:
    now = [0.0]
    made = Connections(9, clock=lambda: now[0])
    made.set_ports(frozenset({server.port}))
    other, one, two = server.connect("127.0.0.8"), server.connect("127.0.0.9"), server.connect("127.0.0.9")
    made.ban(f"ipv4:127.0.0.9:{one.getsockname()[1]}", "it floods")
    assert server.open() == [other]
    made.ban(f"ipv4:127.0.0.9:{two.getsockname()[1]}", "it floods")
    for at, is_in in ((0.0, False), (BAN_S - 0.1, False), (BAN_S, True)):
        now[0] = at
        made.lift_expired_bans()
        assert is_taken(server.listener, "127.0.0.9") is is_in
        assert is_taken(server.listener, "127.0.0.8")


def test_a_peer_that_cannot_be_banned_only_loses_its_connection(server: Server) -> None:
    made = connections(server, most=9)
    server.connect()
    made.ban("unix:", "it floods")
    made.ban("ipv6:%5Bfe80::7%25eth0%5D:5000", "it floods")
    made.lift_expired_bans()
    assert is_taken(server.listener, "127.0.0.1")
    assert len(server.open()) == 1
