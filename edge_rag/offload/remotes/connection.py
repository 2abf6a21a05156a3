"""The connection to another edge-rag, which everything that is asked of it shares.

Where a remote is: at its address, or where a box of its name says on the network that it is.

What is announced is only a hint. Who is there has to prove by its certificate that it is the remote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc

from edge_rag.discovery.announcer import FoundServer
from edge_rag.discovery.browser import browse
from edge_rag.errors import DiscoveryUnavailable, RemoteFailed, RemoteIncompatible
from edge_rag.offload.remotes.tls_trust import Trust, anchor

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


_LONGEST_MESSAGE_BYTES: Final = 4 << 20
_CONNECT_S: Final = 10.0
_LAST_CALLS_S: Final = 60.0
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _LONGEST_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)
_UNFIT: Final = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED)


class Connection:
    """Made when it is first needed, and anew where certificates may have changed. For one event loop.

    Args:
        address: HOST:PORT, or ``box:`` and the name that a box announces.
        trust: What it has to show, and is shown.
    """

    def __init__(self, address: str, trust: Trust) -> None:
        self._address = address
        self._trust = trust
        self._channel: grpc.aio.Channel | None = None
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def channel(self, within_s: float | None) -> grpc.aio.Channel:
        """Returns what calls are made over.

        Args:
            within_s: Longest time that looking for it and fetching its certificate may take, seconds.

        Raises:
            RemoteFailed: It is not found, or not the one.
        """
        async with self._opening:
            if self._channel is None:
                self._channel = await self._open(min(_CONNECT_S, _CONNECT_S if within_s is None else within_s))
            return self._channel

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns what a call shows.

        Raises:
            RemoteFailed: The credential cannot be read.
        """
        token = self._trust.token()
        return () if token is None else (("authorization", f"Bearer {token}"),)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Has whatever a call over it fails with raised as what that means to who asked.

        Raises:
            RemoteFailed: The call failed, or the connection was closed meanwhile.
        """
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RemoteFailed("the connection was closed") from None
        except grpc.aio.UsageError as error:
            raise RemoteFailed(f"the connection was closed: {error}") from error

    def _failure(self, error: grpc.aio.AioRpcError) -> RemoteFailed:
        """Returns what a call's failure means; the next call connects anew where this one failed on the way."""
        code = error.code()
        if code is grpc.StatusCode.UNAVAILABLE and self._trust.is_encrypted and self._channel is not None:
            closing = asyncio.create_task(self._channel.close(_LAST_CALLS_S))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._channel = None
        problem = f"{code.name}: {_short(error.details())}"
        if code in _UNFIT:
            return RemoteIncompatible(problem)
        return RemoteFailed(problem, busy=code is grpc.StatusCode.RESOURCE_EXHAUSTED)

    async def close(self) -> None:
        """Lets the connection go."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)

    async def _open(self, within_s: float) -> grpc.aio.Channel:
        if not self._trust.is_encrypted:
            return grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        address = await located(self._address, within_s)
        host, _, port = address.rpartition(":")
        believed = await asyncio.to_thread(anchor, self._trust, host.strip("[]"), int(port), within_s)
        named = () if believed.name is None else (("grpc.ssl_target_name_override", believed.name),)
        credentials = grpc.ssl_channel_credentials(believed.roots)
        return grpc.aio.secure_channel(address, credentials, options=(*_OPTIONS, *named))


def _short(details: Any) -> str:
    return str(details or "no details")[:200]
