"""Where a box keeps its authority and its certificates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from edge_rag.access.certificates import (
    KeyPair,
    check_pair,
    fingerprint,
    issue_client,
    issue_server,
    last_of,
    lasting_name,
    make_authority,
    server_name,
    signed,
)
from edge_rag.core.atomic_file import replace_file
from edge_rag.errors import AccessError


@dataclass(frozen=True, slots=True)
class Introduction:
    """How clients recognize a daemon from now on.

    Attributes:
        sha256: SHA-256 of the certificate that it serves TLS with, 32 bytes.
        authority: Certificates, PEM, of those whose signature on its certificate is to be believed.
        server_name: Name to verify its certificate against, whatever address it is called by.
        lasting: Whether it will be recognized by its next certificate too; not where nobody above it is known.
    """

    sha256: bytes
    authority: bytes
    server_name: str
    lasting: bool

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the authority's certificate, the first where there are several, as lower-case hexadecimal."""
        return fingerprint(self.authority)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files a daemon serves TLS with.

    Attributes:
        certificate: Its certificate, PEM, with those between it and the authority, if there are any.
        key: Its private key, PEM.
        client_authority: Certificates, PEM, of those who sign clients' certificates; None where clients have none.
        authority: Certificates, PEM, of those who signed the daemon's, for newcomers; None where none are named.
    """

    certificate: Path
    key: Path
    client_authority: Path | None
    authority: Path | None = None

    def read(self) -> tuple[KeyPair, bytes | None]:
        """Returns the key pair, and the client authority's certificates.

        Raises:
            AccessError: A file cannot be read, is damaged, or key and certificate do not belong together.
        """
        pair = KeyPair(_read(self.certificate), _read(self.key))
        try:
            check_pair(pair)
        except AccessError as error:
            raise AccessError(f"{self.certificate}, {self.key}: {error}") from error
        return pair, None if self.client_authority is None else _read(self.client_authority)

    def introduction(self, own_authority: Path) -> Introduction:
        """Returns how clients recognize the daemon.

        Args:
            own_authority: Certificate of `tls init`'s authority; taken where no other is named and it has signed.

        Raises:
            AccessError: A file cannot be read or is damaged, or the certificate has no name.
        """
        chain = _read(self.certificate)
        try:
            sha256, name = bytes.fromhex(fingerprint(chain)), server_name(chain)
            if self.authority is not None:
                return Introduction(sha256, _read(self.authority), name, lasting=True)
            if own_authority.exists() and signed(chain, own := _read(own_authority)):
                return Introduction(sha256, own, name, lasting=True)
            above = last_of(chain)
            return Introduction(sha256, above, name, lasting=bytes.fromhex(fingerprint(above)) != sha256)
        except AccessError as error:
            raise AccessError(f"{self.certificate}: {error}") from error


class CertificateFolder:
    """The folder in which ``tls init`` leaves what it makes; only its owner can look into it.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority_certificate = folder / "ca.pem"
        self._authority_key = folder / "ca.key"
        self.server = TlsFiles(folder / "server.pem", folder / "server.key", self.authority_certificate)

    def is_made(self) -> bool:
        """Whether there is a certificate for the daemon."""
        return self.server.certificate.exists() and self.server.key.exists()

    def authority(self) -> KeyPair:
        """Returns the authority.

        Raises:
            AccessError: There is none, or it cannot be read.
        """
        if not self._authority_key.exists():
            raise AccessError(f"{self._folder}: there is no authority; make one with `edge-rag tls init`")
        return KeyPair(_read(self.authority_certificate), _read(self._authority_key))

    def make(self, name: str, hosts: Sequence[str], now: datetime) -> bool:
        """Makes a certificate for the daemon, and an authority where there is none yet.

        Args:
            name: Name of the box.
            hosts: Host names and addresses by which it is called, at least one.
            now: The time, UTC.

        Returns:
            Whether the authority is new; clients of an older one go on trusting it.

        Raises:
            AccessError: A file cannot be written, or a name is none.
        """
        fresh = not self._authority_key.exists()
        authority = make_authority(f"edge-rag on {name}", now) if fresh else self.authority()
        server = issue_server(authority, [*hosts, lasting_name(authority.certificate)], now)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if fresh:
                replace_file(self._authority_key, authority.key, mode=0o600)
                replace_file(self.authority_certificate, authority.certificate)
            # The key goes first: a daemon that reads in between sees a pair that does not match, and keeps the old one.
            replace_file(self.server.key, server.key, mode=0o600)
            replace_file(self.server.certificate, server.certificate)
        except OSError as error:
            raise AccessError(f"{self._folder}: cannot be written: {error.strerror}") from error
        return fresh

    def client(self, name: str, now: datetime) -> KeyPair:
        """Signs a certificate for a client.

        Raises:
            AccessError: There is no authority, or it cannot be read.
        """
        return issue_client(self.authority(), name, now)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AccessError(f"{path}: cannot be read: {error.strerror}") from error
