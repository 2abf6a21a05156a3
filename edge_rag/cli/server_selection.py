"""Selects the daemon for a command without --server."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

from edge_rag.cli.output.terminal import note
from edge_rag.client import CallStatus, ClientError
from edge_rag.client.credentials import KnownServer, KnownServers
from edge_rag.client.pairing import host_and_port
from edge_rag.client.server_identity import IdentifiedServer, IdentityStatus, identify, reachable
from edge_rag.config.paths import SERVICE_SOCKET, default_data_directory, socket_path
from edge_rag.core.address import DEFAULT_ADDRESS
from edge_rag.discovery.announcer import FoundServer
from edge_rag.errors import DiscoveryUnavailable
from edge_rag.server.grpc.unix_socket import answers

_LOCAL_TIMEOUT_S = 0.5
_CONNECT_TIMEOUT_S = 2.0
_DISCOVERY_S = 3.0


def select_server() -> str | None:
    """Returns the address to call; None for the default address.

    A daemon on this machine comes first, on its Unix socket, to which no stranger on the network can bar the way: that
    of the default data directory, else that of the service; one of another user is passed over. Next is the only paired
    server that authenticates, at its last address or at one that it announces, which is then stored. A server
    at the default address comes last, since it proves nothing. A note says which one answers where there is a choice.

    Raises:
        ClientError: INVALID_ARGUMENT, several servers answer; UNAUTHENTICATED, only an impostor answers; UNAVAILABLE,
            none answers.
    """
    sockets = _local_sockets()
    own = answering(sockets)
    servers = KnownServers()
    paired = [server for server in servers.servers() if server.token is not None]
    listed = ", ".join(f"{server.box or 'unnamed'} (last at {server.address})" for server in paired)
    if own is not None:
        if paired:
            note(f"this machine's daemon answers, at {own}; --server names another one, paired: {listed}", "dim")
        return own
    if not paired:
        return None
    present = reachable(paired, _CONNECT_TIMEOUT_S)
    missing = [server for server in paired if server not in present]
    discovered = _discover(missing) if missing else []
    for found in discovered:
        if found.status is IdentityStatus.PAIRED and found.known is not None:
            present.append(servers.move(found.known, found.address))
            note(f"{found.known.box or found.known.address} is now at {found.address}", "dim")
    if len(present) == 1:
        if len(paired) > 1 or _local_daemon_answers():
            note(f"{present[0].box or 'the paired box'} at {present[0].address} answers", "dim")
        return present[0].address
    if present:
        several = ", ".join(f"{server.box or 'unnamed'} at {server.address}" for server in present)
        raise ClientError(
            CallStatus.INVALID_ARGUMENT, f"several paired servers answer: {several}", advice="Name one with --server"
        )
    for found in discovered:
        if found.status is IdentityStatus.MISMATCH:
            raise ClientError(CallStatus.UNAUTHENTICATED, found.warning())
    if _local_daemon_answers():
        note(f"no paired server answers: {listed}; asking what listens at {DEFAULT_ADDRESS}", "yellow")
        return None
    tried = "".join(f" at unix:{path} or" for path in sockets if path.is_socket())
    raise ClientError(
        CallStatus.UNAVAILABLE,
        f"no daemon answers{tried} at {DEFAULT_ADDRESS}, and no paired server answers: {listed}",
        advice="`edge-rag discover` lists announced servers; --server names an address",
        connected=False,
    )


def answering(sockets: Iterable[Path | None]) -> str | None:
    """Returns the address of the first Unix socket on which a process accepts connections; None without one."""
    for path in sockets:
        if path is not None and path.is_socket() and answers(path, _LOCAL_TIMEOUT_S):
            return f"unix:{path}"
    return None


def _local_sockets() -> list[Path]:
    data = os.environ.get("EDGE_RAG_DATA_DIRECTORY")
    own = socket_path(Path(data) if data else default_data_directory())
    return [SERVICE_SOCKET] if own in (None, SERVICE_SOCKET) else [own, SERVICE_SOCKET]


def _local_daemon_answers() -> bool:
    try:
        socket.create_connection(host_and_port(DEFAULT_ADDRESS), _LOCAL_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _discover(missing: Sequence[KnownServer]) -> list[IdentifiedServer]:
    from edge_rag.discovery.browser import browse

    wanted = {server.fingerprint() for server in missing}

    def all_found(found: tuple[FoundServer, ...]) -> bool:
        return wanted <= {server.sha256 for server in found}

    try:
        return identify(browse(_DISCOVERY_S, all_found), missing, _CONNECT_TIMEOUT_S)
    except DiscoveryUnavailable:
        return []
