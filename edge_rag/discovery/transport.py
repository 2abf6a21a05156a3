"""Multicast DNS on this machine's networks.

This machine's addresses on networks that carry multicast.

Read by ioctl and from /proc, not by getifaddrs: that needs a netlink socket, which the service is not allowed, since
the parts of the kernel behind it are many.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import logging
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

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


_SIOCGIFCONF: Final = 0x8912
_SIOCGIFFLAGS: Final = 0x8913
_IFF_UP: Final = 0x1
_IFF_LOOPBACK: Final = 0x8
_IFF_MULTICAST: Final = 0x1000
_ENTRY_BYTES: Final = struct.calcsize("16s24s" if struct.calcsize("P") == 8 else "16s16s")
_UNUSABLE: Final = 0x40 | 0x08
"""An address that is still being looked for on the link, or was found there: IFA_F_TENTATIVE, IFA_F_DADFAILED."""
_MOST_INTERFACES: Final = 256
_IPV6_TABLE: Final = Path("/proc/thread-self/net/if_inet6")


def multicast_addresses() -> tuple[str, ...]:
    """Returns the addresses of interfaces that are up and carry multicast, without loopback; IPv4 first, in order.

    Raises:
        OSError: The kernel does not tell.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        found = [address for name, address in (*_ipv4(asked), *_ipv6()) if _carries_multicast(asked, name)]
    addresses = {ipaddress.ip_address(address) for address in found}
    return tuple(str(address) for address in sorted(addresses, key=lambda address: (address.version, int(address))))


def _ipv4(asked: socket.socket) -> list[tuple[str, str]]:
    entries = array.array("B", bytes(_MOST_INTERFACES * _ENTRY_BYTES))
    place, size = entries.buffer_info()
    answer = fcntl.ioctl(asked, _SIOCGIFCONF, struct.pack("iP", size, place))
    used = struct.unpack("iP", answer)[0]
    found = []
    for start in range(0, used, _ENTRY_BYTES):
        entry = entries[start : start + _ENTRY_BYTES].tobytes()
        # An ifreq: the interface's name, then a sockaddr_in: family, port, address.
        found.append((entry[:16].split(b"\0", 1)[0].decode("utf-8", "replace"), socket.inet_ntoa(entry[20:24])))
    return found


def _ipv6() -> list[tuple[str, str]]:
    try:
        lines = _IPV6_TABLE.read_text().splitlines()
    except OSError:
        return []  # the kernel has none
    fields = [line.split() for line in lines]
    return [
        (parts[5], str(ipaddress.IPv6Address(bytes.fromhex(parts[0]))))
        for parts in fields
        if len(parts) == 6 and not int(parts[4], 16) & _UNUSABLE
    ]


def _carries_multicast(asked: socket.socket, name: str) -> bool:
    device = name.partition(":")[0]  # an alias such as eth0:1 has no flags of its own
    with suppress(OSError):
        answer = fcntl.ioctl(asked, _SIOCGIFFLAGS, struct.pack("16sh22x", device.encode()[:15], 0))
        flags = int(struct.unpack("16sH22x", answer)[1])
        return flags & (_IFF_UP | _IFF_MULTICAST | _IFF_LOOPBACK) == _IFF_UP | _IFF_MULTICAST
    return False  # it went away
