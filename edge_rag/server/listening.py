"""Addresses to listen on, and what each needs."""

from __future__ import annotations

import ipaddress
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

from edge_rag.access.certificate_files import TlsFiles
from edge_rag.access.certificates import KeyPair
from edge_rag.errors import AccessError, ConfigurationError

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How TLS is served.

    Attributes:
        files: Certificate and key.
        client_certificates: Whether clients must show a certificate too.
    """

    files: TlsFiles
    client_certificates: bool


@dataclass(frozen=True, slots=True)
class Doors:
    """Where a daemon listens. Legal by construction: ``open_doors`` makes it.

    Attributes:
        main: HOST:PORT or unix:PATH.
        tls: How TLS is served there; None where it is not.
        local: A second address, without TLS, for this box; None for none.
    """

    main: str
    tls: TlsOptions | None
    local: str | None


def open_doors(main: str, local: str | None, always_tls: bool, tls: TlsOptions | None, may_enter: bool) -> Doors:
    """Decides what each address needs.

    Args:
        main: HOST:PORT or unix:PATH.
        local: HOST:PORT with a loopback host, or unix:PATH; None for none.
        always_tls: Whether TLS is served on loopback addresses too.
        tls: How it is served; None where there is no certificate.
        may_enter: Whether there are credentials with which anybody could get in over TLS.

    Raises:
        ConfigurationError: An address is none, or would be open to other machines without TLS and credentials; says how
            to mend it.
    """
    if local is not None and not is_local(local):
        raise ConfigurationError(
            f"local_listen: {local} can be reached from other machines; that is what listen is for"
        )
    if is_local(main) and not (always_tls and not main.startswith("unix:")):
        return Doors(main, None, local)
    if tls is None:
        raise ConfigurationError(
            f"listen: {main} needs TLS; make a certificate with `edge-rag tls init` or name one in tls.certificate and "
            "tls.key, or listen on 127.0.0.1, [::1] or unix:PATH"
        )
    if not may_enter:
        raise ConfigurationError(
            f"listen: {main} needs credentials, and there are none; make some with "
            "`edge-rag token create --name NAME`, or listen on 127.0.0.1, [::1] or unix:PATH"
        )
    return Doors(main, tls, local)


def is_local(address: str) -> bool:
    """Whether an address can be reached from this box only.

    Raises:
        ConfigurationError: It is neither HOST:PORT nor unix:PATH.
    """
    if address.startswith("unix:"):
        return True
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"listen: {address!r} is not HOST:PORT or unix:PATH")
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def server_credentials(options: TlsOptions) -> grpc.ServerCredentials:
    """Returns credentials that follow the files: a handshake after a change uses the new certificate.

    Raises:
        ConfigurationError: The files cannot be used.
    """
    files = _WatchedFiles(options.files)
    try:
        first = files.read(options.client_certificates)
    except AccessError as error:
        raise ConfigurationError(f"tls: {error}; make them with `edge-rag tls init`") from error

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        try:
            return files.read_if_changed(options.client_certificates)
        except AccessError as error:
            log.warning("the new certificate cannot be used; the old one stays", error=str(error))
            return None

    # None, which the stubs do not know of, stands for "as before".
    return grpc.dynamic_ssl_server_credentials(first, renewed, options.client_certificates)  # type: ignore[arg-type]


class _WatchedFiles:
    """Certificate files that may be replaced at any time. Handshakes come on several threads."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._seen: tuple[tuple[int, int], ...] = ()

    def read(self, with_clients: bool) -> grpc.ServerCertificateConfiguration:
        """Returns what the files hold.

        Raises:
            AccessError: They cannot be used.
        """
        with self._lock:
            self._seen = self._state()
            return self._configuration(with_clients)

    def read_if_changed(self, with_clients: bool) -> grpc.ServerCertificateConfiguration | None:
        """Returns what the files hold, or None where they are as they were.

        Raises:
            AccessError: They cannot be used.
        """
        with self._lock:
            state = self._state()
            if state == self._seen:
                return None
            self._seen = state
            return self._configuration(with_clients)

    def _configuration(self, with_clients: bool) -> grpc.ServerCertificateConfiguration:
        pair, authority = self._files.read()
        if with_clients and authority is None:
            raise AccessError("client certificates are required, but tls.client_authority says of no authority")
        return _configuration(pair, authority if with_clients else None)

    def _state(self) -> tuple[tuple[int, int], ...]:
        return tuple(_state(path) for path in (self._files.certificate, self._files.key))


def _configuration(pair: KeyPair, authority: bytes | None) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.certificate)], authority)


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise AccessError(f"{path}: cannot be read: {error.strerror}") from error
    return status.st_ino, status.st_mtime_ns
