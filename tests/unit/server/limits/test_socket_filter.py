"""The kernel drops connections of banned addresses, with real sockets."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.server.limits.socket_filter import MAX_ADDRESSES, Address, attach_filter

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


def test_banned_addresses_cannot_connect_and_all_others_can(both: socket.socket) -> None:
    attach_filter(both, [ip_address("127.0.0.66"), ip_address("2001:db8::7"), ip_address("127.0.0.67")])
    assert [is_taken(both, source) for source in ("127.0.0.66", "127.0.0.67")] == [False, False]
    assert [is_taken(both, source) for source in ("127.0.0.1", "127.0.0.68", "::1")] == [True, True, True]
    attach_filter(both, [ip_address("::1")])
    assert [is_taken(both, source) for source in ("127.0.0.66", "::1")] == [True, False]
    attach_filter(both, [])
    assert is_taken(both, "::1")


def test_an_accepted_connection_survives_a_ban_of_its_address(both: socket.socket) -> None:
    with socket.create_connection(both.getsockname()[:2], 30) as client, both.accept()[0] as server:
        attach_filter(both, [ip_address("::1")])
        client.sendall(b"still here")
        server.settimeout(30)
        assert server.recv(10) == b"still here"


@given(st.lists(st.ip_addresses(), min_size=MAX_ADDRESSES, max_size=2 * MAX_ADDRESSES))
def test_the_kernel_accepts_a_program_of_maximum_size(banned: list[Address]) -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        attach_filter(listening, [each for each in banned if str(each) != "127.0.0.99"])
        assert is_taken(listening, "127.0.0.1") is (ip_address("127.0.0.1") not in banned[-MAX_ADDRESSES:])
