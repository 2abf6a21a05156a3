"""``edge-rag pair``."""

from __future__ import annotations

import hashlib
import ipaddress
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_rag.cli import options
from edge_rag.cli.commands.access.tls import own_addresses
from edge_rag.cli.commands.access.token import identity_of, identity_options, rights
from edge_rag.cli.commands.models.list import place, settings_of
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, notes, visible

if TYPE_CHECKING:
    from edge_rag.access.certificates import ServerIdentity
    from edge_rag.config.settings import Settings

_LOOK_S = 2.0


@click.command(
    epilog="""\b
Examples:
  edge-rag pair --name ward-3
  edge-rag pair --name scanner --roles writer --collections manuals,sheets --minutes 60
  edge-rag pair --name kiosk --address manuals.ship.lan:7421 --json

\b
On the other machine, `edge-rag connect HOST:PORT --code CODE`. The code is good
once, for a few minutes, and void after five wrong tries; another one for the
same name makes it void too. `edge-rag token list` shows who has paired, and
`edge-rag token revoke NAME` ends it.
"""
)
@identity_options
@click.option("--minutes", type=click.IntRange(1, 1440), default=10, show_default=True, metavar="N",
              help="Minutes the code is good for.")  # fmt: skip
@click.option("--address", metavar="HOST:PORT", help="Address to show the client. [default: this box's]")
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Certificate that the daemon serves, where the settings do not name it.")  # fmt: skip
@click.option("--qr/--no-qr", default=None, help="Show a QR code of the link. [default: on a terminal]")
@place
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
    """Makes a one-time code with which another machine gets its credentials. A running daemon takes it at once."""
    import segno

    from edge_rag.access.pairing_file import pairing
    from edge_rag.bootstrap.network import pairing_file, server_identity, tls_options, token_file
    from edge_rag.core.pairing_code import PairingCode
    from edge_rag.errors import AccessError

    identity = identity_of(name, roles, collections, priority_max, quota)
    settings = settings_of(config, data_dir)
    known = server_identity(settings, certificate)
    _require_served(settings, known)
    if (served := tls_options(settings)) is not None and served.client_certificates:
        raise AccessError(
            "tls.client_certificates lets in nobody without a certificate; make one with `edge-rag tls client`"
        )
    if any(token.identity.name == name for token in token_file(settings).tokens()):
        raise AccessError(f"there is a token for {name} already; revoke it first, or choose another name")
    code, now = PairingCode.make(known.sha256), datetime.now(UTC)
    expires = now + timedelta(minutes=minutes)
    pairing_file(settings).add(pairing(code, identity, days, now, expires))
    places = [address] if address is not None else _addresses(settings)
    link = f"edge-rag://{places[0]}/{code.text()}"
    if as_json:
        about = {"name": name, "addresses": places, "expires": expires.isoformat()}
        emit({"code": code.text(), "link": link, **about, "authority_sha256": known.fingerprint})
        return ExitCode.OK
    click.echo(code.text())
    out = notes()
    if sys.stderr.isatty() if qr is None else qr:
        segno.make(link, error="l", micro=False).terminal(sys.stderr, compact=True)
    out.print(visible(f"{name}: {rights(identity)}. Good once, until {expires.astimezone():%H:%M}. On that machine:"))
    for place_ in places:
        out.print(visible(f"  edge-rag connect {place_} --code {code.text()}"))
    if not known.stable:
        out.print(
            "Who signed this box's certificate is not known: clients will believe this one certificate and have to be "
            "paired anew after the next. Name the signer in tls.authority.",
            style="yellow",
        )
    return ExitCode.OK


def _require_served(settings: Settings, known: ServerIdentity) -> None:
    """Checks that a daemon that runs at the settings' address serves the certificate that a code will name.

    Raises:
        AccessError: It serves another.
    """
    from edge_rag.client import ClientError
    from edge_rag.client.pairing import peer_certificate
    from edge_rag.errors import AccessError

    host, _, port = settings.listen.rpartition(":")
    if settings.listen.startswith("unix:") or not port.isdigit():
        return
    here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    try:
        served = peer_certificate(f"{here}:{port}", _LOOK_S)
    except ClientError:
        return  # it does not run, or not there: nothing says anything else
    if hashlib.sha256(served).digest() != known.sha256:
        raise AccessError(
            f"the daemon at {settings.listen} serves another certificate than these settings tell of; name the one it "
            "serves with --certificate"
        )


def _addresses(settings: Settings) -> list[str]:
    """Returns the addresses by which other machines may reach the daemon, most likely first; at least one."""
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
