"""A one-time code to credentials: the newcomer's side. ``edge_rag.core.pairing_code`` says why it is safe."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc

from edge_rag.access.certificates import server_name, to_pem
from edge_rag.api.v1 import access_pb2, access_pb2_grpc
from edge_rag.client.channel import open_channel
from edge_rag.client.credentials import Credentials
from edge_rag.client.failures import CallStatus, ClientError, client_error, unreadable_reply
from edge_rag.client.known_servers import KnownServer
from edge_rag.client.peer_certificate import peer_certificate
from edge_rag.core.pairing_code import PairingCode
from edge_rag.errors import AccessError

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
