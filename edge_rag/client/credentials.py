"""What a client shows, and whom it believes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from edge_rag.client.failures import CallStatus, ClientError
from edge_rag.client.known_servers import KnownServers

AUTHORITY_VARIABLE = "EDGE_RAG_CA"
TOKEN_VARIABLE = "EDGE_RAG_TOKEN_FILE"
CERTIFICATE_VARIABLE = "EDGE_RAG_CERTIFICATE"
KEY_VARIABLE = "EDGE_RAG_KEY"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials for a connection over TLS.

    Attributes:
        authority: Certificates, PEM, of those who may sign the server's.
        token: What the client shows; None for nothing.
        certificate: The client's certificate, PEM; None for none.
        key: Its private key, PEM; goes with the certificate.
        server_name: Name that the server's certificate must hold; None for the host of the address.
    """

    authority: bytes
    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    server_name: str | None = None


def credentials_for(address: str, known: KnownServers | None = None) -> Credentials | None:
    """Returns the credentials for an address, or None where it is called without TLS.

    The files that EDGE_RAG_CA, EDGE_RAG_TOKEN_FILE, EDGE_RAG_CERTIFICATE and EDGE_RAG_KEY name win over what
    ``edge-rag connect`` kept.

    Raises:
        ClientError: INVALID_ARGUMENT, a file cannot be read.
    """
    kept = (known or KnownServers()).find(address)
    named = _file(AUTHORITY_VARIABLE)
    authority = named or (kept.authority.encode() if kept is not None else None)
    if authority is None:
        return None
    token = _file(TOKEN_VARIABLE)
    return Credentials(
        authority,
        token.decode("utf-8", "replace").strip() if token is not None else (kept.token if kept is not None else None),
        _file(CERTIFICATE_VARIABLE),
        _file(KEY_VARIABLE),
        kept.server_name if kept is not None and named is None else None,
    )


def _file(variable: str) -> bytes | None:
    name = os.environ.get(variable)
    if not name:
        return None
    try:
        return Path(name).expanduser().read_bytes()
    except OSError as error:
        raise ClientError(CallStatus.INVALID_ARGUMENT, f"{variable}: {name}: {error.strerror}") from error
