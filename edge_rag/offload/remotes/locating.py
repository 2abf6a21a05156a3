"""Where a remote is: at its address, or where a box of its name says on the network that it is.

What is announced is only a hint. Who is there has to prove by its certificate that it is the remote.
"""

from __future__ import annotations

import asyncio
from typing import Final

from edge_rag.discovery.announcement import FoundServer
from edge_rag.discovery.browser import browse
from edge_rag.errors import DiscoveryUnavailable, RemoteFailed

BY_NAME: Final = "box:"
"""What an address begins with that is the name of a box."""


async def located(address: str, within_s: float) -> str:
    """Returns HOST:PORT of a remote.

    Args:
        address: HOST:PORT, or ``box:`` and a name.
        within_s: How long to look for the name, seconds.

    Raises:
        RemoteFailed: No box of that name answers.
    """
    if not address.startswith(BY_NAME):
        return address
    name = address.removeprefix(BY_NAME)

    def those(found: tuple[FoundServer, ...]) -> list[FoundServer]:
        return [server for server in found if server.tls and server.name == name]

    try:
        found = await asyncio.to_thread(browse, within_s, lambda servers: bool(those(servers)))
    except DiscoveryUnavailable as error:
        raise RemoteFailed(f"it cannot be looked for: {error}") from error
    if not (servers := those(found)):
        raise RemoteFailed(f"no box named {name!r} answers on the network")
    return servers[0].addresses[0]
