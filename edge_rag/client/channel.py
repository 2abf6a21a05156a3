"""The server's address, and channels to it."""

from __future__ import annotations

import os
import re
from typing import Final

import grpc

from edge_rag.client.credentials import Credentials
from edge_rag.client.errors import CallStatus, ClientError
from edge_rag.core.address import ADDRESS_VARIABLE, DEFAULT_ADDRESS

_ADDRESS: Final = re.compile(r"unix:.+|[^\s/:]+:\d{1,5}|\[[0-9A-Fa-f:.]+(?:%\w+)?\]:\d{1,5}")
_MAX_REPLY_BYTES: Final = 256 << 20
_CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MAX_REPLY_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)


def server_address(address: str | None) -> str:
    """Returns the server's address: this one, else EDGE_RAG_SERVER, else 127.0.0.1:7421.

    Raises:
        InvalidArgument: It is neither HOST:PORT nor unix:PATH.
    """
    address = address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
    if not _ADDRESS.fullmatch(address):
        raise ClientError(CallStatus.INVALID_ARGUMENT, f"server: {address!r} is neither HOST:PORT nor unix:PATH")
    return address


def open_channel(address: str, credentials: Credentials | None) -> grpc.Channel:
    """Opens a channel for blocking calls, over TLS if there are credentials. The first call connects it."""
    if credentials is None:
        return grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
    return grpc.secure_channel(address, _channel_credentials(credentials), options=_options(credentials))


def open_async_channel(address: str, credentials: Credentials | None) -> grpc.aio.Channel:
    """Opens a channel for calls on the running event loop, likewise."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(address, _channel_credentials(credentials), options=_options(credentials))


def _options(credentials: Credentials) -> tuple[tuple[str, str | int], ...]:
    if credentials.server_name is None:
        return _CHANNEL_OPTIONS
    return (*_CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", credentials.server_name))


def _channel_credentials(credentials: Credentials) -> grpc.ChannelCredentials:
    channel = grpc.ssl_channel_credentials(credentials.authority, credentials.key, credentials.certificate)
    if credentials.token is None:
        return channel
    return grpc.composite_channel_credentials(channel, grpc.access_token_call_credentials(credentials.token))
