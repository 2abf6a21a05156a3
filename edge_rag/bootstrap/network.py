"""Listeners, TLS, authentication, limits and service announcement, from the settings."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil
import structlog

import edge_rag
from edge_rag.access.certificates import CertificateFolder, ServerIdentity, TlsFiles, certificates_in_use
from edge_rag.access.pairing_file import PairingFile
from edge_rag.access.quotas import QuotaLedger
from edge_rag.access.tokens import TokenFile
from edge_rag.config.paths import certificate_path, credential, pairing_path, socket_path, token_path
from edge_rag.config.settings import Settings
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.core.monitoring.status import CertificateInUse
from edge_rag.core.ports import AuditSink
from edge_rag.errors import AccessError, ConfigurationError
from edge_rag.server.limits.connections import Connections
from edge_rag.server.limits.transport import (
    BUFFERED_BYTES,
    HTTP_BUFFERED_BYTES,
    MESSAGE_BYTES,
    METADATA_BYTES,
    TransportLimits,
)
from edge_rag.server.listeners import HttpListener, Listeners, TlsOptions, bind, is_local
from edge_rag.service.authentication import Authenticator, PairingService
from edge_rag.service.call import CallContext
from edge_rag.service.lifecycle import Lifecycle
from edge_rag.service.limits import (
    ANONYMOUS_CALLS,
    MESSAGE_MEMORY_BYTES,
    AnonymousPool,
    CallLimits,
    ConcurrencyLimiter,
    MessageBudget,
    Timeouts,
)
from edge_rag.service.refusals import RefusalRecorder
from edge_rag.telemetry.metrics.calls import Metrics, Traces

if TYPE_CHECKING:
    from edge_rag.discovery.announcer import Announcement, Announcer
    from edge_rag.server.http.server import HttpServer

log = structlog.get_logger()


def make_access(settings: Settings) -> tuple[Listeners, Authenticator]:
    """Makes the listeners and the authenticator."""
    tokens, pairings = token_file(settings), pairing_file(settings)
    has_credentials = bool(tokens.tokens()) or bool(pairings.open_pairings())
    listeners = bind(
        settings.listen, settings.local_listen, settings.tls.always, tls_options(settings), has_credentials
    )
    own = socket_path(settings.data_directory)
    open_addresses = (listeners.main if listeners.tls is None else None, listeners.local)
    is_open = any(address is not None and not address.startswith("unix:") for address in open_addresses)
    listeners = replace(listeners, socket=own, http=_http_listener(settings, has_credentials, is_open))
    return listeners, Authenticator(tokens, pairing_service(settings))


def _http_listener(settings: Settings, has_credentials: bool, is_open: bool) -> HttpListener | None:
    """Returns where HTTP is served; None for nowhere.

    Args:
        is_open: Whether any program on this host may call over gRPC; only then it may over HTTP by default.
    """
    http = settings.http
    if not http.enabled:
        return None
    if http.is_default and not is_open:
        log.info("HTTP is not served: other addresses need credentials or are private; http.enabled = true serves it")
        return None
    checked = bind(http.address, None, settings.tls.always, tls_options(settings), has_credentials, "http.address")
    if http.trusted_proxies and checked.tls is None:
        raise ConfigurationError(
            f"http.trusted_proxies: {http.address} has no TLS, so that every caller there may do everything, and users "
            "of a proxy, too; set tls.always = true, and https in the proxy"
        )
    return HttpListener(checked.main, checked.tls)


async def start_http(
    settings: Settings, listener: HttpListener, calls: CallContext, connections: Connections
) -> tuple[HttpServer, str] | None:
    """Starts the HTTP server. Nothing of it is imported before.

    Returns:
        The server and where it listens; None if it cannot be served and nobody asked for it.
    """
    try:
        server = _make_http_server(settings, listener, calls, connections)
        return server, await server.start()
    except ConfigurationError as error:
        if not settings.http.is_default:
            raise
        log.warning("HTTP is not served, only gRPC; http.enabled = false silences this", reason=str(error))
        return None


def console_address(settings: Settings, http_address: str) -> str:
    """Returns the URL that opens the console in a browser; empty if it is not served.

    Args:
        http_address: URL of the HTTP server, with the actual port. If it listens on all addresses of this machine, the
            first one is reported.
    """
    if not settings.http.console:
        return ""
    place = urlsplit(http_address)
    host, port = str(place.hostname), place.port
    found = own_addresses() if is_unspecified(host) else ()
    host = found[0] if found else host
    return f"{place.scheme}://{f'[{host}]' if ':' in host else host}:{port}/"


def own_addresses() -> tuple[str, ...]:
    """Returns this machine's addresses, IPv4 first, without loopback and link-local ones."""
    found = {ipaddress.ip_address(address) for address in interface_addresses()}
    usable = [address for address in found if not address.is_loopback and not address.is_link_local]
    return tuple(str(address) for address in sorted(usable, key=lambda address: (address.version, int(address))))


def interface_addresses() -> tuple[str, ...]:
    return tuple(
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    )


