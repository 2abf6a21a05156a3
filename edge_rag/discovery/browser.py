"""Finds boxes on the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from zeroconf import Error, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from edge_rag.discovery.announcer import SERVICE, FoundServer, found_server
from edge_rag.discovery.transport import multicast_addresses, open_transport
from edge_rag.errors import DiscoveryUnavailable

_MAX_SERVERS: Final = 256
_RESOLVE_MS: Final = 2000


class Browser:
    """Tracks the boxes that are announced, at most 256; an asynchronous context manager.

    Raises on entering:
        DiscoveryUnavailable: There is no network with multicast.
    """

    def __init__(self) -> None:
        self._found: dict[str, FoundServer] = {}
        self._resolving: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._transport: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None

    async def __aenter__(self) -> Self:
        try:
            addresses = multicast_addresses()
        except OSError as error:
            raise DiscoveryUnavailable(f"the addresses of this machine cannot be read: {error.strerror}") from error
        self._transport = await open_transport(addresses)
        self._browser = AsyncServiceBrowser(self._transport.zeroconf, SERVICE, handlers=[self._on_change])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._resolving.values():
            task.cancel()
        if self._browser is not None:
            await self._browser.async_cancel()
        if self._transport is not None:
            await self._transport.async_close()

    def found(self) -> tuple[FoundServer, ...]:
        return tuple(sorted(self._found.values(), key=lambda server: (server.name, server.addresses)))

    async def changed(self) -> None:
        """Waits for a change since the last call."""
        await self._changed.wait()
        self._changed.clear()

    def _on_change(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if task := self._resolving.pop(name, None):
            task.cancel()
        if state_change is ServiceStateChange.Removed:
            if self._found.pop(name, None) is not None:
                self._changed.set()
        elif name in self._found or len(self._found) + len(self._resolving) < _MAX_SERVERS:
            self._resolving[name] = asyncio.create_task(self._resolve(zeroconf, name))

    async def _resolve(self, transport: Zeroconf, name: str) -> None:
        server = None
        try:
            info = AsyncServiceInfo(SERVICE, name)
            if info.load_from_cache(transport) or await info.async_request(transport, _RESOLVE_MS):
                server = found_server(name, info.properties, info.parsed_scoped_addresses(), info.port)
        except (ValueError, Error):
            pass  # malformed: treated as absent
        self._resolving.pop(name, None)
        if self._found.get(name) == server:
            return
        if server is None:
            del self._found[name]
        else:
            self._found[name] = server
        self._changed.set()


def browse(
    timeout_s: float, enough: Callable[[tuple[FoundServer, ...]], bool] = lambda _: False
) -> tuple[FoundServer, ...]:
    """Browses for boxes, for callers without an event loop.

    Args:
        timeout_s: How long, seconds.
    """
    return asyncio.run(_browse(timeout_s, enough))


async def _browse(timeout_s: float, enough: Callable[[tuple[FoundServer, ...]], bool]) -> tuple[FoundServer, ...]:
    async with Browser() as browser:
        try:
            async with asyncio.timeout(timeout_s):
                while not enough(browser.found()):
                    await browser.changed()
        except TimeoutError:
            pass
        return browser.found()
