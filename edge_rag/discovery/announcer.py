"""Announces this box on the network while it serves, and parses announcements of others.

An announcement is a DNS-SD instance (RFC 6763) of ``_edge-rag._tcp`` with these keys: ``txtvers`` (1), ``version``,
``tls`` (1 or 0) and ``sha256``, the hash of the CA certificate that clients trust, which stays the same when the box
gets a new certificate or address. Announcements are neither secret nor authenticated.
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
_MAX_ADDRESSES: Final = 8


@dataclass(frozen=True, slots=True)
class Announcement:
    """The announcement of a box.

    Attributes:
        name: Name of the box; a number is appended if another box has the same name.
        sha256: SHA-256 of its CA certificate, 64 lower-case hexadecimal digits.
    """

    name: str
    port: int
    version: str
    tls: bool
    sha256: str
    addresses: tuple[str, ...]

    def properties(self) -> dict[bytes, bytes]:
        return {
            b"txtvers": _FORMAT,
            b"version": self.version.encode(),
            b"tls": b"1" if self.tls else b"0",
            b"sha256": self.sha256.encode(),
        }


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A received announcement: an unauthenticated address hint.

    Attributes:
        name: Name of the box, up to 63 printable characters.
        addresses: HOST:PORT each, at least one, the most likely to be reachable first.
        version: Version of edge-rag; empty if missing or malformed.
        sha256: Claimed SHA-256 of its CA certificate, 64 lower-case hexadecimal digits.
    """

    name: str
    addresses: tuple[str, ...]
    version: str
    tls: bool
    sha256: str


def found_server(
    instance: str, properties: Mapping[bytes, bytes | None], addresses: Iterable[str], port: int | None
) -> FoundServer | None:
    """Parses an announcement; None if it is invalid.

    Args:
        instance: Name of the instance, with or without the name of the service; any text.
        properties: Keys of the TXT record; any bytes.
        addresses: Addresses; link-local ones with ``%`` and the interface.
    """
    sha256, version = properties.get(b"sha256") or b"", properties.get(b"version") or b""
    if not _SHA256.fullmatch(sha256) or port is None or not 0 < port < 65536:
        return None
    usable = sorted({entry for address in addresses if (entry := _sortable_address(address)) is not None})
    if not usable:
        return None
    return FoundServer(
        name=_printable(instance.removesuffix(f".{SERVICE}")),
        addresses=tuple(f"{text}:{port}" for _, text in usable[:_MAX_ADDRESSES]),
        version=version.decode() if _VERSION.fullmatch(version) else "",
        tls=properties.get(b"tls") == b"1",
        sha256=sha256.decode(),
    )


def _sortable_address(address: str) -> tuple[tuple[bool, int, int], str] | None:
    """Returns a sort key and the text of an address, or None if it is unusable."""
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
    """Truncates a name to 63 characters and replaces those that are not printable."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name[:63])


_INTERVAL_S: Final = 5.0
_WITHDRAW_S: Final = 3.0
_TYPE_SRV: Final = 33
_CLASS_IN: Final = 1

log = structlog.get_logger()


class Announcer:
    """Announces a box, on a thread of its own, so that network traffic cannot delay the daemon's event loop.

    Every few seconds it checks whether addresses or the announcement have changed, or another box has the same name,
    and announces again. Failures are logged once and retried.

    Args:
        describe: Returns the announcement, without addresses if the daemon listens on all of them; may raise
            AccessError.
        interval_s: Time between two checks, seconds.
    """

    def __init__(self, describe: Callable[[], Announcement], interval_s: float = _INTERVAL_S) -> None:
        self._describe = describe
        self._interval_s = interval_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)
        self._present: Announcement | None = None
        self._transport: AsyncZeroconf | None = None
        self._info: AsyncServiceInfo | None = None
        self._last_problem = ""
        self._host = f"edge-rag-{secrets.token_hex(8)}.local."

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Withdraws the announcement; returns within a few seconds."""
        self._closing.set()
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._ended.set)
        if self._thread.ident is not None:
            self._thread.join(2 * _WITHDRAW_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._announce())
        except Exception:
            log.exception("the announcer failed; the daemon keeps serving")

    async def _announce(self) -> None:
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._closing.is_set():
            return
        refreshing = asyncio.create_task(self._refresh_loop())
        ended = asyncio.create_task(self._ended.wait())
        await asyncio.wait((refreshing, ended), return_when=asyncio.FIRST_COMPLETED)
        for task in (refreshing, ended):
            task.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await refreshing
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._withdraw(), _WITHDRAW_S)

    async def _refresh_loop(self) -> None:
        while True:
            try:
                await self._refresh()
                self._last_problem = ""
            except (DiscoveryUnavailable, AccessError, OSError, zeroconf.Error) as error:
                await self._withdraw()
                if str(error) != self._last_problem:
                    log.warning("this box is not announced on the network; retrying", reason=str(error))
                    self._last_problem = str(error)
            await asyncio.sleep(self._interval_s)

    async def _refresh(self) -> None:
        described = self._describe()
        described = replace(described, addresses=described.addresses or multicast_addresses())
        if described == self._present and not self._loses_conflict():
            return
        await self._withdraw()
        self._transport = await open_transport(described.addresses)
        info = AsyncServiceInfo(
            SERVICE,
            f"{described.name}.{SERVICE}",
            port=described.port,
            properties=dict(described.properties()),
            # Not the host name, whose records belong to another responder.
            server=self._host,
            parsed_addresses=list(described.addresses),
        )
        announced = await self._transport.async_register_service(info, allow_name_change=True)
        self._info, self._present = info, described
        await announced
        log.info("announced on the network", name=info.name.removesuffix(f".{SERVICE}"), addresses=described.addresses)

    def _loses_conflict(self) -> bool:
        """Whether another box announces the same name and wins the conflict (RFC 6762, 8.2 and 9)."""
        if self._transport is None or self._info is None:
            return False
        records = self._transport.zeroconf.cache.get_all_by_details(self._info.name, _TYPE_SRV, _CLASS_IN)
        own = (str(self._info.server).lower(), self._info.port)
        others = [(record.server.lower(), record.port) for record in records if isinstance(record, DNSService)]
        return any(own < other for other in others)

    async def _withdraw(self) -> None:
        transport, self._transport, self._info, self._present = self._transport, None, None, None
        if transport is not None:
            with suppress(OSError, zeroconf.Error):
                await transport.async_close()