def is_unspecified(host: str) -> bool:
    """Returns whether a host, without brackets, means all addresses of this machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _make_http_server(
    settings: Settings, listener: HttpListener, calls: CallContext, connections: Connections
) -> HttpServer:
    if missing := settings.http.missing_packages():
        raise ConfigurationError(
            f"http.enabled: {' and '.join(missing)} cannot be imported; install the extra: pip install 'edge-rag[http]'"
        )
    from edge_rag.server.http.console import Console
    from edge_rag.server.http.credentials import TrustedProxies
    from edge_rag.server.http.exchange import HttpLimits
    from edge_rag.server.http.server import HttpServer

    http = settings.http

    limits = HttpLimits(
        METADATA_BYTES,
        MESSAGE_BYTES,
        settings.limits.slow_client_seconds,
        frozenset(name.lower() for name in http.hosts),
        TrustedProxies(
            tuple(ipaddress.ip_network(each) for each in http.trusted_proxies), http.proxy_user_header.lower()
        ),
    )
    accepted = transport_limits(settings).accepted_connections
    console = Console.load() if http.console else None
    return HttpServer(listener, calls, request_limits(settings), limits, connections, accepted, console)


def make_call_context(
    settings: Settings,
    lifecycle: Lifecycle,
    authenticator: Authenticator,
    metrics: Metrics,
    audit: AuditSink,
    traces: Traces,
) -> CallContext:
    """Makes the call context that all transports share."""
    limits = settings.limits
    return CallContext(
        lifecycle,
        authenticator,
        QuotaLedger(),
        CallLimits(
            ConcurrencyLimiter(limits.concurrent_calls),
            AnonymousPool(),
            # Messages that wait in memory have a quarter on top.
            MessageBudget(MESSAGE_MEMORY_BYTES * 4 // 5),
        ),
        Timeouts(limits.request_seconds, limits.long_call_seconds),
        metrics,
        RefusalRecorder(audit),
        traces,
        settings.generator.message_language,
    )


def token_file(settings: Settings) -> TokenFile:
    """Returns the tokens that authenticate calls over TLS."""
    return TokenFile(settings.access.tokens or token_path(settings.data_directory))


def pairing_file(settings: Settings) -> PairingFile:
    return PairingFile(pairing_path(settings.data_directory))


def pairing_service(settings: Settings) -> PairingService:
    """Returns the service that exchanges pairing codes for tokens."""
    return PairingService(
        pairing_file(settings), token_file(settings), lambda: server_identity(settings), settings.discovery.box_name()
    )


def server_identity(settings: Settings, certificate: Path | None = None) -> ServerIdentity:
    """Returns what clients verify the daemon by, from the present certificates.

    Args:
        certificate: Certificate that the daemon serves, PEM; None for the configured one.

    Raises:
        AccessError: The certificate is missing, or its files cannot be used.
    """
    options = tls_options(settings)
    if options is None:
        raise AccessError("there is no certificate; make one with `edge-rag tls init`")
    files = options.files if certificate is None else replace(options.files, certificate=certificate)
    return files.identity(CertificateFolder(certificate_path(settings.data_directory)).authority_certificate)


def request_limits(settings: Settings) -> RequestLimits:
    return RequestLimits(settings.limits.question_characters, settings.generator.mode, settings.reranker.passages)


def transport_limits(settings: Settings) -> TransportLimits:
    """Returns the limits of messages and connections."""
    return TransportLimits(settings.limits.connections)


def message_memory_bytes(settings: Settings) -> int:
    """Returns the most memory that messages in both directions take, for the memory plan.

    Callers that are not identified have no share of the budget; each of their few calls may receive one message.
    """
    calls = settings.limits.concurrent_calls + ANONYMOUS_CALLS
    received = ANONYMOUS_CALLS * MESSAGE_BYTES
    buffered = HTTP_BUFFERED_BYTES if settings.http.enabled else BUFFERED_BYTES
    return MESSAGE_MEMORY_BYTES + received + calls * buffered


def tls_options(settings: Settings) -> TlsOptions | None:
    """Returns the TLS options of the server; None without a certificate."""
    folder = CertificateFolder(certificate_path(settings.data_directory))
    wanted = settings.tls
    authority = wanted.client_authority or credential("edge-rag.client-authority")
    if authority is None and folder.authority_certificate.exists():
        authority = folder.authority_certificate
    if wanted.certificate is not None and wanted.key is not None:
        return TlsOptions(
            TlsFiles(wanted.certificate, wanted.key, authority, wanted.authority), wanted.client_certificates
        )
    certificate, key = credential("edge-rag.certificate"), credential("edge-rag.key")
    if certificate is not None and key is not None:
        return TlsOptions(TlsFiles(certificate, key, authority, wanted.authority), wanted.client_certificates)
    if not folder.exists():
        return None
    server = folder.server
    return TlsOptions(TlsFiles(server.certificate, server.key, authority, wanted.authority), wanted.client_certificates)


def certificates(settings: Settings) -> tuple[CertificateInUse, ...]:
    """Returns the certificates in use, as their files are now; none without TLS."""
    options = tls_options(settings)
    return certificates_in_use(None if options is None else options.files)


def make_announcer(settings: Settings, address: str) -> Announcer | None:
    """Returns the mDNS announcer; None where announcing is off, or where other machines cannot reach the daemon."""
    if not settings.discovery.announce or is_local(address):
        return None
    from edge_rag.discovery.announcer import Announcer  # zeroconf, only where it announces

    return Announcer(lambda: announcement(settings, address))


def announcement(settings: Settings, address: str) -> Announcement:
    """Returns the announcement of the daemon, without addresses where it listens on all."""
    from edge_rag.discovery.announcer import Announcement

    host, _, port = address.rpartition(":")
    return Announcement(
        name=settings.discovery.box_name(),
        port=int(port),
        version=edge_rag.__version__,
        tls=True,  # required to listen for other machines
        sha256=server_identity(settings).fingerprint,
        addresses=_addresses(host.strip("[]")),
    )


def _addresses(host: str) -> tuple[str, ...]:
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise AccessError(f"listen: {host} is a name; to be announced the daemon has to listen on addresses") from error
    return () if address.is_unspecified else (host,)
