"""A certificate authority for one box, which signs the certificates of the daemon and of clients, and their files.

Keys are on the P-256 curve. The authority may sign certificates of servers and clients, but not of other authorities.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edge_rag.core.atomic_file import replace_file
from edge_rag.core.monitoring.status import CertificateInUse
from edge_rag.errors import AccessError

AUTHORITY_DAYS: Final = 3650
"""Validity of an authority, days."""

CERTIFICATE_DAYS: Final = 825
"""Validity of a certificate, days: the longest that all clients accept from a private authority."""

STABLE_DOMAIN: Final = "edge-rag.internal"
"""Domain of the stable names of boxes; `internal` is reserved for private use."""

_CLOCK_SKEW: Final = timedelta(days=1)
"""Boards without a battery-backed clock start with a time in the past."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes


def make_authority(name: str, now: datetime) -> KeyPair:
    """Makes a self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    builder = (
        _builder(subject, subject, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue_server(authority: KeyPair, names: Sequence[str], now: datetime) -> KeyPair:
    """Signs a certificate for a server."""
    return _issue(authority, names[0], names, ExtendedKeyUsageOID.SERVER_AUTH, now)


def issue_client(authority: KeyPair, name: str, now: datetime) -> KeyPair:
    """Signs a certificate for a client."""
    return _issue(authority, name, (), ExtendedKeyUsageOID.CLIENT_AUTH, now)


def fingerprint(certificate: bytes) -> str:
    """Returns the SHA-256 of a certificate, PEM, as lower-case hexadecimal digits."""
    return _read_certificate(certificate).fingerprint(hashes.SHA256()).hex()


def stable_name(authority: bytes) -> str:
    return f"{fingerprint(authority)[:32]}.{STABLE_DOMAIN}"


def server_name(certificate: bytes) -> str:
    """Returns the name in a server's certificate, PEM, that its next certificate probably contains too.

    That is its stable name, else its first host name other than ``localhost``, else its first address. A client that
    verifies this name can use any address.
    """
    try:
        names = _read_certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError) as error:
        raise AccessError("the certificate has no names (subjectAltName)") from error
    hosts = [name for name in names.get_values_for_type(x509.DNSName) if "*" not in name]
    stable = [name for name in hosts if name.endswith(f".{STABLE_DOMAIN}")]
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    for found in (*stable, *(name for name in hosts if name != "localhost"), *addresses, *hosts):
        return found
    raise AccessError("the certificate has no names (subjectAltName)")


def to_pem(certificate: bytes) -> bytes:
    """Returns a certificate, DER, as PEM."""
    try:
        return x509.load_der_x509_certificate(certificate).public_bytes(serialization.Encoding.PEM)
    except ValueError as error:
        raise AccessError("the certificate is damaged") from error


def is_signed_by(chain: bytes, authority: bytes) -> bool:
    issuer = _read_certificate(authority)
    try:
        _read_chain(chain)[-1].verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def last_certificate(chain: bytes) -> bytes:
    return _read_chain(chain)[-1].public_bytes(serialization.Encoding.PEM)


def expires(certificate: bytes) -> datetime:
    return _read_certificate(certificate).not_valid_after_utc


def subject(certificate: bytes) -> str:
    found = _read_certificate(certificate).subject
    names = found.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else found.rfc4514_string()


def check_pair(pair: KeyPair) -> None:
    """Checks that a key matches its certificate."""
    try:
        certified = _read_certificate(pair.certificate).public_key()
    except (ValueError, UnsupportedAlgorithm) as error:  # read only now, not with the certificate
        raise AccessError("the certificate is damaged") from error
    if certified != _read_any_key(pair.key).public_key():
        raise AccessError("the key does not match the certificate")


def _issue(
    authority: KeyPair, common_name: str, names: Sequence[str], usage: x509.ObjectIdentifier, now: datetime
) -> KeyPair:
    issuer, issuer_key = _read_certificate(authority.certificate), _read_key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_named(common_name), issuer.subject, key, now, CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as error:
        raise AccessError(f"{name!r} cannot be the name of a certificate: {error}") from error


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise AccessError(f"{name!r} is neither a host name nor an address") from error


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _read_certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise AccessError("the certificate is damaged") from error


def _read_chain(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise AccessError("the certificate is damaged") from error


def _read_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = _read_any_key(pem)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise AccessError("the private key is not an elliptic curve key of this authority")
    return key


def _read_any_key(pem: bytes) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise AccessError("the private key is damaged or needs a password") from error


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What clients store to authenticate a daemon.

    Attributes:
        sha256: SHA-256 of its certificate, 32 bytes.
        stable: Whether it will accept the next certificate too; False if the signer is unknown.
    """

    sha256: bytes
    authority: bytes
    server_name: str
    stable: bool

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the first CA certificate, lower-case hexadecimal."""
        return fingerprint(self.authority)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """TLS files of a daemon.

    Attributes:
        certificate: Its certificate chain, PEM, without the authority.
        client_authority: CA certificates of client certificates, PEM; None if clients have none.
        authority: CA certificates of the daemon's certificate, PEM, for new clients; None if not configured.
    """

    certificate: Path
    key: Path
    client_authority: Path | None
    authority: Path | None = None

    def read(self) -> tuple[KeyPair, bytes | None]:
        """Returns the key pair, and the client authority's certificates."""
        pair = KeyPair(_read_file(self.certificate), _read_file(self.key))
        try:
            check_pair(pair)
        except AccessError as error:
            raise AccessError(f"{self.certificate}, {self.key}: {error}") from error
        return pair, None if self.client_authority is None else _read_file(self.client_authority)

    def identity(self, own_authority: Path) -> ServerIdentity:
        """Returns what clients store to authenticate the daemon.

        Args:
            own_authority: Certificate of the authority of `tls init`; used if none is configured and it is the signer.
        """
        chain = _read_file(self.certificate)
        try:
            sha256, name = bytes.fromhex(fingerprint(chain)), server_name(chain)
            if self.authority is not None:
                return ServerIdentity(sha256, _read_file(self.authority), name, stable=True)
            if own_authority.exists() and is_signed_by(chain, own := _read_file(own_authority)):
                return ServerIdentity(sha256, own, name, stable=True)
            signer = last_certificate(chain)
            return ServerIdentity(sha256, signer, name, stable=bytes.fromhex(fingerprint(signer)) != sha256)
        except AccessError as error:
            raise AccessError(f"{self.certificate}: {error}") from error


