"""A one-time code to credentials: the newcomer's side. ``edge_rag.core.pairing_code`` says why it is safe.

The certificate at the other end of a connection, looked at before anything is said.

Who of those that announce themselves is known here: what was heard is a hint, what TLS proves counts.

No token is shown in any of this.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Final

import grpc

from edge_rag.access.certificates import server_name, to_pem
from edge_rag.api.v1 import access_pb2, access_pb2_grpc
from edge_rag.client.channel import open_channel
from edge_rag.client.credentials import Credentials, KnownServer
from edge_rag.client.errors import CallStatus, ClientError, client_error, unreadable_reply
from edge_rag.core.pairing_code import PairingCode
from edge_rag.discovery.announcer import FoundServer
from edge_rag.errors import AccessError


def peer_certificate(address: str, timeout_s: float) -> bytes:
    """Returns the certificate, DER, that a server at an address shows; nothing is believed and nothing sent.

    Args:
        address: HOST:PORT.
        timeout_s: Longest time for the connection, seconds.

    Raises:
        ClientError: UNAVAILABLE, nobody speaks TLS there; or INVALID_ARGUMENT, it is no address on a network.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    shown = _shake_hands(context, address, None, timeout_s)
    if shown is None:
        raise ClientError(CallStatus.UNAVAILABLE, f"the daemon at {address} shows no certificate")
    return shown


