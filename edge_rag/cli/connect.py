"""``edge-rag connect``."""

from __future__ import annotations

from pathlib import Path

import click

from edge_rag.cli import options
from edge_rag.cli.exits import ExitCode
from edge_rag.cli.terminal import emit, notes, visible
from edge_rag.client import Client
from edge_rag.client.channel import server_address
from edge_rag.client.credentials import Credentials
from edge_rag.client.known_servers import KnownServer, KnownServers

_PROMPT_S = 10.0


@click.command(
    epilog="""\b
Examples:
  edge-rag connect manuals.ship.lan:7421 --ca ca.pem --token-file ward-3.token
  edge-rag ask --server manuals.ship.lan:7421 "What do I do when the gas alarm sounds?"
"""
)
@click.argument("address")
@click.option("--ca", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True, metavar="FILE",
              help="Certificate of the box's authority.")  # fmt: skip
@click.option("--token-file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
              required=True, metavar="FILE", help="File that holds the token; - for standard input.")  # fmt: skip
@options.as_json
def connect(address: str, ca: Path, token_file: Path, as_json: bool) -> ExitCode:
    """Keeps the credentials for a box on the network, after trying them; commands with --server ADDRESS use them."""
    place = server_address(address)
    with click.open_file(str(token_file)) as file:
        token = file.read().strip()
    authority = ca.read_bytes()
    with Client(place, timeout_s=_PROMPT_S, credentials=Credentials(authority, token)) as client:
        who = client.whoami()
    KnownServers().keep(KnownServer(address=place, authority=authority.decode("ascii", "replace"), token=token))
    if as_json:
        emit({"server": place, "name": who.name, "roles": sorted(role.value for role in who.roles)})
    else:
        notes().print(visible(f"{place} knows this client as {who.name}"), style="dim")
    return ExitCode.OK
