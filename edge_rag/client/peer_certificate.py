"""The certificate at the other end of a connection, looked at before anything is said."""

from __future__ import annotations

import socket
import ssl

from edge_rag.client.failures import CallStatus, ClientError


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
    try:
        with socket.create_connection(host_and_port(address), timeout_s) as plain:
            with context.wrap_socket(plain) as stream:
                shown = stream.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise ClientError(
            CallStatus.UNAVAILABLE,
            f"the daemon at {address} does not serve TLS",
            advice="It listens to other machines with TLS only; call it by another address than that of loopback",
        ) from error
    except OSError as error:
        raise ClientError(
            CallStatus.UNAVAILABLE,
            f"no daemon answers at {address}",
            advice="Is it running, and does it listen to other machines?",
            connected=False,
        ) from error
    if shown is None:
        raise ClientError(CallStatus.UNAVAILABLE, f"the daemon at {address} shows no certificate")
    return shown


def host_and_port(address: str) -> tuple[str, int]:
    """Returns the two parts of HOST:PORT.

    Raises:
        ClientError: INVALID_ARGUMENT, it is a Unix socket.
    """
    if address.startswith("unix:"):
        raise ClientError(CallStatus.INVALID_ARGUMENT, f"server: {address} is a Unix socket, which has no TLS")
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
