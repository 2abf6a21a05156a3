"""Default addresses, names of peers, URLs of documents, and the network that an address is counted by."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlencode

DEFAULT_ADDRESS: Final = "127.0.0.1:7421"
DEFAULT_HTTP_ADDRESS: Final = "127.0.0.1:7480"
ADDRESS_VARIABLE: Final = "EDGE_RAG_SERVER"
"""Environment variable with the address that clients call."""
COLLECTION_VARIABLE: Final = "EDGE_RAG_COLLECTION"
"""Environment variable with the collection of commands that are given none."""

UNIX: Final = "unix"
"""Network of all clients over Unix sockets."""

Peer = tuple[str, int]
"""Address and port."""

GRPC: Final = "gRPC"
HTTP: Final = "HTTP"
"""The servers of the daemon."""


class Connection(NamedTuple):
    """A connection. A peer may have the same port towards each server."""

    host: str
    port: int
    server: str = GRPC


_CACHED: Final = 1024
"""Peers whose parsed names are kept: each call needs that of its connection several times."""


@lru_cache(_CACHED)
def peer_of(name: str) -> Peer | None:
    """Parses gRPC's name of a peer; returns None for a Unix socket.

    Examples of names: ``ipv4:192.0.2.7:5000``, ``ipv6:%5B2001:db8::7%5D:5000``.
    """
    scheme, _, rest = name.partition(":")
    host, _, port = rest.rpartition(":")
    if scheme not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return unquote(host).strip("[]"), int(port)


def name_of_peer(peer: Peer) -> str:
    """Returns gRPC's name of a peer; an IPv4 address may be mapped (``::ffff:192.0.2.7``)."""
    host, port = peer[0].removeprefix("::ffff:"), peer[1]
    return f"ipv6:{quote(f'[{host}]', safe='')}:{port}" if ":" in host else f"ipv4:{host}:{port}"


@lru_cache(_CACHED)
def network_of_peer(name: str) -> str:
    """Returns the network of a peer by gRPC's name of it; ``UNIX`` for Unix sockets."""
    peer = peer_of(name)
    return UNIX if peer is None else network_of(peer[0])


def is_local_peer(name: str) -> bool:
    """Returns whether a peer is on this host, by gRPC's name of it: over a Unix socket or a loopback address."""
    peer = peer_of(name)
    return peer is None or is_loopback(peer[0])


@lru_cache(_CACHED)
def is_loopback(host: str) -> bool:
    """Returns whether an address without a port is a loopback address; False for names."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


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


def sign_in_url(console_address: str, code: str) -> str:
    """Returns the URL that opens the console and signs in with a one-time code.

    The code is in the fragment, which browsers send to no server.
    """
    return f"{console_address}#/sign-in/{code}"


def document_url(
    base_url: str, document_id: str, collection: str, start: int, end: int, page: int | None = None
) -> str:
    """Returns the URL of a range of a document's text on the HTTP server that is at ``base_url``.

    Args:
        page: The page that it is on, for whoever shows it; None if that is not known.
    """
    where: dict[str, object] = {"collection": collection, "start": start, "end": end}
    query = urlencode(where if page is None else {**where, "page": page})
    return f"{base_url}/documents/{quote(document_id, safe='')}?{query}"
