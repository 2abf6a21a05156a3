"""The gRPC connection to another edge-rag, shared by all calls to it.

The address is HOST:PORT, or the name of a box that announces itself on the network by mDNS. Announcements are not
trusted: the certificate has to prove that the server is the remote.
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
"""Prefix of an address that is a name announced on the network."""

_MAX_MESSAGE_BYTES: Final = 4 << 20
_CONNECT_S: Final = 10.0
_DRAIN_S: Final = 60.0
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)
_INCOMPATIBLE: Final = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED)


async def discover(address: str, timeout_s: float) -> str:
    """Returns HOST:PORT of a remote.

    Args:
        timeout_s: How long to browse for the name, seconds.

    Raises:
        RemoteFailed: No box of that name answers.
    """
    if not address.startswith(BY_NAME):
        return address
    name = address.removeprefix(BY_NAME)

    def matches(found: tuple[FoundServer, ...]) -> list[FoundServer]:
        return [server for server in found if server.tls and server.name == name]

    try:
        found = await asyncio.to_thread(browse, timeout_s, lambda servers: bool(matches(servers)))
    except DiscoveryUnavailable as error:
        raise RemoteFailed(f"discovery is unavailable: {error}") from error
    if not (servers := matches(found)):
        raise RemoteFailed(f"no box named {name!r} was found on the network")
    return servers[0].addresses[0]


class Connection:
    """Opened at first use, and again after a failure, since certificates may have changed. For one event loop."""

    def __init__(self, address: str, trust: Trust) -> None:
        self._address = address
        self._trust = trust
        self._channel: grpc.aio.Channel | None = None
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def channel(self, timeout_s: float | None) -> grpc.aio.Channel:
        """Returns the channel.

        Args:
            timeout_s: Longest time for discovery and for fetching the certificate, seconds.
        """
        async with self._opening:
            if self._channel is None:
                self._channel = await self._open(min(_CONNECT_S, _CONNECT_S if timeout_s is None else timeout_s))
            return self._channel

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata of a call: the bearer token."""
        token = self._trust.token()
        return () if token is None else (("authorization", f"Bearer {token}"),)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raises errors of a call over the channel as RemoteFailed.

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
        """Returns the error to raise; after a transport failure, the next call opens a new channel."""
        code = error.code()
        if code is grpc.StatusCode.UNAVAILABLE and self._trust.is_encrypted and self._channel is not None:
            closing = asyncio.create_task(self._channel.close(_DRAIN_S))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._channel = None
        problem = f"{code.name}: {_short(error.details())}"
        if code in _INCOMPATIBLE:
            return RemoteIncompatible(problem)
        return RemoteFailed(problem, busy=code is grpc.StatusCode.RESOURCE_EXHAUSTED)

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)

    async def _open(self, timeout_s: float) -> grpc.aio.Channel:
        if not self._trust.is_encrypted:
            return grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        address = await discover(self._address, timeout_s)
        host, _, port = address.rpartition(":")
        trusted = await asyncio.to_thread(anchor, self._trust, host.strip("[]"), int(port), timeout_s)
        override = () if trusted.name is None else (("grpc.ssl_target_name_override", trusted.name),)
        credentials = grpc.ssl_channel_credentials(trusted.roots)
        return grpc.aio.secure_channel(address, credentials, options=(*_OPTIONS, *override))


def _short(details: Any) -> str:
    return str(details or "no details")[:200]
