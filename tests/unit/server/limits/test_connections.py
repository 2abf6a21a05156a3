"""Connection limits and bans, with real sockets."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

from edge_rag.core.address import HTTP, is_loopback
from edge_rag.server.limits.connection_table import BAN_S, ConnectionLimits
from edge_rag.server.limits.connections import Connections
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


def test_files_of_the_console_are_delayed_for_networks_that_load_them_again_and_again() -> None:
    now = 0.0
    connections = Connections(ConnectionLimits(8, 4), lambda: now)
    crowd = [connections.page_requested(f"ipv4:192.0.2.7:{port}") for port in range(2001)]
    assert crowd == [False] * 2000 + [True]
    assert not connections.page_requested("ipv4:192.0.2.8:5000")
    now = 1.0
    assert [connections.page_requested("ipv4:192.0.2.7:5000") for _ in range(101)] == [False] * 99 + [True] * 2


@contextmanager
def connected(port: int, own: int) -> Iterator[socket.socket]:
    """A client on a port that others of this process may use, too."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind(("127.0.0.1", own))
        client.connect(("127.0.0.1", port))
        client.settimeout(5)
        yield client


def test_one_port_of_a_peer_towards_two_servers_is_two_connections(server: Server) -> None:
    """Each is counted, and an authenticated call over one says nothing of the other."""
    second = Server()
    try:
        shared = connections(server, 1)
        shared.add_ports([second.port], HTTP)
        with connected(server.port, 0) as known, connected(second.port, known.getsockname()[1]) as twin:
            for each in (server, second):
                each.accepted.append(each.listener.accept()[0])
            shared.identified(peer(known))
            assert shared.close_excess() == 1
            assert twin.recv(1) == b""
    finally:
        second.close()


def connections(
    server: Server, most: int, clock: Callable[[], float] = monotonic, local: Callable[[str], bool] = is_loopback
) -> Connections:
    made = Connections(ConnectionLimits(100, most), clock, local)
    made.add_ports([server.port])
    return made


def is_never_local(_: str) -> bool:
    return False


def peer(client: socket.socket) -> str:
    host, port = client.getsockname()
    return f"ipv4:{host}:{port}"


def test_unidentified_connections_over_the_limit_are_closed_the_oldest_first_then_the_newest(server: Server) -> None:
    kept = connections(server, 3)
    known = [server.connect() for _ in range(2)]
    other = [server.connect("127.0.0.2") for _ in range(3)]
    for each in (*known, *other):
        kept.identified(peer(each))
    assert kept.close_excess() == 0
    server.connect()
    assert kept.close_excess() == 0
    last = server.connect()
    assert kept.close_excess() == 1
    assert set(server.open()) == {*known, *other, last}
    server.accepted[-2].close()
    kept.identified(peer(last))
    kept.identified(peer(server.connect()))
    assert kept.close_excess() == 1
    assert set(server.open()) == {*known, *other, last}


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
    kept.cut(peer(one), "a test")
    kept.cut("unix:", "a test")
    assert server.open() == [two]


def test_a_second_server_shares_the_limit_of_the_first(server: Server) -> None:
    second = Server()
    try:
        shared = connections(server, 1)
        shared.add_ports([second.port])
        server.connect()
        second.connect()
        assert shared.close_excess() == 1
        assert len(server.open()) + len(second.open()) == 1
    finally:
        second.close()


def test_connections_to_other_ports_are_neither_counted_nor_closed(server: Server) -> None:
    elsewhere = Connections(ConnectionLimits(100, 1))
    elsewhere.add_ports([1])
    server.connect()
    two = server.connect()
    assert elsewhere.close_excess() == 0
    elsewhere.cut(peer(two), "a test")
    assert len(server.open()) == 2


def cancel(kept: Connections, client: socket.socket, calls: int = 400) -> None:
    for _ in range(calls):
        kept.call_cancelled(peer(client))


def test_a_stranger_that_cancels_many_calls_is_banned_with_all_its_connections_until_the_ban_ends(
    server: Server,
) -> None:
    now = [0.0]
    kept = connections(server, 9, lambda: now[0], is_never_local)
    other, one, two = server.connect("127.0.0.8"), server.connect("127.0.0.9"), server.connect("127.0.0.9")
    cancel(kept, one)
    assert server.open() == [other]
    cancel(kept, two)
    for at, is_in in ((0.0, False), (BAN_S - 0.1, False), (BAN_S, True)):
        now[0] = at
        kept.lift_expired_bans()
        assert is_taken(server.listener, "127.0.0.9") is is_in
        assert is_taken(server.listener, "127.0.0.8")


def test_of_an_address_with_a_known_client_only_the_connection_that_cancels_is_closed(server: Server) -> None:
    kept = connections(server, 9, local=is_never_local)
    neighbour, hasty = server.connect("127.0.0.9"), server.connect("127.0.0.9")
    kept.identified(peer(neighbour))
    cancel(kept, hasty)
    cancel(kept, neighbour, 1)
    assert server.open() == [neighbour]
    assert is_taken(server.listener, "127.0.0.9")


def test_this_host_is_never_banned_and_a_unix_socket_is_not_even_closed(server: Server) -> None:
    kept = connections(server, most=9)
    neighbour, hasty = server.connect(), server.connect()
    cancel(kept, hasty)
    for name in ("unix:", "ipv6:%5Bfe80::7%25eth0%5D:5000"):
        for _ in range(400):
            kept.call_cancelled(name)
    assert is_taken(server.listener, "127.0.0.1")
    assert server.open() == [neighbour]


def test_a_network_whose_connections_are_closed_again_and_again_is_banned(server: Server) -> None:
    kept = connections(server, 1, local=is_never_local)
    for _ in range(70):
        server.connect("127.0.0.9")
    assert kept.close_excess() == 70
    assert not is_taken(server.listener, "127.0.0.9")
    assert is_taken(server.listener, "127.0.0.8")
