"""Credentials of a client: those that the environment names, and those that ``edge-rag connect`` stored."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Final

from edge_rag.client.errors import CallStatus, ClientError
from edge_rag.core.atomic_file import lock_file, replace_file
from edge_rag.errors import AccessError

_FORMAT = 3


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A server and the credentials for it.

    Attributes:
        authority: Certificates, PEM, of the authorities that may sign the server's certificate.
        server_name: Name that the server's certificate is verified against; None for the host of the address.
        box: Name of the box, for people; None if it is not known.
        collection: The only collection that the token is for; None if it is for several or all.
    """

    address: str
    authority: str
    token: str | None = field(default=None, repr=False)
    server_name: str | None = None
    box: str | None = None
    collection: str | None = None

    def fingerprint(self) -> str:
        """Returns the SHA-256 of the authority's first certificate, in hexadecimal; empty if there is none."""
        first, end, _ = self.authority.partition(ssl.PEM_FOOTER)
        try:
            return hashlib.sha256(ssl.PEM_cert_to_DER_cert((first + end).strip())).hexdigest()
        except ValueError:
            return ""

    def is_same_box(self, other: KnownServer) -> bool:
        """Whether both entries are about one box, at the same or at another address."""
        return self.server_name is not None and (self.authority, self.server_name) == (
            other.authority,
            other.server_name,
        )


_REQUIRED: Final = frozenset(each.name for each in fields(KnownServer) if each.default is MISSING)
_OPTIONAL: Final = frozenset(each.name for each in fields(KnownServer)) - _REQUIRED


def _read_servers(content: bytes) -> tuple[KnownServer, ...]:
    """Returns the servers in a file."""
    document = json.loads(content)
    if not isinstance(document, dict) or not document.keys() <= {"format", "servers"}:
        raise ValueError("not a file of servers")
    number, servers = document.get("format", 1), document.get("servers", [])
    if type(number) is not int or not 1 <= number <= _FORMAT or not isinstance(servers, list):
        raise ValueError("not a file of servers of this version")
    return tuple(map(_read_server, servers))


def _read_server(entry: object) -> KnownServer:
    if not isinstance(entry, dict) or not _REQUIRED <= entry.keys() <= _REQUIRED | _OPTIONAL:
        raise ValueError("not a server")
    for name, value in entry.items():
        if not isinstance(value, str) and not (value is None and name in _OPTIONAL):
            raise ValueError(f"{name} is not a text")
    return KnownServer(**entry)


class KnownServers:
    """The file of known servers, readable by its owner only.

    Args:
        path: The file; None takes ``edge-rag/servers.json`` in the user's configuration directory (XDG).
    """

    def __init__(self, path: Path | None = None) -> None:
        base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
        self.path = path or Path(base).expanduser() / "edge-rag" / "servers.json"

    def find(self, address: str) -> KnownServer | None:
        """Returns the server at an address, or None."""
        return next((server for server in self.servers() if server.address == address), None)

    def servers(self) -> tuple[KnownServer, ...]:
        """Returns all known servers, the latest first."""
        try:
            return _read_servers(self.path.read_bytes())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ClientError(CallStatus.INVALID_ARGUMENT, f"{self.path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ClientError(
                CallStatus.INVALID_ARGUMENT, f"{self.path}: damaged; remove it and run `edge-rag connect` again"
            ) from error

    def store(self, server: KnownServer) -> None:
        """Stores a server. It replaces one at the same address, and the same box at another address."""
        self._change(
            lambda known: (
                server,
                *(one for one in known if one.address != server.address and not one.is_same_box(server)),
            )
        )

    def move(self, server: KnownServer, address: str) -> KnownServer:
        """Changes a server's address. Another server at that address stays: it may have moved too.

        Returns:
            The server at its new address; ``find`` returns it from now on.
        """
        moved = replace(server, address=address)
        self._change(lambda known: (moved, *(one for one in known if one != server)))
        return moved

    def remove(self, address: str) -> None:
        """Removes the servers at an address.

        Raises:
            ClientError: NOT_FOUND, none is known there; or INVALID_ARGUMENT, the file cannot be changed.
        """
        if self.find(address) is None:
            known = ", ".join(server.address for server in self.servers()) or "none"
            raise ClientError(CallStatus.NOT_FOUND, f"no box is known at {address}; known are: {known}")
        self._change(lambda known: tuple(one for one in known if one.address != address))

    def _change(self, change: Callable[[tuple[KnownServer, ...]], tuple[KnownServer, ...]]) -> None:
        try:
            with lock_file(self.path):
                document = {"format": _FORMAT, "servers": [asdict(server) for server in change(self.servers())]}
                replace_file(self.path, json.dumps(document, ensure_ascii=False, indent=1).encode(), mode=0o600)
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
        authority: Certificates, PEM, of the authorities that may sign the server's certificate.
        certificate: The client's certificate, PEM; None for none.
        key: Private key of that certificate, PEM.
        server_name: Name that the server's certificate must hold; None for the host of the address.
    """

    authority: bytes
    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    server_name: str | None = None


def credentials_for(address: str, known: KnownServers | None = None) -> Credentials | None:
    """Returns the credentials for an address, or None for a connection without TLS.

    The files that EDGE_RAG_CA, EDGE_RAG_TOKEN_FILE, EDGE_RAG_CERTIFICATE and EDGE_RAG_KEY name take precedence over
    what ``edge-rag connect`` stored.

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
