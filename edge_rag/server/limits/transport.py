"""Limits of messages, connections and open files."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

import structlog

MESSAGE_BYTES: Final = 1 << 20
"""Largest message of a request; documents are sent in pieces."""

METADATA_BYTES: Final = 16 << 10
"""Largest metadata of a call, or head of an HTTP request."""

_HANDSHAKE_MS: Final = 10_000
"""Timeout of a connection's TLS and HTTP/2 handshake, milliseconds; gRPC's default is two minutes."""

_PING_STRIKES: Final = 2
"""Early pings after which a connection is closed with ENHANCE_YOUR_CALM."""

_REQUESTS_PER_READ: Final = 16
"""Streams that one read of a connection may open; the rest waits until other connections are read."""

_ACCEPTED: Final = 2
"""Connections that gRPC accepts for each one that is allowed to stay."""

_PENDING_CALLS: Final = 4096
"""Calls that may wait to be accepted, about 15 KiB each; beyond that gRPC cancels arbitrary ones. A reset call stays in
this queue, so that a flood of resets fills it until the address is banned; one connection holds at most ``streams``."""

_WINDOW_BYTES: Final = 16 << 10
"""Bytes that a client may send of an unread call (the HTTP/2 window of a stream), and that may wait to be sent."""

_FIRST_WINDOW_BYTES: Final = 64 << 10
"""The same for a client that does not acknowledge the settings with the smaller window (RFC 9113, section 6.9.2)."""

BUFFERED_BYTES: Final = _FIRST_WINDOW_BYTES + _WINDOW_BYTES
"""Most bytes that gRPC holds of a call besides the message that is being received or sent."""

HTTP_BUFFERED_BYTES: Final = 96 << 10
"""The same for a call over HTTP: 64 KiB of a body that is not read, and 16 KiB received, twice that over TLS. A
response takes less, and begins when the request is read.
"""


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Limits of messages and connections. gRPC enforces all but the numbers of connections.

    Attributes:
        connections: Open connections from other hosts.
        message_bytes: Largest message of a request.
        metadata_bytes: Largest metadata of a call.
        streams: Concurrent calls of one connection; clients queue further ones (HTTP/2).
        connections_per_address: Concurrent connections from one network: an IPv4 address or the /64 of an IPv6 address.
        keepalive_s: Idle time after which the server pings a connection, seconds.
        keepalive_timeout_s: Time after which a connection without a reply to the ping is closed, seconds.
        ping_s: Minimum interval between a client's pings, seconds.
        idle_s: Time after which a connection without calls is closed, seconds.
    """

    connections: int
    message_bytes: int = MESSAGE_BYTES
    metadata_bytes: int = METADATA_BYTES
    streams: int = 384
    connections_per_address: int = 256  # thirty browsers behind one address have six each
    keepalive_s: float = 60.0
    keepalive_timeout_s: float = 20.0
    ping_s: float = 10.0
    idle_s: float = 900.0

    @property
    def accepted_connections(self) -> int:
        """Concurrent connections that gRPC accepts on one listening address; it refuses the newest, whoever opens them.

        Far above ``connections``, so that there is room for newcomers until unidentified connections are closed.
        """
        return self.connections * _ACCEPTED

    def options(self) -> tuple[tuple[str, int], ...]:
        """Returns gRPC's server options."""
        return (
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self.message_bytes),
            ("grpc.max_send_message_length", -1),
            # Windows do not grow with the bandwidth (BDP probing): what nobody reads stays small.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
            ("grpc.http2.write_buffer_size", _WINDOW_BYTES),
            # Between the soft and the hard limit gRPC refuses at random; equal limits make it deterministic.
            ("grpc.max_metadata_size", self.metadata_bytes),
            ("grpc.absolute_max_metadata_size", self.metadata_bytes),
            ("grpc.max_concurrent_streams", self.streams),
            ("grpc.max_allowed_incoming_connections", self.accepted_connections),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
            ("grpc.keepalive_time_ms", _milliseconds(self.keepalive_s)),
            ("grpc.keepalive_timeout_ms", _milliseconds(self.keepalive_timeout_s)),
            # Otherwise idle connections are not pinged, and clients that ping on idle ones are disconnected.
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


_OTHER_FILES: Final = 512
"""Open files of the daemon besides connections: databases, models, pipes to parsers."""

log = structlog.get_logger()


def raise_file_limit(connections: int) -> int:
    """Raises the process's limit of open files for that many connections, as far as the system allows.

    Logs a warning if the limit stays too low; connections beyond it wait until others are closed.
    """
    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed if soft == resource.RLIM_INFINITY else soft
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        log.warning("the limit of open files is too low for limits.connections; raise LimitNOFILE", open_files=allowed)
    return allowed
