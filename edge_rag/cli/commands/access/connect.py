"""``edge-rag connect``: Stores the credentials of a daemon on the network."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, note
from edge_rag.core.address import COLLECTION_VARIABLE
from edge_rag.core.pairing_code import PairingCode

if TYPE_CHECKING:
    from edge_rag.client.credentials import KnownServer

_CALL_TIMEOUT_S = 10.0
_DISCOVERY_S = 3.0
_LINK = re.compile(r"edge-rag://([^/]+)/([^/]+)")


@click.command(
    epilog="""\b
Examples:
  edge-rag connect --code 5NRHCG-NQ4TR4-80B2FJ-MZMJV4-H4MVWB-CV34H7-1BV5MG
  edge-rag connect 10.0.0.7:7421 --code 5NRHCG-NQ4TR4-80B2FJ-MZMJV4-H4MVWB-CV34H7-1BV5MG
  edge-rag connect edge-rag://10.0.0.7:7421/5NRHCG-NQ4TR4-80B2FJ-MZMJV4-H4MVWB-CV34H7-1BV5MG
  edge-rag connect manuals.ship.lan:7421 --ca ca.pem --token-file ward-3.token
  edge-rag connect 10.0.0.7:7421 --forget

\b
The code comes from `edge-rag pair` on the other machine. It identifies that
machine and is sent to no other; without an address, the machine is discovered
on the network. --code - reads it from standard input.
"""
)
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option("--code", metavar="CODE", help="One-time code; - for standard input.")
@click.option("--ca", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Instead of a code: the certificate of the server's authority.")  # fmt: skip
@click.option("--token-file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
              metavar="FILE", help="File that holds the token, with --ca; - for standard input.")  # fmt: skip
@click.option("--forget", is_flag=True, help="Forget the credentials for this address.")
@options.as_json
def connect(
    address: str | None, code: str | None, ca: Path | None, token_file: Path | None, forget: bool, as_json: bool
) -> ExitCode:
    """Stores the credentials of a daemon on the network. Other commands then use them."""
    from edge_rag.client import Client
    from edge_rag.client.channel import server_address
    from edge_rag.client.credentials import Credentials, KnownServer, KnownServers

    if forget:
        return _forget(address, as_json)
    link = None if address is None else _LINK.fullmatch(address)
    if link is not None and code is None:
        address, code = link[1], link[2]
    if code is not None and ca is None and token_file is None:
        new = _pair(address, _parse_code(code))
        KnownServers().store(new)  # before the first call: the code is used up, and the token is not issued again
    elif address is not None and code is None and ca is not None and token_file is not None:
        with click.open_file(str(token_file)) as file:
            new = KnownServer(
                address=server_address(address),
                authority=ca.read_bytes().decode("ascii", "replace"),
                token=file.read().strip(),
            )
    else:
        raise click.UsageError("Give either --code, or an address with --ca and --token-file.")
    credentials = Credentials(new.authority.encode(), new.token, server_name=new.server_name)
    with Client(new.address, timeout_s=_CALL_TIMEOUT_S, credentials=credentials) as client:
        identity = client.whoami()
    allowed = None if identity.visible_collections is None else sorted(identity.visible_collections)
    KnownServers().store(replace(new, collection=allowed[0] if allowed is not None and len(allowed) == 1 else None))
    if as_json:
        roles = sorted(role.value for role in identity.roles)
        emit({"server": new.address, "box": new.box, "name": identity.name, "roles": roles, "collections": allowed})
    else:
        box = "" if new.box is None else f" ({new.box})"
        note(f"{new.address}{box} identifies this client as {identity.name}{_for_collections(allowed)}", "dim")
    return ExitCode.OK


def _for_collections(allowed: Sequence[str] | None) -> str:
    match allowed:
        case None:
            return ""
        case [only]:
            return f"; commands use its collection {only}"
        case _:
            return f", for the collections {', '.join(allowed)}: name one with --collection or {COLLECTION_VARIABLE}"


def _pair(address: str | None, code: PairingCode) -> KnownServer:
    from edge_rag.client.channel import server_address
    from edge_rag.client.pairing import find_issuer, pair

    if address is not None:
        return pair(server_address(address), code, _CALL_TIMEOUT_S)
    from edge_rag.discovery.browser import browse

    found = [each for server in browse(_DISCOVERY_S) for each in server.addresses]
    return pair(find_issuer(found, code, _CALL_TIMEOUT_S), code, _CALL_TIMEOUT_S)


def _forget(address: str | None, as_json: bool) -> ExitCode:
    from edge_rag.client.channel import server_address
    from edge_rag.client.credentials import KnownServers

    if address is None:
        raise click.UsageError("Give the address to forget.")
    KnownServers().remove(server_address(address))
    if as_json:
        emit({"server": address, "forgotten": True})
    else:
        note(f"removed {address}; on that machine, `edge-rag token revoke` revokes the token", "dim")
    return ExitCode.OK


def _parse_code(text: str) -> PairingCode:
    try:
        return PairingCode.parse(sys.stdin.readline() if text == "-" else text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--code") from error
