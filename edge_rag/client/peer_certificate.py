"""The certificate at the other end of a connection, looked at before anything is said."""

from __future__ import annotations

import socket
import ssl

from edge_rag.client.failures import CallStatus, ClientError
from edge_rag.client.known_servers import KnownServer


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
