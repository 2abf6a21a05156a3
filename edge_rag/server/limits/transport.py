"""Bounds of calls and connections.

Open files: each connection is one, and services are mostly started with a bound that is too low for many.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

import structlog

_HANDSHAKE_MS: Final = 10_000
"""How long a connection may take until HTTP/2 is spoken over it; gRPC would wait for two minutes."""

_PING_STRIKES: Final = 2
"""Pings that may come too early before the connection is closed with ENHANCE_YOUR_CALM."""

_REQUESTS_PER_READ: Final = 16
"""Streams that one read off a connection may open; the others wait for the next turn, behind other connections."""

_PENDING_CALLS: Final = 4096
"""Calls that may wait to be looked at, about 15 KiB each; of more, gRPC cancels any, whosever they are. One that was
reset still waits, so a flood of resets fills this until its address is shut out: no connection may hold more than its
``streams`` of them."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Bounds of calls.

    Attributes:
        concurrent: Most calls served at once; more get RESOURCE_EXHAUSTED.
        request_s: Longest time of a call, and of a client's silence in it, seconds.
        long_call_s: Longest time of a call that takes long by nature, seconds.
        unread_s: How long a client may leave a message unread, seconds.
    """

    concurrent: int
    request_s: float
    long_call_s: float
    unread_s: float


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Bounds of messages and connections. All but the number by address are enforced by gRPC itself.

    Attributes:
        message_bytes: Largest message taken.
        metadata_bytes: Most metadata of a call, names and values.
        streams: Most calls at once over one connection; a client that keeps to HTTP/2 lets further ones wait.
        connections: Most connections at once, a listening address.
        connections_per_address: Most of them that come from one address.
        keepalive_s: A connection over which nothing came for so long is asked for a sign of life, seconds.
        keepalive_timeout_s: Without one for so long, it is closed, seconds.
        ping_s: Shortest time between two pings of a client, seconds.
        idle_s: A connection without calls is closed after so long, seconds.
    """

    message_bytes: int
    metadata_bytes: int
    streams: int
    connections: int
    connections_per_address: int
    keepalive_s: float
    keepalive_timeout_s: float
    ping_s: float
    idle_s: float

    def options(self) -> tuple[tuple[str, int], ...]:
        """Returns them as gRPC's options for a server."""
        return (
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self.message_bytes),
            ("grpc.max_send_message_length", -1),
            # Between a soft and a hard bound gRPC refuses at random: one number for both makes it predictable.
            ("grpc.max_metadata_size", self.metadata_bytes),
            ("grpc.absolute_max_metadata_size", self.metadata_bytes),
            ("grpc.max_concurrent_streams", self.streams),
            ("grpc.max_allowed_incoming_connections", self.connections),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
            ("grpc.keepalive_time_ms", _milliseconds(self.keepalive_s)),
            ("grpc.keepalive_timeout_ms", _milliseconds(self.keepalive_timeout_s)),
            # Without it, idle connections are not asked, and clients that ping on idle ones are cut off.
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", _milliseconds(self.ping_s)),
            ("grpc.http2.max_ping_strikes", _PING_STRIKES),
            ("grpc.max_connection_idle_ms", _milliseconds(self.idle_s)),
            ("grpc.http2.max_requests_per_read", _REQUESTS_PER_READ),
            ("grpc.server.max_pending_requests", _PENDING_CALLS),
            ("grpc.server.max_pending_requests_hard_limit", _PENDING_CALLS),
        )


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


_OTHERS: Final = 512
"""Files that the daemon has open beside its connections, at most: databases, models, pipes to what reads documents."""

log = structlog.get_logger()


def make_room_for(connections: int) -> int:
    """Raises the process's own bound of open files so that so many connections fit, as far as the system lets it.

    Where it does not, the log says what to do, and connections beyond the bound wait until others are closed.

    Returns:
        The bound in force.
    """
    wanted = connections + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        log.warning("fewer open files than limits.connections may take; raise LimitNOFILE", open_files=allowed)
    return allowed
