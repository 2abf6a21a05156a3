"""Announces this box on the network for as long as it serves.

What a box says of itself on the network, and what of that is taken from others; pure.

A DNS-SD instance (RFC 6763) of ``_edge-rag._tcp`` with these keys: ``txtvers`` (1), ``version``, ``tls`` (1 or 0) and
``sha256``, the hash of the certificate of the authority that clients believe: it stays when the box gets a new
certificate or address. Nothing of it is secret, and nothing of it proves anything.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import structlog
import zeroconf
from zeroconf import DNSService  # type: ignore[attr-defined]
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from edge_rag.discovery.transport import multicast_addresses, open_transport
from edge_rag.errors import AccessError, DiscoveryUnavailable

SERVICE: Final = "_edge-rag._tcp.local."

_FORMAT: Final = b"1"
_SHA256: Final = re.compile(rb"[0-9a-f]{64}")
_VERSION: Final = re.compile(rb"[0-9A-Za-z.+-]{1,32}")
_SCOPE: Final = re.compile(r"\w{1,15}", re.ASCII)
_MOST_ADDRESSES: Final = 8


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a box says of itself.

    Attributes:
        name: Name of the box; as an instance it may get a number behind it, where another box has it.
        port: Port that it serves on.
        version: Version of edge-rag.
        tls: Whether it serves TLS there.
        sha256: SHA-256 of its authority's certificate, 64 lower-case hexadecimal digits.
        addresses: Where it listens.
    """

    name: str
    port: int
    version: str
    tls: bool
    sha256: str
    addresses: tuple[str, ...]

    def properties(self) -> dict[bytes, bytes]:
        """Returns it as the keys of a TXT record."""
        return {
            b"txtvers": _FORMAT,
            b"version": self.version.encode(),
            b"tls": b"1" if self.tls else b"0",
            b"sha256": self.sha256.encode(),
        }


@dataclass(frozen=True, slots=True)
class FoundServer:
    """What somebody on the network said. An address hint: nothing of it is to be relied on.

    Attributes:
        name: Name of the box, up to 63 printable characters.
        addresses: HOST:PORT each, at least one, the likeliest to be reached first.
        version: Version of edge-rag; empty where it was not told in a legal form.
        tls: Whether TLS is served.
        sha256: SHA-256 that its authority's certificate is said to have, 64 lower-case hexadecimal digits.
    """

    name: str
    addresses: tuple[str, ...]
    version: str
    tls: bool
    sha256: str


def found_server(
    instance: str, properties: Mapping[bytes, bytes | None], addresses: Iterable[str], port: int | None
) -> FoundServer | None:
    """Reads what somebody said; None where it is not what a box says.

    Args:
        instance: The instance's name, with or without the service's behind it; any text.
        properties: Keys of the TXT record; any bytes.
        addresses: Addresses, those of one link with ``%`` and the interface behind them.
        port: The port.
    """
    sha256, version = properties.get(b"sha256") or b"", properties.get(b"version") or b""
    if not _SHA256.fullmatch(sha256) or port is None or not 0 < port < 65536:
        return None
    places = sorted({place for address in addresses if (place := _place(address)) is not None})
    if not places:
        return None
    return FoundServer(
        name=_printable(instance.removesuffix(f".{SERVICE}")),
        addresses=tuple(f"{text}:{port}" for _, text in places[:_MOST_ADDRESSES]),
        version=version.decode() if _VERSION.fullmatch(version) else "",
        tls=properties.get(b"tls") == b"1",
        sha256=sha256.decode(),
    )


def _place(address: str) -> tuple[tuple[bool, int, int], str] | None:
    """Returns an address behind what it is sorted by, or None where nobody can be called there."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return None
    if known.is_unspecified or known.is_loopback or known.is_multicast or known.is_reserved:
        return None
    if isinstance(known, ipaddress.IPv6Address):
        if known.scope_id is not None and not _SCOPE.fullmatch(known.scope_id):
            return None
        if known.is_link_local and known.scope_id is None:
            return None
    return (known.is_link_local, known.version, int(known)), f"[{known}]" if known.version == 6 else str(known)


def _printable(name: str) -> str:
    """Cuts a name to 63 characters and puts a mark for each that could steer a terminal or hide."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name[:63])


