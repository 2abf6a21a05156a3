"""What a client shows, and whom it believes.

Servers that this user has credentials for, kept by ``edge-rag connect``.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edge_rag.access.tokens import exclusively
from edge_rag.client.failures import CallStatus, ClientError
from edge_rag.core.atomic_file import replace_file
from edge_rag.errors import AccessError

_FORMAT = 2


class KnownServer(BaseModel):
    """A server and how to call it.

    Attributes:
        address: HOST:PORT.
        authority: Certificates, PEM, of those who may sign its own.
        token: What the client shows; None for nothing.
        server_name: Name that its certificate is verified against; None for the address's.
        box: Name of the box, for people; None where it was not told.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str
    authority: str
    token: str | None = Field(default=None, repr=False)
    server_name: str | None = None
    box: str | None = None

    def fingerprint(self) -> str:
        """Returns the SHA-256 of its authority's certificate, the first of several, in hexadecimal; empty if none."""
        first, end, _ = self.authority.partition(ssl.PEM_FOOTER)
        try:
            return hashlib.sha256(ssl.PEM_cert_to_DER_cert((first + end).strip())).hexdigest()
        except ValueError:
            return ""

    def is_same_box(self, other: KnownServer) -> bool:
        """Whether two entries are about one box, at whatever addresses."""
        return self.server_name is not None and (self.authority, self.server_name) == (
            other.authority,
            other.server_name,
        )


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Annotated[int, Field(ge=1, le=_FORMAT)] = 1
    servers: tuple[KnownServer, ...] = ()


class KnownServers:
    """The file of servers; only its owner can read it.

    Args:
        path: The file; None takes ``edge-rag/servers.json`` in the user's configuration directory (XDG).
    """

    def __init__(self, path: Path | None = None) -> None:
        base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
        self.path = path or Path(base).expanduser() / "edge-rag" / "servers.json"

    def find(self, address: str) -> KnownServer | None:
        """Returns the server at an address, or None.

        Raises:
            ClientError: INVALID_ARGUMENT, the file cannot be read or is damaged.
        """
        return next((server for server in self.servers() if server.address == address), None)

    def servers(self) -> tuple[KnownServer, ...]:
        """Returns all, the latest first.

        Raises:
            ClientError: INVALID_ARGUMENT, the file cannot be read or is damaged.
        """
        try:
            return _File.model_validate_json(self.path.read_bytes()).servers
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ClientError(CallStatus.INVALID_ARGUMENT, f"{self.path}: {error.strerror}") from error
        except ValidationError as error:
            raise ClientError(
                CallStatus.INVALID_ARGUMENT, f"{self.path}: damaged; remove it and run `edge-rag connect` again"
            ) from error

    def keep(self, server: KnownServer) -> None:
        """Keeps a server in place of one at the same address, and of what was kept of the same box at another.

        Raises:
            ClientError: INVALID_ARGUMENT, the file cannot be changed.
        """
        self._change(
            lambda known: (
                server,
                *(one for one in known if one.address != server.address and not one.is_same_box(server)),
            )
        )

    def move(self, server: KnownServer, address: str) -> KnownServer:
        """Gives a server another address. Others stay, also one that had this address: it may have moved too.

        Returns:
            The server at its new address, which is the one that is found there from now on.

        Raises:
            ClientError: INVALID_ARGUMENT, the file cannot be changed.
        """
        moved = server.model_copy(update={"address": address})
        self._change(lambda known: (moved, *(one for one in known if one != server)))
        return moved

    def forget(self, address: str) -> None:
        """Forgets the servers at an address.

        Raises:
            ClientError: NOT_FOUND, none is known there; or INVALID_ARGUMENT, the file cannot be changed.
        """
        if self.find(address) is None:
            known = ", ".join(server.address for server in self.servers()) or "none"
            raise ClientError(CallStatus.NOT_FOUND, f"no box is known at {address}; known are: {known}")
        self._change(lambda known: tuple(one for one in known if one.address != address))

    def _change(self, change: Callable[[tuple[KnownServer, ...]], tuple[KnownServer, ...]]) -> None:
        try:
            with exclusively(self.path):
                content = _File(format=_FORMAT, servers=change(self.servers())).model_dump_json(indent=1).encode()
                replace_file(self.path, content, mode=0o600)
        except AccessError as error:
            raise ClientError(CallStatus.INVALID_ARGUMENT, str(error)) from error


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
