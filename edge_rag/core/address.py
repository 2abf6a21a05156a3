"""Where a daemon listens and clients call unless they are configured otherwise, and the network of an address."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

DEFAULT_ADDRESS: Final = "127.0.0.1:7421"
ADDRESS_VARIABLE: Final = "EDGE_RAG_SERVER"
"""Environment variable with the address that clients call."""


def network_of(host: str) -> str:
    """Returns the network that the allowance of an address is counted by: an IPv4 address, or the /64 of an IPv6 one.

    A subscriber gets a /64 at least, and may use any of its addresses (RFC 6177). The networks of link-local addresses
    stay apart by interface. Anything else, such as ``unix``, is returned as it is.

    Args:
        host: An address without a port; an IPv4 address may be mapped (``::ffff:192.0.2.7``).
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return str(address)
    prefix = IPv6Address(int(address) >> _HOST_BITS << _HOST_BITS)
    return f"{prefix}/64" if address.scope_id is None else f"{prefix}%{address.scope_id}/64"


_HOST_BITS: Final = 64
