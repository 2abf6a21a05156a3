"""Who may come in, and where: addresses, certificates and tokens out of the settings.

What the daemon says of itself on the network.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from pathlib import Path

import edge_rag
from edge_rag.access.certificate_files import CertificateFolder, Introduction, TlsFiles
from edge_rag.access.pairing_file import PairingFile
from edge_rag.access.quotas import QuotaLedger
from edge_rag.access.tokens import TokenFile
from edge_rag.config.paths import certificate_path, credential, pairing_path, token_path
from edge_rag.config.settings import Settings
from edge_rag.discovery.announcer import Announcement, Announcer
from edge_rag.errors import AccessError
from edge_rag.server.authentication import Authenticator, PairingService
from edge_rag.server.grpc.listeners import Listeners, TlsOptions, is_local, open_doors
from edge_rag.server.limits.transport import CallLimits, TransportLimits
from edge_rag.wire.requests import RequestLimits


def make_entrance(settings: Settings) -> tuple[Listeners, Authenticator]:
    """Decides where to listen and who is let in.

    Raises:
        ConfigurationError: An address would be open to other machines without TLS and credentials.
        AccessError: The file of tokens cannot be used.
    """
    tokens, pairings = token_file(settings), pairing_file(settings)
    may_enter = bool(tokens.tokens()) or bool(pairings.open_pairings())
    doors = open_doors(settings.listen, settings.local_listen, settings.tls.always, tls_options(settings), may_enter)
    return doors, Authenticator(tokens, QuotaLedger(), newcomers(settings))


def token_file(settings: Settings) -> TokenFile:
    """Returns the tokens of those who may call over TLS."""
    return TokenFile(settings.access.tokens or token_path(settings.data_directory))


def pairing_file(settings: Settings) -> PairingFile:
    """Returns the codes of those who may become known."""
    return PairingFile(pairing_path(settings.data_directory))


def newcomers(settings: Settings) -> PairingService:
    """Returns who exchanges codes for tokens."""
    return PairingService(
        pairing_file(settings), token_file(settings), lambda: introduction(settings), settings.discovery.box_name()
    )


def introduction(settings: Settings, certificate: Path | None = None) -> Introduction:
    """Returns how clients recognize the daemon, by the certificates that are there now.

    Args:
        settings: Checked settings.
        certificate: Certificate that it serves, PEM; None for the one that this process would serve.

    Raises:
        AccessError: There is no certificate, or its files cannot be used.
    """
    options = tls_options(settings)
    if options is None:
        raise AccessError("there is no certificate; make one with `edge-rag tls init`")
    files = options.files if certificate is None else replace(options.files, certificate=certificate)
    return files.introduction(CertificateFolder(certificate_path(settings.data_directory)).authority_certificate)


def request_limits(settings: Settings) -> RequestLimits:
    """Returns what one request may ask for, and gets where it does not say."""
    return RequestLimits(settings.limits.question_characters, settings.generator.mode, settings.reranker.passages)


def call_limits(settings: Settings) -> CallLimits:
    """Returns the bounds of calls."""
    limits = settings.limits
    return CallLimits(
        limits.concurrent_calls, limits.request_seconds, limits.long_call_seconds, limits.slow_client_seconds
    )


def transport_limits(settings: Settings) -> TransportLimits:
    """Returns the bounds of messages and connections."""
    limits = settings.limits
    return TransportLimits(
        message_bytes=limits.message_mib << 20,
        metadata_bytes=limits.metadata_kib << 10,
        streams=limits.streams_per_connection,
        connections=limits.connections,
        connections_per_address=limits.connections_per_address,
        keepalive_s=limits.keepalive_seconds,
        keepalive_timeout_s=limits.keepalive_timeout_seconds,
        ping_s=limits.min_ping_interval_seconds,
        idle_s=limits.idle_seconds,
    )


def tls_options(settings: Settings) -> TlsOptions | None:
    """Returns how TLS is served; None where there is no certificate."""
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
    if not folder.is_made():
        return None
    server = folder.server
    return TlsOptions(TlsFiles(server.certificate, server.key, authority, wanted.authority), wanted.client_certificates)


def make_announcer(settings: Settings, address: str) -> Announcer | None:
    """Returns what announces the daemon; None where it is not to be, or no other machine could reach it.

    Args:
        settings: Checked settings.
        address: The address it listens on, with the port that was picked.
    """
    if not settings.discovery.announce or is_local(address):
        return None
    return Announcer(lambda: announcement(settings, address))


def announcement(settings: Settings, address: str) -> Announcement:
    """Returns what the daemon says of itself, with no addresses where it listens on all.

    Args:
        settings: Checked settings.
        address: The address it listens on, with the port that was picked; one that other machines can reach.

    Raises:
        AccessError: The address is a name, or the certificates cannot be used.
    """
    host, _, port = address.rpartition(":")
    return Announcement(
        name=settings.discovery.box_name(),
        port=int(port),
        version=edge_rag.__version__,
        tls=True,  # no daemon listens to other machines without
        sha256=introduction(settings).fingerprint,
        addresses=_addresses(host.strip("[]")),
    )


def _addresses(host: str) -> tuple[str, ...]:
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise AccessError(f"listen: {host} is a name; to be announced the daemon has to listen on addresses") from error
    return () if address.is_unspecified else (host,)
