"""``edge-rag discover``: Lists the daemons that announce themselves on the network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, note, output_console, printable

if TYPE_CHECKING:
    from edge_rag.client.server_identity import IdentifiedServer

_CONNECT_S = 2.0
_STYLES = {
    "paired": "green",
    "revoked": "yellow",
    "unpaired": "default",
    "mismatch": "bold red",
    "unreachable": "yellow",
}


@click.command(
    epilog="""\b
Examples:
  edge-rag discover
  edge-rag discover --timeout 10 --json

\b
A server is `paired` if it proved over TLS that this user has credentials for
it, and `revoked` if it does not take them any more: pair again with
`edge-rag connect`. Announcements prove nothing: any machine on the network
can send them. A `mismatch` uses the name, address or certificate of a known server but is not
that server; nothing is ever sent to it, and the exit code is 1.
"""
)
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1, max=600), default=3.0, show_default=True,
              metavar="SECONDS", help="Duration of the discovery.")  # fmt: skip
@options.as_json
def discover(timeout_s: float, as_json: bool) -> ExitCode:
    """Lists the daemons that announce themselves on the network. Shows which of them are paired."""
    from rich.table import Table

    from edge_rag.client.credentials import KnownServers
    from edge_rag.client.server_identity import IdentityStatus, identify
    from edge_rag.discovery.browser import browse

    servers = [*map(_tried, identify(browse(timeout_s), KnownServers().servers(), _CONNECT_S))]
    mismatched = [server for server in servers if server.status is IdentityStatus.MISMATCH]
    if as_json:
        emit({"servers": [_server_json(server) for server in servers]})
        return ExitCode.FAILURE if mismatched else ExitCode.OK
    out = output_console()
    if not servers:
        note("no server announces itself; name one with --server HOST:PORT", "dim")
        return ExitCode.OK
    table = Table("name", "address", "version", "", "SHA-256 of its authority", box=None, pad_edge=False)
    for server in servers:
        found, status = server.found, server.status
        shown = (found.name, server.address, found.version, status.value, f"{found.sha256[:16]}…")
        table.add_row(*map(printable, shown), style=_STYLES[status.value])
    out.print(table)
    for server in mismatched:
        note(server.warning(), "bold red")
    return ExitCode.FAILURE if mismatched else ExitCode.OK


def _tried(server: IdentifiedServer) -> IdentifiedServer:
    """Returns a server with the status REVOKED if it proved to be known and does not take the credentials for it."""
    from edge_rag.client import Client, ClientError, Unauthenticated
    from edge_rag.client.credentials import Credentials
    from edge_rag.client.server_identity import IdentityStatus

    known = server.known
    if server.status is not IdentityStatus.PAIRED or known is None:
        return server
    credentials = Credentials(known.authority.encode(), known.token, server_name=known.server_name)
    try:
        with Client(server.address, timeout_s=_CONNECT_S, credentials=credentials) as client:
            client.whoami()
    except Unauthenticated as error:
        if error.connected:
            return replace(server, status=IdentityStatus.REVOKED)
    except ClientError:  # it is that box all the same
        pass
    return server


def _server_json(server: IdentifiedServer) -> dict[str, object]:
    found = server.found
    return {
        "name": found.name,
        "status": server.status.value,
        "server": server.address,
        "addresses": list(found.addresses),
        "version": found.version,
        "tls": found.tls,
        "sha256": found.sha256,
    }
