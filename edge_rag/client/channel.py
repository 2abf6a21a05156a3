"""Where the server is, and the channel to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Protocol

import grpc
from grpc_health.v1 import health_pb2

from edge_rag.api.v1 import admin_pb2, documents_pb2, rag_pb2
from edge_rag.client.credentials import Credentials
from edge_rag.client.failures import CallStatus, ClientError

DEFAULT_ADDRESS = "127.0.0.1:7421"
ADDRESS_VARIABLE = "EDGE_RAG_SERVER"

_ADDRESS = re.compile(r"unix:.+|[^\s/:]+:\d{1,5}|\[[0-9A-Fa-f:.]+(?:%\w+)?\]:\d{1,5}")
_LONGEST_REPLY_BYTES = 256 << 20
_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", _LONGEST_REPLY_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)


def server_address(given: str | None) -> str:
    """Returns the address to call: the given one, else EDGE_RAG_SERVER, else 127.0.0.1:7421.

    Raises:
        ClientError: INVALID_ARGUMENT, it is neither HOST:PORT nor unix:PATH.
    """
    address = given or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
    if not _ADDRESS.fullmatch(address):
        raise ClientError(CallStatus.INVALID_ARGUMENT, f"server: {address!r} is neither HOST:PORT nor unix:PATH")
    return address


def open_channel(address: str, credentials: Credentials | None = None) -> grpc.Channel:
    """Opens a channel, over TLS where there are credentials; it connects at the first call."""
    if credentials is None:
        return grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
    channel = grpc.ssl_channel_credentials(credentials.authority, credentials.key, credentials.certificate)
    if credentials.token is not None:
        channel = grpc.composite_channel_credentials(channel, grpc.access_token_call_credentials(credentials.token))
    options: tuple[tuple[str, str | int], ...] = _CHANNEL_OPTIONS
    if credentials.server_name is not None:
        options += (("grpc.ssl_target_name_override", credentials.server_name),)
    return grpc.secure_channel(address, channel, options=options)


class AnswerCall(Protocol):
    """A running ``Ask`` call, as gRPC gives it."""

    def __next__(self) -> rag_pb2.AskResponse:
        """Returns the next message."""
        ...

    def __iter__(self) -> Iterator[rag_pb2.AskResponse]:
        """Iterates over the messages to come."""
        ...

    def cancel(self) -> object:
        """Ends the call."""
        ...


class DecisionsCall(Protocol):
    """A running ``ListDecisions`` call, as gRPC gives it."""

    def __iter__(self) -> Iterator[admin_pb2.ListDecisionsResponse]:
        """Iterates over the messages to come."""
        ...

    def cancel(self) -> object:
        """Ends the call."""
        ...


class StatusCall(Protocol):
    """A running ``WatchStatus`` call, as gRPC gives it."""

    def __iter__(self) -> Iterator[admin_pb2.WatchStatusResponse]:
        """Iterates over the messages to come."""
        ...

    def cancel(self) -> object:
        """Ends the call."""
        ...


class BackupCall(Protocol):
    """A running ``Backup`` call, as gRPC gives it."""

    def __iter__(self) -> Iterator[admin_pb2.BackupResponse]:
        """Iterates over the messages to come."""
        ...

    def cancel(self) -> object:
        """Ends the call."""
        ...


class IngestCall(Protocol):
    """A running ``StartIngest`` call, as gRPC gives it."""

    def __iter__(self) -> Iterator[documents_pb2.StartIngestResponse]:
        """Iterates over the messages to come."""
        ...

    def cancel(self) -> object:
        """Ends the call."""
        ...


class WatchCall(Protocol):
    """A running ``WatchJob`` call, as gRPC gives it."""

    def __iter__(self) -> Iterator[documents_pb2.WatchJobResponse]:
        """Iterates over the messages to come."""
        ...

    def cancel(self) -> object:
        """Ends the call."""
        ...


class HealthCall(Protocol):
    """A running ``Watch`` call, as gRPC gives it."""

    def __iter__(self) -> Iterator[health_pb2.HealthCheckResponse]:
        """Iterates over the changes."""
        ...

    def cancel(self) -> object:
        """Ends the call."""
        ...
