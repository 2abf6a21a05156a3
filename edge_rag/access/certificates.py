"""A certificate authority for one box: made once, signs the daemon's certificate and those of clients.

Keys are on the P-256 curve. The authority may sign certificates for servers and clients, but no further authorities.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edge_rag.errors import AccessError

AUTHORITY_DAYS: Final = 3650
"""Life of an authority."""

CERTIFICATE_DAYS: Final = 825
"""Longest life that all clients accept of a certificate signed by a private authority."""

LASTING_NAMES: Final = "edge-rag.internal"
"""Domain of names that a box keeps whatever it is called; nobody else's, since `internal` is kept for private use."""

_CLOCK_SKEW: Final = timedelta(days=1)
"""Boards without a battery start with a clock of the past."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes


def make_authority(name: str, now: datetime) -> KeyPair:
    """Makes a self-signed authority.

    Args:
        name: Its common name.
        now: The time, UTC.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = (
        _builder(subject, subject, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue_server(authority: KeyPair, names: Sequence[str], now: datetime) -> KeyPair:
    """Signs a certificate for a server.

    Args:
        authority: Who signs.
        names: Host names and addresses by which it is called, at least one.
        now: The time, UTC.

    Raises:
        AccessError: The authority's files are damaged, or a name is none.
    """
    return _issue(authority, names[0], names, ExtendedKeyUsageOID.SERVER_AUTH, now)


def issue_client(authority: KeyPair, name: str, now: datetime) -> KeyPair:
    """Signs a certificate for a client.

    Args:
        authority: Who signs.
        name: Name of the client's identity, the certificate's common name.
        now: The time, UTC.

    Raises:
        AccessError: The authority's files are damaged.
    """
    return _issue(authority, name, (), ExtendedKeyUsageOID.CLIENT_AUTH, now)


def fingerprint(certificate: bytes) -> str:
    """Returns the SHA-256 of a certificate, PEM, as lower-case hexadecimal digits.

    Raises:
        AccessError: It is no certificate.
    """
    return _read_certificate(certificate).fingerprint(hashes.SHA256()).hex()


def lasting_name(authority: bytes) -> str:
    """Returns the name that every certificate of an authority, PEM, has for its box, beside those it is called by.

    Raises:
        AccessError: It is no certificate.
    """
    return f"{fingerprint(authority)[:32]}.{LASTING_NAMES}"


def server_name(certificate: bytes) -> str:
    """Returns the name in a server's certificate, PEM, that is likely to be in the next one too.

    That is its lasting name, else its first host name other than ``localhost``, else its first address. A client that
    verifies against it need not care by which address it calls.

    Raises:
        AccessError: It is no certificate, or has no name.
    """
    try:
        names = _read_certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError) as error:
        raise AccessError("the certificate has no names (subjectAltName)") from error
    hosts = [name for name in names.get_values_for_type(x509.DNSName) if "*" not in name]
    lasting = [name for name in hosts if name.endswith(f".{LASTING_NAMES}")]
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    for found in (*lasting, *(name for name in hosts if name != "localhost"), *addresses, *hosts):
        return found
    raise AccessError("the certificate has no names (subjectAltName)")


def to_pem(certificate: bytes) -> bytes:
    """Returns a certificate, DER, as PEM.

    Raises:
        AccessError: It is no certificate.
    """
    try:
        return x509.load_der_x509_certificate(certificate).public_bytes(serialization.Encoding.PEM)
    except ValueError as error:
        raise AccessError("the certificate is damaged") from error


def signed(chain: bytes, authority: bytes) -> bool:
    """Whether an authority, PEM, is the one above the last of a chain of certificates, PEM.

    Raises:
        AccessError: One of them is no certificate.
    """
    issuer = _read_certificate(authority)
    try:
        _read_chain(chain)[-1].verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def last_of(chain: bytes) -> bytes:
    """Returns the last certificate of a chain, PEM.

    Raises:
        AccessError: One of them is no certificate.
    """
    return _read_chain(chain)[-1].public_bytes(serialization.Encoding.PEM)


def expires(certificate: bytes) -> datetime:
    """Returns when a certificate, PEM, ends, UTC.

    Raises:
        AccessError: It is no certificate.
    """
    return _read_certificate(certificate).not_valid_after_utc


def check_pair(pair: KeyPair) -> None:
    """Checks that a key is the certificate's.

    Raises:
        AccessError: One of the two is damaged, or they do not belong together.
    """
    if _read_certificate(pair.certificate).public_key() != _read_any_key(pair.key).public_key():
        raise AccessError("the key is not that of the certificate")


def _issue(
    authority: KeyPair, common_name: str, names: Sequence[str], usage: x509.ObjectIdentifier, now: datetime
) -> KeyPair:
    issuer, issuer_key = _read_certificate(authority.certificate), _read_key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_subject(common_name), issuer.subject, key, now, CERTIFICATE_DAYS)
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


def _subject(name: str) -> x509.Name:
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
        raise AccessError("the private key is not one that this authority made")
    return key


def _read_any_key(pem: bytes) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise AccessError("the private key is damaged or needs a password") from error
