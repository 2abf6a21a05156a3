"""Announces this box on the network for as long as it serves."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

import structlog
import zeroconf
from zeroconf import DNSService  # type: ignore[attr-defined]
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from edge_rag.discovery.announcement import SERVICE, Announcement
from edge_rag.discovery.interfaces import multicast_addresses
from edge_rag.discovery.transport import open_transport
from edge_rag.errors import AccessError, DiscoveryUnavailable

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
