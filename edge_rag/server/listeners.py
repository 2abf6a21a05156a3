"""Listening addresses and their TLS, for every transport."""

from __future__ import annotations

import ipaddress
import threading
from dataclasses import dataclass
from pathlib import Path

import structlog

from edge_rag.access.certificates import KeyPair, TlsFiles
from edge_rag.errors import AccessError, ConfigurationError

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS of a listening address.

    Attributes:
        client_certificates: Whether clients must have a certificate.
    """

    files: TlsFiles
    client_certificates: bool


@dataclass(frozen=True, slots=True)
class HttpListener:
    """The listening address of the HTTP server, checked by ``bind``.

    Attributes:
        tls: Its TLS; None without TLS.
    """

    address: str
    tls: TlsOptions | None


@dataclass(frozen=True, slots=True)
class Listeners:
    """The daemon's listening addresses, checked by ``bind``.

    Attributes:
        tls: Its TLS; None without TLS.
        local: A second address without TLS for local clients, or None.
        socket: A Unix socket for the user that the daemon runs as, besides these; None if there is no place for one.
        http: The HTTP server's address; None if there is none.
    """

    main: str
    tls: TlsOptions | None
    local: str | None
    socket: Path | None = None
    http: HttpListener | None = None


def bind(
    main: str,
    local: str | None,
    always_tls: bool,
    tls: TlsOptions | None,
    has_credentials: bool,
    setting: str = "listen",
) -> Listeners:
    """Checks listening addresses and decides which one uses TLS.

    Args:
        local: HOST:PORT with a loopback host, or unix:PATH; None for none.
        tls: The TLS options; None without a certificate.
        has_credentials: Whether any token or pairing code exists, without which no remote client could connect.
    """
    if local is not None and not is_local(local):
        raise ConfigurationError(f"local_listen: {local} can be reached from other machines; set listen for that")
    if is_local(main, setting) and not (always_tls and not main.startswith("unix:")):
        return Listeners(main, None, local)
    if tls is None:
        raise ConfigurationError(
            f"{setting}: {main} needs TLS; make a certificate with `edge-rag tls init` or name one in tls.certificate "
            "and tls.key, or listen on 127.0.0.1, [::1] or unix:PATH"
        )
    if not has_credentials:
        raise ConfigurationError(
            f"{setting}: {main} needs credentials, and there are none; make some with "
            "`edge-rag pair --name NAME` or `edge-rag token create --name NAME`, or listen on 127.0.0.1, [::1] or "
            "unix:PATH"
        )
    return Listeners(main, tls, local)


def is_local(address: str, setting: str = "listen") -> bool:
    """Returns whether an address can be reached from this box only."""
    if address.startswith("unix:"):
        return True
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"{setting}: {address!r} is not HOST:PORT or unix:PATH")
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class ServedCertificate:
    """A certificate as a transport serves it.

    Attributes:
        authority: Authority that client certificates have to be signed by, PEM; None if clients need none.
    """

    files: TlsFiles
    pair: KeyPair
    authority: bytes | None


class CertificateFiles:
    """The files of the server's certificates, followed when they change. Any thread."""

    def __init__(self, options: TlsOptions) -> None:
        self.client_certificates = options.client_certificates
        self._files = options.files
        self._lock = threading.Lock()
        self._file_states: tuple[tuple[int, int], ...] | None = None

    def first(self) -> ServedCertificate:
        with self._lock:
            self._file_states, served = self._read(self._files)
        return served

    def replace(self, files: TlsFiles) -> None:
        with self._lock:
            if files != self._files:
                self._read(files)
                self._files, self._file_states = files, None

    def changed(self) -> ServedCertificate | None:
        """Returns the certificates if the files have changed since the last call; None otherwise."""
        with self._lock:
            try:
                states = _states(self._files)
                if states == self._file_states:
                    return None
                self._file_states = states
                return self._served(self._files)
            except AccessError as error:
                log.warning("the new certificate is unusable; the old one stays in use", error=str(error))
                return None

    def _read(self, files: TlsFiles) -> tuple[tuple[tuple[int, int], ...], ServedCertificate]:
        try:
            return _states(files), self._served(files)
        except AccessError as error:
            raise ConfigurationError(f"tls: {error}; make them with `edge-rag tls init`") from error

    def _served(self, files: TlsFiles) -> ServedCertificate:
        pair, authority = files.read()
        if self.client_certificates and authority is None:
            raise AccessError("client certificates are required, but tls.client_authority names no authority")
        return ServedCertificate(files, pair, authority if self.client_certificates else None)


def _states(files: TlsFiles) -> tuple[tuple[int, int], ...]:
    return _state(files.certificate), _state(files.key)


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise AccessError(f"{path}: cannot be read: {error.strerror}") from error
    return status.st_ino, status.st_mtime_ns
