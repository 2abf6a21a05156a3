"""What a box says of itself on the network, and what of that is taken from others; pure.

A DNS-SD instance (RFC 6763) of ``_edge-rag._tcp`` with these keys: ``txtvers`` (1), ``version``, ``tls`` (1 or 0) and
``sha256``, the hash of the certificate of the authority that clients believe: it stays when the box gets a new
certificate or address. Nothing of it is secret, and nothing of it proves anything.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

SERVICE: Final = "_edge-rag._tcp.local."

_FORMAT: Final = b"1"
_SHA256: Final = re.compile(rb"[0-9a-f]{64}")
_VERSION: Final = re.compile(rb"[0-9A-Za-z.+-]{1,32}")
_SCOPE: Final = re.compile(r"\w{1,15}", re.ASCII)
_MOST_ADDRESSES: Final = 8


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a box says of itself.

    Attributes:
        name: Name of the box; as an instance it may get a number behind it, where another box has it.
        port: Port that it serves on.
        version: Version of edge-rag.
        tls: Whether it serves TLS there.
        sha256: SHA-256 of its authority's certificate, 64 lower-case hexadecimal digits.
        addresses: Where it listens.
    """

    name: str
    port: int
    version: str
    tls: bool
    sha256: str
    addresses: tuple[str, ...]

    def properties(self) -> dict[bytes, bytes]:
        """Returns it as the keys of a TXT record."""
        return {
            b"txtvers": _FORMAT,
            b"version": self.version.encode(),
            b"tls": b"1" if self.tls else b"0",
            b"sha256": self.sha256.encode(),
        }


@dataclass(frozen=True, slots=True)
class FoundServer:
    """What somebody on the network said. An address hint: nothing of it is to be relied on.

    Attributes:
        name: Name of the box, up to 63 printable characters.
        addresses: HOST:PORT each, at least one, the likeliest to be reached first.
        version: Version of edge-rag; empty where it was not told in a legal form.
        tls: Whether TLS is served.
        sha256: SHA-256 that its authority's certificate is said to have, 64 lower-case hexadecimal digits.
    """

    name: str
    addresses: tuple[str, ...]
    version: str
    tls: bool
    sha256: str


def found_server(
    instance: str, properties: Mapping[bytes, bytes | None], addresses: Iterable[str], port: int | None
) -> FoundServer | None:
    """Reads what somebody said; None where it is not what a box says.

    Args:
        instance: The instance's name, with or without the service's behind it; any text.
        properties: Keys of the TXT record; any bytes.
        addresses: Addresses, those of one link with ``%`` and the interface behind them.
        port: The port.
    """
    sha256, version = properties.get(b"sha256") or b"", properties.get(b"version") or b""
    if not _SHA256.fullmatch(sha256) or port is None or not 0 < port < 65536:
        return None
    places = sorted({place for address in addresses if (place := _place(address)) is not None})
    if not places:
        return None
    return FoundServer(
        name=_printable(instance.removesuffix(f".{SERVICE}")),
        addresses=tuple(f"{text}:{port}" for _, text in places[:_MOST_ADDRESSES]),
        version=version.decode() if _VERSION.fullmatch(version) else "",
        tls=properties.get(b"tls") == b"1",
        sha256=sha256.decode(),
    )


def _place(address: str) -> tuple[tuple[bool, int, int], str] | None:
    """Returns an address behind what it is sorted by, or None where nobody can be called there."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return None
    if known.is_unspecified or known.is_loopback or known.is_multicast or known.is_reserved:
        return None
    if isinstance(known, ipaddress.IPv6Address):
        if known.scope_id is not None and not _SCOPE.fullmatch(known.scope_id):
            return None
        if known.is_link_local and known.scope_id is None:
            return None
    return (known.is_link_local, known.version, int(known)), f"[{known}]" if known.version == 6 else str(known)


def _printable(name: str) -> str:
    """Cuts a name to 63 characters and puts a mark for each that could steer a terminal or hide."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name[:63])