_LOOK_S: Final = 5.0
_FAREWELL_S: Final = 3.0
_TYPE_SRV: Final = 33
_CLASS_IN: Final = 1

log = structlog.get_logger()


class Announcer:
    """Announces a box, on a thread of its own: whatever comes off the network, the daemon's loop does not wait for it.

    Every few seconds it looks whether addresses or the announcement have changed, or another box has the same name, and
    announces anew. Where the network does not allow it, that is logged once and tried on.

    Args:
        describe: Says what to announce, with no addresses where the daemon listens on all of them; may raise
            AccessError.
        look_s: Seconds between two looks.
    """

    def __init__(self, describe: Callable[[], Announcement], look_s: float = _LOOK_S) -> None:
        self._describe = describe
        self._look_s = look_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._to_end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)
        self._present: Announcement | None = None
        self._transport: AsyncZeroconf | None = None
        self._info: AsyncServiceInfo | None = None
        self._complaint = ""
        self._host = f"edge-rag-{secrets.token_hex(8)}.local."

    def start(self) -> None:
        """Begins to announce."""
        self._thread.start()

    def close(self) -> None:
        """Withdraws the announcement; returns within a few seconds."""
        self._to_end.set()
        if self._loop is not None:
            with suppress(RuntimeError):  # it ended by itself
                self._loop.call_soon_threadsafe(self._ended.set)
        if self._thread.ident is not None:
            self._thread.join(2 * _FAREWELL_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._announce())
        except Exception:
            log.exception("announcing on the network has ended; the daemon serves on")

    async def _announce(self) -> None:
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._to_end.is_set():
            return
        looking = asyncio.create_task(self._keep_looking())
        ended = asyncio.create_task(self._ended.wait())
        await asyncio.wait((looking, ended), return_when=asyncio.FIRST_COMPLETED)
        for task in (looking, ended):
            task.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await looking
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._withdraw(), _FAREWELL_S)

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self._look()
                self._complaint = ""
            except (DiscoveryUnavailable, AccessError, OSError, zeroconf.Error) as error:
                await self._withdraw()
                if str(error) != self._complaint:
                    log.warning("this box is not announced on the network; it is tried on", reason=str(error))
                    self._complaint = str(error)
            await asyncio.sleep(self._look_s)

    async def _look(self) -> None:
        wanted = self._describe()
        wanted = replace(wanted, addresses=wanted.addresses or multicast_addresses())
        if wanted == self._present and not self._gives_way():
            return
        await self._withdraw()
        self._transport = await open_transport(wanted.addresses)
        info = AsyncServiceInfo(
            SERVICE,
            f"{wanted.name}.{SERVICE}",
            port=wanted.port,
            properties=dict(wanted.properties()),
            # Not the host's own name, whose records are another responder's.
            server=self._host,
            parsed_addresses=list(wanted.addresses),
        )
        announced = await self._transport.async_register_service(info, allow_name_change=True)
        self._info, self._present = info, wanted
        await announced
        log.info("announced on the network", name=info.name.removesuffix(f".{SERVICE}"), addresses=wanted.addresses)

    def _gives_way(self) -> bool:
        """Whether another box announces itself by the same name, and is the one to keep it (RFC 6762, 8.2 and 9)."""
        if self._transport is None or self._info is None:
            return False
        records = self._transport.zeroconf.cache.get_all_by_details(self._info.name, _TYPE_SRV, _CLASS_IN)
        mine = (str(self._info.server).lower(), self._info.port)
        others = [(record.server.lower(), record.port) for record in records if isinstance(record, DNSService)]
        return any(mine < other for other in others)

    async def _withdraw(self) -> None:
        transport, self._transport, self._info, self._present = self._transport, None, None, None
        if transport is not None:
            with suppress(OSError, zeroconf.Error):
                await transport.async_close()
