"""Which daemon a command calls that names none."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import click

from edge_rag.cli.output.terminal import notes, visible
from edge_rag.client import CallStatus, ClientError
from edge_rag.client.channel import DEFAULT_ADDRESS
from edge_rag.client.credentials import KnownServer, KnownServers
from edge_rag.client.pairing import host_and_port
from edge_rag.client.server_identity import IdentifiedServer, IdentityStatus, identify, reachable
from edge_rag.discovery.announcer import FoundServer
from edge_rag.errors import DiscoveryUnavailable

_LOCAL_S = 0.5
_CONNECT_S = 2.0
_LOOK_S = 3.0


def chosen(context: click.Context, _: click.Parameter, given: str | None) -> str | None:
    """Returns the address to call; a callback of --server.

    That is the one given; else the daemon of this machine, where one answers; else the only box that this user is
    paired with and that proves itself, at the address it had or at one that it announces, which is kept then.

    Raises:
        ClientError: INVALID_ARGUMENT, there are several; UNAUTHENTICATED, there is only what pretends to be one;
            UNAVAILABLE, there is none.
    """
    if given is not None or context.resilient_parsing or _local_daemon():
        return given
    servers = KnownServers()
    paired = [server for server in servers.servers() if server.token is not None]
    if not paired:
        return None
    present = reachable(paired, _CONNECT_S)
    missing = [server for server in paired if server not in present]
    seen = _look_for(missing) if missing else []
    for one in seen:
        if one.status is IdentityStatus.PAIRED and one.known is not None:
            present.append(servers.move(one.known, one.address))
            notes().print(visible(f"{one.known.box or one.known.address} is at {one.address} now"), style="dim")
    if len(present) == 1:
        return present[0].address
    if present:
        listed = ", ".join(f"{server.box or 'a box'} at {server.address}" for server in present)
        raise ClientError(
            CallStatus.INVALID_ARGUMENT, f"several boxes answer: {listed}", advice="Name one with --server"
        )
    for one in seen:
        if one.status is IdentityStatus.MISMATCH:
            raise ClientError(CallStatus.UNAUTHENTICATED, one.warning())
    listed = ", ".join(f"{server.box or 'one'} (last at {server.address})" for server in paired)
    raise ClientError(
        CallStatus.UNAVAILABLE,
        f"no daemon answers at {DEFAULT_ADDRESS}, and of the boxes known here none: {listed}",
        advice="`edge-rag discover` shows who announces itself; --server names an address",
        connected=False,
    )


def _local_daemon() -> bool:
    try:
        socket.create_connection(host_and_port(DEFAULT_ADDRESS), _LOCAL_S).close()
    except OSError:
        return False
    return True


def _look_for(missing: Sequence[KnownServer]) -> list[IdentifiedServer]:
    from edge_rag.discovery.browser import browse

    wanted = {server.fingerprint() for server in missing}

    def enough(found: tuple[FoundServer, ...]) -> bool:
        return wanted <= {server.sha256 for server in found}

    try:
        return identify(browse(_LOOK_S, enough), missing, _CONNECT_S)
    except DiscoveryUnavailable:
        return []
