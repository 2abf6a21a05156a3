import socket
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edge_rag.access.certificates import (
    CertificateFolder,
    KeyPair,
    TlsFiles,
    check_pair,
    expires,
    fingerprint,
    issue_server,
    make_authority,
)
from edge_rag.errors import AccessError

NOW = datetime.now(UTC)


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    made = CertificateFolder(tmp_path / "tls")
    assert made.make("box", ["box.lan", "127.0.0.1"], NOW)
    return made


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as stream:
                stream.recv(1)
        except (ssl.SSLError, OSError):
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=host) as stream:
            stream.send(b"x")
    finally:
        ours.close()
        thread.join()


def server_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context


def test_a_client_of_the_authority_accepts_the_certificates_names_only(folder: CertificateFolder) -> None:
    client = ssl.create_default_context(cafile=str(folder.authority_certificate))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    for host in ("box.lan", "127.0.0.1"):
        shake_hands(server_context(folder.server), client, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(folder.server), client, "other.lan")


def test_a_client_of_another_authority_rejects_the_certificate(folder: CertificateFolder, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(make_authority("other", NOW).certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(folder.server), ssl.create_default_context(cafile=str(other)), "box.lan")


def test_a_client_certificate_cannot_be_used_by_a_server(folder: CertificateFolder, tmp_path: Path) -> None:
    pair = folder.client("box.lan", NOW)
    (tmp_path / "c.pem").write_bytes(pair.certificate)
    (tmp_path / "c.key").write_bytes(pair.key)
    client = ssl.create_default_context(cafile=str(folder.authority_certificate))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(TlsFiles(tmp_path / "c.pem", tmp_path / "c.key", None)), client, "box.lan")


def test_a_second_certificate_has_the_same_authority(folder: CertificateFolder) -> None:
    authority, first = folder.authority_certificate.read_bytes(), folder.server.certificate.read_bytes()
    assert not folder.make("box", ["new.lan"], NOW)
    assert folder.authority_certificate.read_bytes() == authority
    assert fingerprint(folder.server.certificate.read_bytes()) != fingerprint(first)
    shake_hands(
        server_context(folder.server), ssl.create_default_context(cafile=str(folder.authority_certificate)), "new.lan"
    )
    assert 800 < (expires(folder.server.certificate.read_bytes()) - NOW).days < 826


def test_keys_are_readable_by_their_owner_only(folder: CertificateFolder) -> None:
    names = {path.name: path.stat().st_mode & 0o777 for path in folder.authority_certificate.parent.iterdir()}
    assert names["ca.key"] == names["server.key"] == 0o600
    assert folder.authority_certificate.parent.stat().st_mode & 0o777 == 0o700


def test_a_mismatched_key_and_damaged_files_are_refused_with_their_path(folder: CertificateFolder) -> None:
    with pytest.raises(AccessError, match="does not match the certificate"):
        check_pair(KeyPair(folder.server.certificate.read_bytes(), folder.authority().key))
    folder.server.certificate.write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(AccessError, match=r"server\.pem.*damaged"):
        folder.server.read()
    folder.server.key.unlink()
    with pytest.raises(AccessError, match=r"server\.key: cannot be read"):
        folder.server.read()


def test_an_invalid_host_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="neither a host name nor an address"):
        CertificateFolder(tmp_path).make("box", ["schön.lan"], NOW)
    assert list(tmp_path.iterdir()) == []


def test_the_verification_name_survives_a_new_certificate(folder: CertificateFolder) -> None:
    authority = folder.authority_certificate
    first = folder.server.identity(authority)
    folder.make("box", ["elsewhere.lan"], NOW)
    second = folder.server.identity(authority)
    assert first.sha256 != second.sha256
    assert (first.server_name, first.authority, first.stable) == (second.server_name, second.authority, True)
    assert first.server_name.endswith(".edge-rag.internal")
    shake_hands(server_context(folder.server), ssl.create_default_context(cafile=str(authority)), second.server_name)


def test_a_foreign_certificate_is_introduced_by_its_known_signer(folder: CertificateFolder, tmp_path: Path) -> None:
    other = make_authority("somebody else", NOW)
    pair = issue_server(other, ["localhost", "10.0.0.7", "manuals.lan"], NOW)
    named, chained, alone = tmp_path / "ca.pem", tmp_path / "chain.pem", tmp_path / "alone.pem"
    named.write_bytes(other.certificate)
    chained.write_bytes(pair.certificate + other.certificate)
    alone.write_bytes(pair.certificate)
    key = tmp_path / "key.pem"
    own = folder.authority_certificate
    for files, authority, lasting in (
        (TlsFiles(alone, key, None, named), other.certificate, True),
        (TlsFiles(chained, key, None), other.certificate, True),
        (TlsFiles(alone, key, None), pair.certificate, False),
    ):
        server_identity = files.identity(own)
        assert (server_identity.authority, server_identity.stable) == (authority, lasting)
        assert server_identity.server_name == "manuals.lan"
        assert server_identity.sha256.hex() == fingerprint(pair.certificate)
