"""Which machine is believed to be the remote: one whose certificate an authority signed, or one certificate alone."""

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
    """What a remote has to show, and what it is shown. Files are read at each use, so that they can be replaced.

    Attributes:
        authority: Certificates, PEM, of those who may sign the remote's; None where its fingerprint is known.
        fingerprint: SHA-256 of its certificate, 64 hexadecimal digits, colons allowed; None where an authority signs.
        credential: File of what is shown to it as a bearer token; None for nothing.
    """

    authority: Path | None = None
    fingerprint: str | None = None
    credential: Path | None = None

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is spoken."""
        return self.authority is not None or self.fingerprint is not None

    def token(self) -> str | None:
        """Returns what is shown to the remote.

        Raises:
            RemoteFailed: The file cannot be read.
        """
        if self.credential is None:
            return None
        try:
            return self.credential.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise RemoteFailed(f"its credential cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Anchor:
    """What the remote's certificate is checked with.

    Attributes:
        roots: Certificates, PEM; a chain must end in one of them, which may be the remote's own.
        name: Name that the certificate has, where it is the certificate that counts and not the name; else None.
    """

    roots: bytes
    name: str | None = None


def anchor(trust: Trust, host: str, port: int, within_s: float) -> Anchor:
    """Returns what a remote's certificate is checked with. With a fingerprint, its certificate is fetched first.

    Args:
        trust: What it has to show.
        host: Where it is.
        port: Its port.
        within_s: Longest time that fetching may take, seconds.

    Raises:
        RemoteFailed: It is not the one, it cannot be reached, or a file cannot be read.
    """
    if trust.authority is not None:
        try:
            return Anchor(trust.authority.read_bytes())
        except OSError as error:
            raise RemoteFailed(f"the authority's certificate cannot be read: {error}") from error
    shown = _fetch(host, port, within_s)
    wanted = re.sub(r"[^0-9a-f]", "", (trust.fingerprint or "").lower())
    if not hmac.compare_digest(hashlib.sha256(shown).hexdigest(), wanted):
        raise RemoteFailed("it shows another certificate than the one whose fingerprint is pinned")
    return Anchor(ssl.DER_cert_to_PEM_cert(shown).encode(), _name_in(shown))


def tls_context(anchor: Anchor) -> ssl.SSLContext:
    """Returns a context that believes what the anchor says and nothing else.

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
        raise RemoteFailed(f"the certificates to check it with are unusable: {error}") from error
    return context


def _fetch(host: str, port: int, within_s: float) -> bytes:
    """Returns the certificate that a server shows, DER, without believing it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        with (
            socket.create_connection((host, port), within_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as encrypted,
        ):
            shown = encrypted.getpeercert(binary_form=True)
    except (OSError, ValueError) as error:
        raise RemoteFailed(f"it cannot be reached: {error}") from error
    if not shown:
        raise RemoteFailed("it shows no certificate")
    return shown


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
        raise RemoteFailed(f"its certificate cannot be read: {error}") from error
