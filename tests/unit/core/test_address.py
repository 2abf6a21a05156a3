"""The network that an address is counted by."""

from __future__ import annotations

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.address import network_of


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
