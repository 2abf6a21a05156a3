"""Which of the servers that announce themselves on the network are known.

An announcement is a hint only; TLS proves an identity. Nothing here sends a token.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from edge_rag.client.credentials import KnownServer
from edge_rag.client.errors import ClientError
from edge_rag.client.pairing import PARALLEL_CONNECTIONS, host_and_port, tls_handshake

if TYPE_CHECKING:  # the client alone is installed without discovery
    from edge_rag.discovery.announcer import FoundServer


class IdentityStatus(Enum):
    """Whether a server that announces itself is known.

    PAIRED: There are credentials for it, and it has proved that it is the box they are for.
    REVOKED: It is that box, which does not take these credentials any more. Only a call can find this out.
    UNPAIRED: There are no credentials for it.
    MISMATCH: It has the name or the address of a known box, or claims its certificate, but is another.
    UNREACHABLE: It claims the certificate of a known box, but cannot be reached to prove it.
    """

    PAIRED = "paired"
    REVOKED = "revoked"
    UNPAIRED = "unpaired"
    MISMATCH = "mismatch"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class IdentifiedServer:
    """A server that announces itself.

    Attributes:
        address: The address to call it at; the one at which it proved its identity, if it did.
        known: The known box that it is, or claims to be; None if there is none.
    """

    found: FoundServer
    status: IdentityStatus
    address: str
    known: KnownServer | None

    def warning(self) -> str:
        """Returns the warning about a server that claims the identity of a known box."""
        box = "another box" if self.known is None else f"{self.known.box or self.known.address}, which is known here"
        return (
            f"WARNING: the server at {self.address}, announced as {self.found.name}, is not {box}. Nothing was sent to "
            "it. If that box has new certificates, pair again with `edge-rag connect`; otherwise it is impersonated"
        )


def identify(found: Iterable[FoundServer], known: Sequence[KnownServer], timeout_s: float) -> list[IdentifiedServer]:
    """Returns the identities of servers that announce themselves, in their order."""
    with ThreadPoolExecutor(PARALLEL_CONNECTIONS) as threads:
        return list(threads.map(lambda one: _identified(one, known, timeout_s), found))


def reachable(known: Sequence[KnownServer], timeout_s: float) -> list[KnownServer]:
    """Returns the known boxes that prove their identity at their last address, in their order."""
    with ThreadPoolExecutor(PARALLEL_CONNECTIONS) as threads:
        proofs = threads.map(lambda one: _prove(one, (one.address,), timeout_s)[0], known)
        return [one for one, status in zip(known, proofs, strict=True) if status is IdentityStatus.PAIRED]


def _identified(found: FoundServer, known: Sequence[KnownServer], timeout_s: float) -> IdentifiedServer:
    claimed = [one for one in known if one.fingerprint() == found.sha256]
    worst = IdentifiedServer(found, IdentityStatus.UNPAIRED, found.addresses[0], None)
    for one in claimed:
        status, address = _prove(one, found.addresses, timeout_s)
        if status is IdentityStatus.PAIRED:
            return IdentifiedServer(found, status, address, one)
        if worst.status is not IdentityStatus.MISMATCH:
            worst = IdentifiedServer(found, status, address, one)
    if not claimed:
        for one in known:
            if one.box == found.name or one.address in found.addresses:
                return IdentifiedServer(found, IdentityStatus.MISMATCH, found.addresses[0], one)
    return worst


def _prove(known: KnownServer, addresses: Iterable[str], timeout_s: float) -> tuple[IdentityStatus, str]:
    """Returns whether a box proves its identity at one of some addresses, and at which."""
    outcome, where = IdentityStatus.UNREACHABLE, known.address
    for address in addresses:
        try:
            if is_server(known, address, timeout_s):
                return IdentityStatus.PAIRED, address
        except ClientError:
            continue
        outcome, where = IdentityStatus.MISMATCH, address
    return outcome, where


def is_server(known: KnownServer, address: str, timeout_s: float) -> bool:
    """Whether the server at an address proves by its certificate that it is a known box. Nothing but TLS is sent.

    Args:
        address: HOST:PORT. A box without ``server_name`` is verified against the host that it is known by.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in gRPC, any of the given certificates may end the chain.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=known.authority)
        tls_handshake(context, address, known.server_name or host_and_port(known.address)[0], timeout_s)
    except (ssl.SSLCertVerificationError, ValueError):
        return False
    return True
