"""Pairing: the client's side of exchanging a one-time code for credentials.

The security argument is in ``edge_rag.core.pairing_code``. Nothing here sends a token.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc

from edge_rag.access.certificates import server_name, to_pem
from edge_rag.api.v1 import access_pb2, access_pb2_grpc
from edge_rag.client.channel import open_channel
from edge_rag.client.credentials import Credentials, KnownServer
from edge_rag.client.errors import CallStatus, ClientError, client_error, unreadable_reply
from edge_rag.core.pairing_code import PairingCode
from edge_rag.errors import AccessError

PARALLEL_CONNECTIONS: Final = 16


def pair(address: str, code: PairingCode, timeout_s: float) -> KnownServer:
    """Exchanges a code for credentials. The call is not repeated: a code is valid once.

    The first connection only takes the server's certificate, which is compared with the code. The secret goes over a
    second connection that trusts this certificate alone, so that a server without its key cannot receive it.

    Returns:
        The server with the credentials for it; ``KnownServers().store`` stores them for later clients.

    Raises:
        Unauthenticated: Another server answers at the address, and nothing was sent to it; or the code is not valid.
    """
    certificate = peer_certificate(address, timeout_s)
    if not code.is_for(certificate):
        raise ClientError(
            CallStatus.UNAUTHENTICATED,
            f"the server at {address} is not the box that the code was made on, or has a new certificate since; "
            "the code was not sent",
            advice="Is the code from another box, or the address that of another one? Then nothing is lost: use the "
            "code's own box, which `edge-rag connect --code CODE` finds without an address. If both are right, the "
            "connection may be intercepted: clarify that before you make another code",
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


def find_issuer(addresses: Sequence[str], code: PairingCode, timeout_s: float) -> str:
    """Returns the address of the box that a code was made on. The code is sent to none of them."""

    def is_issuer(address: str) -> bool:
        try:
            return code.is_for(peer_certificate(address, timeout_s))
        except ClientError:
            return False

    with ThreadPoolExecutor(PARALLEL_CONNECTIONS) as threads:
        for address, found in zip(addresses, threads.map(is_issuer, addresses), strict=True):
            if found:
                return address
    raise ClientError(
        CallStatus.UNAVAILABLE,
        "the box that this code was made on does not announce itself here, or has a new certificate since",
        advice="Give its address: edge-rag connect HOST:PORT --code CODE",
        connected=False,
    )


def peer_certificate(address: str, timeout_s: float) -> bytes:
    """Returns the certificate, DER, of the server at an address. It is not verified, and nothing is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    certificate = tls_handshake(context, address, None, timeout_s)
    if certificate is None:
        raise ClientError(CallStatus.UNAVAILABLE, f"the daemon at {address} shows no certificate")
    return certificate


def tls_handshake(context: ssl.SSLContext, address: str, name: str | None, timeout_s: float) -> bytes | None:
    """Returns the certificate, DER, of the server at an address.

    Args:
        address: HOST:PORT.
        name: Name to verify it against; None for none.

    Raises:
        ssl.SSLCertVerificationError: It cannot be verified.
        Unavailable: There is no TLS server.
        InvalidArgument: It is not an address on a network.
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
    """Splits HOST:PORT."""
    if address.startswith("unix:"):
        raise ClientError(CallStatus.INVALID_ARGUMENT, f"server: {address} is a Unix socket, which has no TLS")
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
