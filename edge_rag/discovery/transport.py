"""Multicast DNS on this machine's networks."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Sequence

import zeroconf
from zeroconf.asyncio import AsyncZeroconf

from edge_rag.errors import DiscoveryUnavailable

# It logs what others sent, as they sent it.
logging.getLogger("zeroconf").setLevel(logging.CRITICAL + 1)


async def open_transport(addresses: Sequence[str]) -> AsyncZeroconf:
    """Opens multicast DNS on the interfaces of these addresses; for the running event loop.

    IPv6 is left out where the kernel does not list interfaces to this process, as in the service.

    Raises:
        DiscoveryUnavailable: There is no network, or it cannot be used for multicast.
    """
    known = [ipaddress.ip_address(address) for address in addresses]
    ipv4 = [str(address) for address in known if address.version == 4]
    failure: Exception | None = None
    for interfaces in dict.fromkeys((tuple(map(str, known)), tuple(ipv4))):
        if not interfaces:
            continue
        try:
            opened = AsyncZeroconf(interfaces=list(interfaces))
        except (OSError, RuntimeError, zeroconf.Error) as error:
            failure = error
            continue
        try:
            await opened.zeroconf.async_wait_for_start()
        except (TimeoutError, zeroconf.Error) as error:
            failure = error
        if failure is None and opened.zeroconf.engine.senders:
            return opened
        await opened.async_close()
    raise DiscoveryUnavailable(f"multicast DNS cannot be used: {failure or 'there is no network that carries it'}")
