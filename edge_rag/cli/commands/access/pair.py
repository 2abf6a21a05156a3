"""``edge-rag pair``: Creates a one-time code that pairs another machine."""

from __future__ import annotations

import hashlib
import ipaddress
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_rag.cli import options
from edge_rag.cli.commands.access.token import format_rights, identity_of, identity_options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, note

if TYPE_CHECKING:
    from edge_rag.access.certificates import ServerIdentity
    from edge_rag.config.settings import Settings

_CONNECT_TIMEOUT_S = 2.0


@click.command(
    epilog="""\b
Examples:
  edge-rag pair --name ward-3
  edge-rag pair --name scanner --roles writer --collections manuals,sheets --minutes 60
  edge-rag pair --name kiosk --address manuals.ship.lan:7421 --json

\b
On the other machine, run `edge-rag connect HOST:PORT --code CODE`. A code is
valid once, for a few minutes; five wrong attempts or a new code for the same
name invalidate it. Where HTTP is served on an address that other machines
reach (http.address), a URL signs in to the console in their browsers. `edge-rag token list` lists paired machines, and
`edge-rag token revoke NAME` revokes one.
"""
)
@identity_options
@click.option("--minutes", type=click.IntRange(1, 1440), default=10, show_default=True, metavar="N",
              help="Lifetime of the code, minutes.")  # fmt: skip
@click.option("--address", metavar="HOST:PORT", help="Address for the client. [default: this machine's]")
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="The daemon's certificate, if the settings do not name it.")  # fmt: skip
@click.option(
    "--qr/--no-qr",
    default=None,
    help="Print a QR code of the URL that signs in or, without one, of the link. [default: on a terminal]",
)
@options.config_options
@options.as_json
def pair(
    name: str,
    roles: str,
    collections: str | None,
    priority_max: str,
    quota: str | None,
    days: int | None,
    minutes: int,
    address: str | None,
    certificate: Path | None,
    qr: bool | None,
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,
) -> ExitCode:
    """Creates a one-time code that pairs another machine. A running daemon accepts it at once."""
    import segno

    from edge_rag.bootstrap.network import pairing_file, server_identity, tls_options, token_file
    from edge_rag.errors import AccessError
    from edge_rag.service.authentication import PairingService

    identity = identity_of(name, roles, collections, priority_max, quota)
    settings = options.read_settings(config, data_dir)
    known = server_identity(settings, certificate)
    _require_served(settings, known)
    if (served := tls_options(settings)) is not None and served.client_certificates:
        raise AccessError("tls.client_certificates requires a client certificate; make one with `edge-rag tls client`")
    pairing = PairingService(pairing_file(settings), token_file(settings), lambda: known, settings.discovery.box_name())
    code, expires = pairing.make(identity, days, minutes)
    addresses = [address] if address is not None else _addresses(settings)
    link = f"edge-rag://{addresses[0]}/{code.text()}"
    url = _sign_in_url(settings, addresses[0], code.text())
    if as_json:
        details = {"name": name, "addresses": addresses, "expires": expires.isoformat(), "url": url or None}
        emit({"code": code.text(), "link": link, **details, "authority_sha256": known.fingerprint})
        return ExitCode.OK
    click.echo(code.text())
    if sys.stderr.isatty() if qr is None else qr:
        segno.make(url or link, error="l", micro=False).terminal(sys.stderr, compact=True)
    note(f"{name}: {format_rights(identity)}. Valid once, until {expires.astimezone():%H:%M}. On that machine, run:")
    for each in addresses:
        note(f"  edge-rag connect {each} --code {code.text()}")
    if url:
        note(f"Or open in a browser there:\n  {url}")
    else:
        note(f"Browsers on other machines do not reach the console: {_why_no_console(settings)}")
    if not known.stable:
        note(
            "The authority that signed this certificate is not known: clients trust this one certificate only and must "
            "pair again after it is replaced. Name the authority in tls.authority.",
            "yellow",
        )
    return ExitCode.OK


def _require_served(settings: Settings, known: ServerIdentity) -> None:
    """Checks that a daemon running at the settings' address serves the certificate that the code will contain."""
    from edge_rag.client import ClientError
    from edge_rag.client.pairing import peer_certificate
    from edge_rag.errors import AccessError

    host, _, port = settings.listen.rpartition(":")
    if settings.listen.startswith("unix:") or not port.isdigit():
        return
    local_host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    try:
        served = peer_certificate(f"{local_host}:{port}", _CONNECT_TIMEOUT_S)
    except ClientError:
        return  # no daemon is running there: nothing to compare
    if hashlib.sha256(served).digest() != known.sha256:
        raise AccessError(
            f"the daemon at {settings.listen} serves another certificate than these settings name; name the one it "
            "serves with --certificate"
        )


def _sign_in_url(settings: Settings, address: str, code: str) -> str:
    from edge_rag.bootstrap.network import is_unspecified
    from edge_rag.core.address import sign_in_url

    if _why_no_console(settings):
        return ""
    host, _, port = settings.http.address.rpartition(":")
    if is_unspecified(host.strip("[]")):
        host = address.rpartition(":")[0]
    return sign_in_url(f"https://{host}:{port}/", code)


def _why_no_console(settings: Settings) -> str:
    """Returns what to set so that other machines reach the console; empty if they do."""
    from edge_rag.server.listeners import is_local

    http = settings.http
    if not http.enabled or not http.console:
        return f"set {'http.enabled' if not http.enabled else 'http.console'} = true"
    if missing := http.missing_packages():
        return f"{' and '.join(missing)} cannot be imported; install the extra: pip install 'edge-rag[http]'"
    if is_local(http.address, "http.address"):
        return 'set http.address, for example http.address = "0.0.0.0:7480"'
    return ""


def _addresses(settings: Settings) -> list[str]:
    """Returns addresses at which other machines may reach the daemon, most likely first; at least one."""
    from edge_rag.bootstrap.network import own_addresses

    host, _, port = settings.listen.rpartition(":")
    try:
        given = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        given = None
    if given is not None and not given.is_unspecified and not given.is_loopback:
        return [settings.listen]
    if given is None and host not in ("localhost", "") and not settings.listen.startswith("unix:"):
        return [settings.listen]
    port = port if port.isdigit() and port != "0" else "PORT"
    return [f"[{found}]:{port}" if ":" in found else f"{found}:{port}" for found in own_addresses()] or [f"HOST:{port}"]
