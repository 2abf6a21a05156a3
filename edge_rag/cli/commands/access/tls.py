"""``edge-rag tls``: Creates the certificates of this daemon and of its clients."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.help import Group
from edge_rag.cli.output.terminal import emit, note

if TYPE_CHECKING:
    from edge_rag.access.certificates import CertificateFolder


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  edge-rag tls init
  edge-rag tls client ward-3
""",
)
def tls() -> None:
    """Creates the certificates of this daemon and of its clients."""


@tls.command(
    epilog="""\b
Examples:
  edge-rag tls init
  edge-rag tls init --host manuals.ship.lan --host 10.0.0.7

\b
Run it again to make a new certificate under the same authority, for example
after the host name changed; a running daemon uses it at once.
"""
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Host name or address that clients use. [default: this machine's names and addresses]",
)
@options.config_options
@options.as_json
def init(hosts: tuple[str, ...], config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Creates a certificate authority and the daemon's certificate in the data directory."""
    from edge_rag.access.certificates import expires, fingerprint

    folder, names = _folder(config, data_dir), list(hosts or own_names())
    is_new = folder.make(socket.gethostname(), names, datetime.now(UTC))
    certificate = folder.server.certificate.read_bytes()
    digest, ends = fingerprint(certificate), expires(certificate)
    authority = folder.authority_certificate
    if as_json:
        made = {"hosts": names, "authority": str(authority), "new_authority": is_new}
        emit({**made, "sha256": digest, "expires": ends.isoformat()})
        return ExitCode.OK
    note(f"a certificate for {', '.join(names)}, until {ends:%Y-%m-%d}")
    note(f"  SHA-256 {digest}", "dim")
    note(f"  clients trust {authority} ({'new' if is_new else 'unchanged'})", "dim")
    return ExitCode.OK


@tls.command(epilog="\b\nExamples:\n  edge-rag tls client ward-3 --directory ward-3/\n")
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Where NAME.pem, NAME.key and ca.pem go. [default: here]",
)
@options.config_options
@options.as_json
def client(name: str, directory: Path, config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Signs a client certificate. It authenticates the identity of that name; see edge-rag token create."""
    from edge_rag.core.atomic_file import replace_file
    from edge_rag.errors import AccessError

    folder = _folder(config, data_dir)
    pair = folder.client(name, datetime.now(UTC))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(directory / f"{name}.key", pair.key, mode=0o600)
        replace_file(directory / f"{name}.pem", pair.certificate)
        replace_file(directory / "ca.pem", folder.authority().certificate)
    except OSError as error:
        raise AccessError(f"{directory}: cannot be written: {error.strerror}") from error
    if as_json:
        files = {"certificate": f"{name}.pem", "key": f"{name}.key", "authority": "ca.pem"}
        emit({"name": name, **{kind: str(directory.absolute() / file) for kind, file in files.items()}})
        return ExitCode.OK
    note(f"{name}.pem, {name}.key and ca.pem are in {directory.absolute()}", "dim")
    return ExitCode.OK


def own_names() -> list[str]:
    from edge_rag.bootstrap.network import interface_addresses

    host = socket.gethostname()
    return list(dict.fromkeys([host, f"{host.partition('.')[0]}.local", "localhost", *interface_addresses()]))


def _folder(config: Path | None, data_dir: Path | None) -> CertificateFolder:
    from edge_rag.access.certificates import CertificateFolder
    from edge_rag.config.paths import certificate_path

    return CertificateFolder(certificate_path(options.read_settings(config, data_dir).data_directory))
