"""Names of peers, and the network that an address is counted by."""

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.address import is_local_peer, network_of, network_of_peer, peer_of


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8::7", "2001:db8::/64"),
        ("::1", "::1"),
        ("fe80::1%eth0", "fe80::%eth0/64"),
        ("unix", "unix"),
    ],
)
def test_an_address_is_counted_by_its_network(host: str, network: str) -> None:
    assert network_of(host) == network


@given(st.ip_addresses(v=6), st.integers(0, (1 << 64) - 1))
def test_all_addresses_of_a_64_are_one_network(address: object, interface: int) -> None:
    prefix = int(IPv6Address(str(address))) >> 64 << 64
    if prefix == 0:  # mapped and loopback addresses are not a subscriber's
        return
    assert network_of(str(IPv6Address(prefix | interface))) == network_of(str(IPv6Address(prefix)))


@pytest.mark.parametrize(
    ("name", "peer", "network"),
    [
        ("ipv4:192.0.2.7:5000", ("192.0.2.7", 5000), "192.0.2.7"),
        ("ipv6:%5B2001:db8::7%5D:5000", ("2001:db8::7", 5000), "2001:db8::/64"),
        ("ipv6:[::1]:5000", ("::1", 5000), "::1"),
        ("unix:", None, "unix"),
        ("unix:/run/edge-rag/socket", None, "unix"),
        ("", None, "unix"),
    ],
)
def test_names_of_peers_are_parsed_as_grpc_writes_them(name: str, peer: tuple[str, int] | None, network: str) -> None:
    assert peer_of(name) == peer
    assert network_of_peer(name) == network


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("unix:", True),
        ("ipv4:127.0.0.9:5000", True),
        ("ipv6:%5B::1%5D:5000", True),
        ("ipv6:%5B::ffff:127.0.0.1%5D:5000", True),
        ("ipv4:192.0.2.7:5000", False),
        ("ipv6:%5Bfe80::7%25eth0%5D:5000", False),
        ("ipv4:elsewhere:5000", False),
    ],
)
def test_unix_sockets_and_loopback_addresses_are_of_this_host(name: str, local: bool) -> None:
    assert is_local_peer(name) is local
