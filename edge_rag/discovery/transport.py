"""Opens multicast DNS on this machine's networks, and lists its addresses on networks with multicast.

Addresses are read by ioctl and from /proc. getifaddrs would need a netlink socket, which the service is denied because
of the large kernel interface behind it.
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

# It logs received data unescaped.
logging.getLogger("zeroconf").setLevel(logging.CRITICAL + 1)


async def open_transport(addresses: Sequence[str]) -> AsyncZeroconf:
    """Opens multicast DNS on the interfaces of these addresses; for the running event loop.

    IPv6 is skipped if the kernel does not list interfaces to this process, as in the service.

    Raises:
        DiscoveryUnavailable: There is no network with multicast.
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
    raise DiscoveryUnavailable(f"multicast DNS cannot be used: {failure or 'there is no network with multicast'}")


_SIOCGIFCONF: Final = 0x8912
_SIOCGIFFLAGS: Final = 0x8913
_IFF_UP: Final = 0x1
_IFF_LOOPBACK: Final = 0x8
_IFF_MULTICAST: Final = 0x1000
_ENTRY_BYTES: Final = struct.calcsize("16s24s" if struct.calcsize("P") == 8 else "16s16s")
_UNUSABLE: Final = 0x40 | 0x08
"""Addresses in or after failed duplicate detection: IFA_F_TENTATIVE, IFA_F_DADFAILED."""
_MAX_INTERFACES: Final = 256
_IPV6_TABLE: Final = Path("/proc/thread-self/net/if_inet6")


def multicast_addresses() -> tuple[str, ...]:
    """Returns the addresses of interfaces that are up and carry multicast, without loopback; IPv4 first, in order."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        found = [address for name, address in (*_ipv4(sock), *_ipv6()) if _carries_multicast(sock, name)]
    addresses = {ipaddress.ip_address(address) for address in found}
    return tuple(str(address) for address in sorted(addresses, key=lambda address: (address.version, int(address))))


def _ipv4(sock: socket.socket) -> list[tuple[str, str]]:
    entries = array.array("B", bytes(_MAX_INTERFACES * _ENTRY_BYTES))
    place, size = entries.buffer_info()
    answer = fcntl.ioctl(sock, _SIOCGIFCONF, struct.pack("iP", size, place))
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
        return []  # no IPv6 in the kernel
    fields = [line.split() for line in lines]
    return [
        (parts[5], str(ipaddress.IPv6Address(bytes.fromhex(parts[0]))))
        for parts in fields
        if len(parts) == 6 and not int(parts[4], 16) & _UNUSABLE
    ]


def _carries_multicast(sock: socket.socket, name: str) -> bool:
    device = name.partition(":")[0]  # an alias such as eth0:1 has no flags of its own
    with suppress(OSError):
        answer = fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16sh22x", device.encode()[:15], 0))
        flags = int(struct.unpack("16sH22x", answer)[1])
        return flags & (_IFF_UP | _IFF_MULTICAST | _IFF_LOOPBACK) == _IFF_UP | _IFF_MULTICAST
    return False  # the interface is gone
