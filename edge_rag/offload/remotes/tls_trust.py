"""Authenticates a remote: by a certificate authority, or by the pinned fingerprint of its certificate."""

from __future__ import annotations

import hashlib
import hmac
import re
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from edge_rag.errors import RemoteFailed


@dataclass(frozen=True, slots=True)
class Trust:
    """How a remote is authenticated, and the credential it gets. Files are read at each use, so they can be replaced.

    Attributes:
        authority: CA certificates, PEM; None with a fingerprint.
        fingerprint: SHA-256 of its certificate, 64 hexadecimal digits, colons allowed; None with an authority.
        credential: File with the bearer token to send; None for no token.
    """

    authority: Path | None = None
    fingerprint: str | None = None
    credential: Path | None = None

    @property
    def is_encrypted(self) -> bool:
        return self.authority is not None or self.fingerprint is not None

    def token(self) -> str | None:
        """Returns the bearer token.

        Raises:
            RemoteFailed: The file cannot be read.
        """
        if self.credential is None:
            return None
        try:
            return self.credential.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise RemoteFailed(f"the credential for the remote cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Anchor:
    """Trust anchor for the verification of the remote's certificate.

    Attributes:
        roots: Certificates, PEM; a chain must end in one of them, which may be the remote's own.
        name: Name in the certificate if it is pinned, so that the host name does not matter; else None.
    """

    roots: bytes
    name: str | None = None


def anchor(trust: Trust, host: str, port: int, timeout_s: float) -> Anchor:
    """Returns the trust anchor of a remote. With a fingerprint, its certificate is fetched first.

    Args:
        timeout_s: Longest time for fetching, seconds.

    Raises:
        RemoteFailed: It has another certificate, cannot be reached, or a file cannot be read.
    """
    if trust.authority is not None:
        try:
            return Anchor(trust.authority.read_bytes())
        except OSError as error:
            raise RemoteFailed(f"the authority's certificate cannot be read: {error}") from error
    presented = _fetch(host, port, timeout_s)
    expected = re.sub(r"[^0-9a-f]", "", (trust.fingerprint or "").lower())
    if not hmac.compare_digest(hashlib.sha256(presented).hexdigest(), expected):
        raise RemoteFailed("the remote's certificate does not match the pinned fingerprint")
    return Anchor(ssl.DER_cert_to_PEM_cert(presented).encode(), _name_in(presented))


def tls_context(anchor: Anchor) -> ssl.SSLContext:
    """Returns a context that trusts the anchor only.

    Raises:
        RemoteFailed: The certificates are unusable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = anchor.name is None
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=anchor.roots.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise RemoteFailed(f"the CA certificates are unusable: {error}") from error
    return context


def _fetch(host: str, port: int, timeout_s: float) -> bytes:
    """Returns the certificate of a server, DER, without verification."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        with (
            socket.create_connection((host, port), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as encrypted,
        ):
            presented = encrypted.getpeercert(binary_form=True)
    except (OSError, ValueError) as error:
        raise RemoteFailed(f"the remote cannot be reached: {error}") from error
    if not presented:
        raise RemoteFailed("the remote has no certificate")
    return presented


def _name_in(certificate: bytes) -> str:
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        try:
            names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            addresses = map(str, names.get_values_for_type(x509.IPAddress))
            for name in (*names.get_values_for_type(x509.DNSName), *addresses):
                return name.replace("*", "any")
        except x509.ExtensionNotFound:
            pass
        common = parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(common[0].value) if common else "localhost"
    except ValueError as error:
        raise RemoteFailed(f"the remote's certificate cannot be parsed: {error}") from error