class CertificateFolder:
    """The folder with the files of ``tls init``, readable by its owner only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority_certificate = folder / "ca.pem"
        self._authority_key = folder / "ca.key"
        self.server = TlsFiles(folder / "server.pem", folder / "server.key", self.authority_certificate)

    def exists(self) -> bool:
        return self.server.certificate.exists() and self.server.key.exists()

    def authority(self) -> KeyPair:
        """Returns the authority."""
        if not self._authority_key.exists():
            raise AccessError(f"{self._folder}: there is no authority; make one with `edge-rag tls init`")
        return KeyPair(_read_file(self.authority_certificate), _read_file(self._authority_key))

    def make(self, name: str, hosts: Sequence[str], now: datetime) -> bool:
        """Makes a certificate for the daemon, and an authority if there is none yet.

        Args:
            hosts: Host names and addresses of the daemon, at least one.
            now: The time, UTC.
        """
        is_new = not self._authority_key.exists()
        authority = make_authority(f"edge-rag on {name}", now) if is_new else self.authority()
        server = issue_server(authority, [*hosts, stable_name(authority.certificate)], now)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_new:
                replace_file(self._authority_key, authority.key, mode=0o600)
                replace_file(self.authority_certificate, authority.certificate)
            # The key is written first: a daemon that reads in between gets a mismatched pair, and keeps the old one.
            replace_file(self.server.key, server.key, mode=0o600)
            replace_file(self.server.certificate, server.certificate)
        except OSError as error:
            raise AccessError(f"{self._folder}: cannot be written: {error.strerror}") from error
        return is_new

    def client(self, name: str, now: datetime) -> KeyPair:
        return issue_client(self.authority(), name, now)


def certificates_in_use(files: TlsFiles | None) -> tuple[CertificateInUse, ...]:
    """Returns the certificates among a daemon's TLS files, as they are now; none without TLS."""
    if files is None:
        return ()
    paths = (files.certificate, files.client_authority, files.authority)
    return tuple(_in_use(path) for path in dict.fromkeys(path for path in paths if path is not None))


def _in_use(path: Path) -> CertificateInUse:
    try:
        certificate = _read_file(path)
        return CertificateInUse(path, subject(certificate), expires(certificate))
    except AccessError:
        return CertificateInUse(path, "", None)


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AccessError(f"{path}: cannot be read: {error.strerror}") from error
