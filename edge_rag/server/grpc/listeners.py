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
class Listeners:
    """Where a daemon listens. Legal by construction: ``open_doors`` makes it.

    Attributes:
        main: HOST:PORT or unix:PATH.
        tls: How TLS is served there; None where it is not.
        local: A second address, without TLS, for this box; None for none.
    """

    main: str
    tls: TlsOptions | None
    local: str | None


def open_doors(main: str, local: str | None, always_tls: bool, tls: TlsOptions | None, may_enter: bool) -> Listeners:
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
        return Listeners(main, None, local)
    if tls is None:
        raise ConfigurationError(
            f"listen: {main} needs TLS; make a certificate with `edge-rag tls init` or name one in tls.certificate and "
            "tls.key, or listen on 127.0.0.1, [::1] or unix:PATH"
        )
    if not may_enter:
        raise ConfigurationError(
            f"listen: {main} needs credentials, and there are none; make some with "
            "`edge-rag pair --name NAME` or `edge-rag token create --name NAME`, or listen on 127.0.0.1, [::1] or "
            "unix:PATH"
        )
    return Listeners(main, tls, local)


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


class ServedCertificates:
    """Certificates that TLS is served with, and follow their files: a handshake after a change uses the new ones.

    Handshakes come on several threads.

    Args:
        options: How TLS is served.
    """

    def __init__(self, options: TlsOptions) -> None:
        self._files = options.files
        self._with_clients = options.client_certificates
        self._lock = threading.Lock()
        self._seen: tuple[tuple[int, int], ...] | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Returns credentials for a port.

        Raises:
            ConfigurationError: The files cannot be used.
        """
        with self._lock:
            self._seen, first = self._read(self._files)
        # None, which the stubs do not know of, stands for "as before".
        return grpc.dynamic_ssl_server_credentials(first, self._renewed, self._with_clients)  # type: ignore[arg-type]

    def use(self, files: TlsFiles) -> None:
        """Goes by other files from the next handshake on.

        Raises:
            ConfigurationError: They cannot be used; the present ones stay.
        """
        with self._lock:
            if files != self._files:
                self._read(files)
                self._files, self._seen = files, None

    def _read(self, files: TlsFiles) -> tuple[tuple[tuple[int, int], ...], grpc.ServerCertificateConfiguration]:
        try:
            return _states(files), self._configuration(files)
        except AccessError as error:
            raise ConfigurationError(f"tls: {error}; make them with `edge-rag tls init`") from error

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            try:
                states = _states(self._files)
                if states == self._seen:
                    return None
                self._seen = states
                return self._configuration(self._files)
            except AccessError as error:
                log.warning("the new certificate cannot be used; the old one stays", error=str(error))
                return None

    def _configuration(self, files: TlsFiles) -> grpc.ServerCertificateConfiguration:
        pair, authority = files.read()
        if self._with_clients and authority is None:
            raise AccessError("client certificates are required, but tls.client_authority says of no authority")
        return _configuration(pair, authority if self._with_clients else None)


def _states(files: TlsFiles) -> tuple[tuple[int, int], ...]:
    return _state(files.certificate), _state(files.key)


def _configuration(pair: KeyPair, authority: bytes | None) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.certificate)], authority)


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise AccessError(f"{path}: cannot be read: {error.strerror}") from error
    return status.st_ino, status.st_mtime_ns
