"""Who may come in, and where: addresses, certificates and tokens out of the settings."""

from __future__ import annotations

from edge_rag.access.certificate_files import CertificateFolder, TlsFiles
from edge_rag.access.quotas import QuotaLedger
from edge_rag.access.token_file import TokenFile
from edge_rag.config.access_paths import certificate_path, credential, token_path
from edge_rag.config.settings import Settings
from edge_rag.server.doorkeeper import Doorkeeper
from edge_rag.server.listening import Doors, TlsOptions, open_doors
from edge_rag.server.wire import RequestLimits


def make_entrance(settings: Settings) -> tuple[Doors, Doorkeeper]:
    """Decides where to listen and who is let in.

    Raises:
        ConfigurationError: An address would be open to other machines without TLS and credentials.
        AccessError: The file of tokens cannot be used.
    """
    tokens = token_file(settings)
    doors = open_doors(
        settings.listen, settings.local_listen, settings.tls.always, _tls(settings), may_enter=bool(tokens.tokens())
    )
    return doors, Doorkeeper(tokens, QuotaLedger())


def token_file(settings: Settings) -> TokenFile:
    """Returns the tokens of those who may call over TLS."""
    return TokenFile(settings.access.tokens or token_path(settings.data_directory))


def request_limits(settings: Settings) -> RequestLimits:
    """Returns what one request may ask for, and gets where it does not say."""
    return RequestLimits(settings.limits.question_characters, settings.generator.mode, settings.reranker.passages)


def _tls(settings: Settings) -> TlsOptions | None:
    folder = CertificateFolder(certificate_path(settings.data_directory))
    wanted = settings.tls
    authority = wanted.client_authority or credential("edge-rag.client-authority")
    if authority is None and folder.authority_certificate.exists():
        authority = folder.authority_certificate
    if wanted.certificate is not None and wanted.key is not None:
        return TlsOptions(TlsFiles(wanted.certificate, wanted.key, authority), wanted.client_certificates)
    certificate, key = credential("edge-rag.certificate"), credential("edge-rag.key")
    if certificate is not None and key is not None:
        return TlsOptions(TlsFiles(certificate, key, authority), wanted.client_certificates)
    if not folder.is_made():
        return None
    server = folder.server
    return TlsOptions(TlsFiles(server.certificate, server.key, authority), wanted.client_certificates)
