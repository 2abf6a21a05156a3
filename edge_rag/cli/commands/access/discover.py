"""``edge-rag discover``."""

from __future__ import annotations

import click
from rich.table import Table

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, notes, visible
from edge_rag.client.credentials import KnownServers
from edge_rag.client.server_identity import IdentifiedServer, IdentityStatus, identify

_CONNECT_S = 2.0
_COLOURS = {
    IdentityStatus.PAIRED: "green",
    IdentityStatus.UNPAIRED: "default",
    IdentityStatus.MISMATCH: "bold red",
    IdentityStatus.UNREACHABLE: "yellow",
}


@click.command(
    epilog="""\b
Examples:
  edge-rag discover
  edge-rag discover --timeout 10 --json

\b
A box is `paired` where it has proved, over TLS, that it is one that this user
has credentials for. What boxes say of themselves proves nothing: anybody on the
network can say it. A `mismatch` goes by the name, address or certificate of a
box that is known here and is another; nothing is ever sent to it, and the exit
code is 1.
"""
)
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1, max=600), default=3.0, show_default=True,
              metavar="SECONDS", help="How long to look.")  # fmt: skip
@options.as_json
def discover(timeout_s: float, as_json: bool) -> ExitCode:
    """Lists the boxes that announce themselves on the local network, and which of them are known here."""
    from edge_rag.discovery.browser import browse

    servers = identify(browse(timeout_s), KnownServers().servers(), _CONNECT_S)
    mistaken = [server for server in servers if server.status is IdentityStatus.MISMATCH]
    if as_json:
        emit({"servers": [_object(server) for server in servers]})
        return ExitCode.FAILURE if mistaken else ExitCode.OK
    out = notes()
    if not servers:
        out.print("no box announces itself here; one that does not can be called with --server HOST:PORT", style="dim")
        return ExitCode.OK
    table = Table("name", "address", "version", "", "SHA-256 of its authority", box=None, pad_edge=False)
    for server in servers:
        found, status = server.found, server.status
        shown = (found.name, server.address, found.version, status.value, f"{found.sha256[:16]}…")
        table.add_row(*map(visible, shown), style=_COLOURS[status])
    out.print(table)
    for server in mistaken:
        out.print(visible(server.warning()), style="bold red")
    return ExitCode.FAILURE if mistaken else ExitCode.OK


def _object(server: IdentifiedServer) -> dict[str, object]:
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
