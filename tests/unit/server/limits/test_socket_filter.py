"""The kernel drops connections of banned networks, with real sockets."""

import socket
import sys
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.server.limits.socket_filter import MAX_INSTRUCTIONS, Network, attach_filter, build_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has filters of sockets")

SYN_SENT = 2
"""State of a connection that was not accepted; linux/tcp_states.h."""


@pytest.fixture
def both() -> Iterator[socket.socket]:
    """Listens for IPv4 and IPv6."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        yield listening


def is_taken(listening: socket.socket, source: str) -> bool:
    """Whether a connection from there is taken: on one machine that is decided once another one was, after it."""
    port = listening.getsockname()[1]
    version = ip_address(source).version
    family, to = (socket.AF_INET, "127.0.0.1") if version == 4 else (socket.AF_INET6, "::1")
    with socket.socket(family) as client:
        client.bind((source, 0))
        client.setblocking(False)
        client.connect_ex((to, port))
        socket.create_connection(("127.0.0.1", port), 30, ("127.0.0.99", 0)).close()
        return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != bytes([SYN_SENT])


def test_banned_networks_cannot_connect_and_all_others_can(both: socket.socket) -> None:
    attach_filter(both, [ip_network(each) for each in ("127.0.0.66", "2001:db8::/64", "127.0.0.67")])
    assert [is_taken(both, source) for source in ("127.0.0.66", "127.0.0.67")] == [False, False]
    assert [is_taken(both, source) for source in ("127.0.0.1", "127.0.0.68", "::1")] == [True, True, True]
    for own in ("::1", "::/64"):
        attach_filter(both, [ip_network(own)])
        assert [is_taken(both, source) for source in ("127.0.0.66", "::1")] == [True, False]
    attach_filter(both, [])
    assert is_taken(both, "::1")


def test_an_accepted_connection_survives_a_ban_of_its_address(both: socket.socket) -> None:
    with socket.create_connection(both.getsockname()[:2], 30) as client, both.accept()[0] as server:
        attach_filter(both, [ip_network("::1")])
        client.sendall(b"still here")
        server.settimeout(30)
        assert server.recv(10) == b"still here"


@settings(max_examples=20, deadline=None)
@given(st.integers(), st.floats(0, 1))
def test_the_kernel_accepts_a_program_of_maximum_size_and_the_latest_bans_apply(seed: int, share: float) -> None:
    random = Random(seed)
    networks: list[Network] = []
    for _ in range(700):
        if random.random() < share:
            networks.append(ip_network((random.getrandbits(128) >> 64 << 64, 64)))
        else:
            networks.append(ip_network(random.getrandbits(32)))
    banned = [each for each in networks if str(each) != "127.0.0.99/32"] + [ip_network("127.0.0.66")]
    assert len(build_program(banned)) // 8 in range(MAX_INSTRUCTIONS - 16, MAX_INSTRUCTIONS + 1)
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        attach_filter(listening, banned)
        assert not is_taken(listening, "127.0.0.66")
        assert is_taken(listening, "127.0.0.67") is (ip_network("127.0.0.67") not in banned)