def proves_itself(known: KnownServer, address: str, timeout_s: float) -> bool:
    """Whether what answers at an address is a box that is known here; says nothing to it but TLS's greeting.

    Args:
        known: The box.
        address: HOST:PORT; where the box is known by the name of its address, that name counts.
        timeout_s: Longest time for the connection, seconds.

    Raises:
        ClientError: UNAVAILABLE, nobody speaks TLS there; or INVALID_ARGUMENT, it is no address on a network.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in gRPC, any certificate that is given may end the chain.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=known.authority)
        _shake_hands(context, address, known.server_name or host_and_port(known.address)[0], timeout_s)
    except (ssl.SSLCertVerificationError, ValueError):
        return False
    return True


def _shake_hands(context: ssl.SSLContext, address: str, name: str | None, timeout_s: float) -> bytes | None:
    """Returns the certificate, DER, that was shown.

    Raises:
        ssl.SSLCertVerificationError: It is not to be believed.
        ClientError: There was none.
    """
    try:
        with socket.create_connection(host_and_port(address), timeout_s) as plain:
            with context.wrap_socket(plain, server_hostname=name) as stream:
                return stream.getpeercert(binary_form=True)
    except ssl.SSLCertVerificationError:
        raise
    except ssl.SSLError as error:
        raise ClientError(
            CallStatus.UNAVAILABLE,
            f"the daemon at {address} does not serve TLS",
            advice="It listens to other machines with TLS only; call it by another address than that of loopback",
        ) from error
    except (OSError, UnicodeError) as error:
        raise ClientError(
            CallStatus.UNAVAILABLE,
            f"no daemon answers at {address}",
            advice="Is it running, and does it listen to other machines?",
            connected=False,
        ) from error


def host_and_port(address: str) -> tuple[str, int]:
    """Returns the two parts of HOST:PORT.

    Raises:
        ClientError: INVALID_ARGUMENT, it is a Unix socket.
    """
    if address.startswith("unix:"):
        raise ClientError(CallStatus.INVALID_ARGUMENT, f"server: {address} is a Unix socket, which has no TLS")
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


_AT_ONCE: Final = 16


def pair(address: str, code: PairingCode, timeout_s: float) -> KnownServer:
    """Exchanges a code for credentials. Not repeated: a code is good once.

    The server's certificate is taken off one connection and compared with the code. The secret goes over a second one
    that believes this certificate only, so that nobody without its key can have taken the server's place in between.

    Args:
        address: HOST:PORT.
        code: The code.
        timeout_s: Longest time for each of the two connections, seconds.

    Returns:
        The server with the credentials for it; not kept anywhere yet.

    Raises:
        ClientError: UNAUTHENTICATED, another server answers there (nothing was sent to it), or the code is not good;
            or the call failed.
    """
    certificate = peer_certificate(address, timeout_s)
    if not code.is_for(certificate):
        raise ClientError(
            CallStatus.UNAUTHENTICATED,
            f"what answers at {address} is not the box that the code was made on, or has got a new certificate since; "
            "it was not shown the code",
            advice="Compare the address; where it is right, somebody may be in between: make no other code before you "
            "know who",
        )
    try:
        leaf = to_pem(certificate)
        credentials = Credentials(leaf, server_name=server_name(leaf))
    except AccessError as error:
        raise unreadable_reply(f"{address}: {error}") from error
    with open_channel(address, credentials) as channel:
        request = access_pb2.PairRequest(key=code.key, secret=code.secret)
        try:
            reply = access_pb2_grpc.AccessStub(channel).Pair(request, timeout=timeout_s)
        except grpc.RpcError as failure:
            raise client_error(failure, address) from failure
    return KnownServer(
        address=address,
        authority=reply.authority.decode("ascii", "replace"),
        token=reply.token,
        server_name=reply.server_name,
        box=reply.box,
    )


def where_from(addresses: Sequence[str], code: PairingCode, timeout_s: float) -> str:
    """Returns at which address the box answers that a code was made on; none of them is shown the code.

    Args:
        addresses: HOST:PORT each, for example as they were announced.
        code: The code.
        timeout_s: Longest time for each connection, seconds.

    Raises:
        ClientError: UNAVAILABLE, it is none of them.
    """

    def is_from(address: str) -> bool:
        try:
            return code.is_for(peer_certificate(address, timeout_s))
        except ClientError:
            return False

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for address, found in zip(addresses, threads.map(is_from, addresses), strict=True):
            if found:
                return address
    raise ClientError(
        CallStatus.UNAVAILABLE,
        "the box that this code was made on does not announce itself here, or has got a new certificate since",
        advice="Give its address: edge-rag connect HOST:PORT --code CODE",
        connected=False,
    )


class Standing(Enum):
    """What is known of a box that announces itself.

    PAIRED: There are credentials for it here, and it has proved that it is the box they are for.
    UNPAIRED: There are none.
    MISMATCH: It has the name or the address of a box that is known here, or claims its certificate, but is another.
    UNREACHABLE: It claims the certificate of a box that is known here, but cannot be reached to prove it.
    """

    PAIRED = "paired"
    UNPAIRED = "unpaired"
    MISMATCH = "mismatch"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Recognized:
    """A box that announces itself.

    Attributes:
        found: What it said.
        standing: What is known of it.
        address: Where it is to be called; where it proved itself, if it did.
        known: The box it is, or is mistaken for; None where there is none.
    """

    found: FoundServer
    standing: Standing
    address: str
    known: KnownServer | None

    def warning(self) -> str:
        """Returns what to say to people of a box that is not who it seems to be."""
        box = "another box" if self.known is None else f"{self.known.box or self.known.address}, which is known here"
        return (
            f"WARNING: what answers at {self.address} as {self.found.name} is not {box}. It was told nothing. Where "
            "that box has got new certificates, pair anew with `edge-rag connect`; else somebody pretends to be it"
        )


def recognize(found: Iterable[FoundServer], known: Sequence[KnownServer], timeout_s: float) -> list[Recognized]:
    """Tells who those that announce themselves are, in their order.

    Args:
        found: What they said.
        known: The boxes that are known here.
        timeout_s: Longest time for one connection, seconds.
    """
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(lambda one: _recognized(one, known, timeout_s), found))


def answering(known: Sequence[KnownServer], timeout_s: float) -> list[KnownServer]:
    """Returns those of the known boxes that prove themselves where they were last, in their order.

    Args:
        known: The boxes.
        timeout_s: Longest time for one connection, seconds.
    """
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = threads.map(lambda one: _proof(one, (one.address,), timeout_s)[0], known)
        return [one for one, standing in zip(known, answers, strict=True) if standing is Standing.PAIRED]


def _recognized(found: FoundServer, known: Sequence[KnownServer], timeout_s: float) -> Recognized:
    claimed = [one for one in known if one.fingerprint() == found.sha256]
    worst = Recognized(found, Standing.UNPAIRED, found.addresses[0], None)
    for one in claimed:
        standing, address = _proof(one, found.addresses, timeout_s)
        if standing is Standing.PAIRED:
            return Recognized(found, standing, address, one)
        if worst.standing is not Standing.MISMATCH:
            worst = Recognized(found, standing, address, one)
    if not claimed:
        for one in known:
            if one.box == found.name or one.address in found.addresses:
                return Recognized(found, Standing.MISMATCH, found.addresses[0], one)
    return worst


def _proof(known: KnownServer, addresses: Iterable[str], timeout_s: float) -> tuple[Standing, str]:
    """Returns whether a box proves at one of some addresses who it is, and at which."""
    outcome, where = Standing.UNREACHABLE, known.address
    for address in addresses:
        try:
            if proves_itself(known, address, timeout_s):
                return Standing.PAIRED, address
        except ClientError:
            continue
        outcome, where = Standing.MISMATCH, address
    return outcome, where
