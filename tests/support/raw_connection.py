"""One HTTP/2 connection, frame by frame: a client that does what gRPC's own would never do."""

import socket
import ssl
import struct
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

ASK = "/edge_rag.v1.Rag/Ask"
_READ_BYTES = 1 << 16


@dataclass
class Stream:
    """What came over one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    unread: int = 0
    reset: int | None = None
    ended: bool = False

    @property
    def messages(self) -> list[bytes]:
        """The whole messages that came."""
        found, at = [], 0
        while len(self.body) >= at + 5:
            (size,) = struct.unpack_from(">I", self.body, at + 1)
            if len(self.body) < at + 5 + size:
                break
            found.append(bytes(self.body[at + 5 : at + 5 + size]))
            at += 5 + size
        return found


class RawConnection:
    """A connection that sends what it is told to, and reads only when asked to.

    Args:
        window: Bytes a stream may send unread; HTTP/2's own default if None.
        authority: PEM file of who signed the server's certificate; without TLS if None.
        within_s: How long the server may take to take the connection, seconds.
    """

    def __init__(
        self,
        address: str,
        window: int | None = None,
        source: str | None = None,
        authority: Path | None = None,
        within_s: float = 10,
    ) -> None:
        host, _, port = address.rpartition(":")
        came_from = None if source is None else (source, 0)
        self.socket: socket.socket = socket.create_connection((host, int(port)), within_s, came_from)
        if authority is not None:
            context = ssl.create_default_context(cafile=str(authority))
            context.set_alpn_protocols(["h2"])
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self._host = address
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                header_encoding="utf-8", validate_outbound_headers=False, normalize_outbound_headers=False
            )
        )
        self._h2.initiate_connection()
        if window is not None:
            self._h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.streams: defaultdict[int, Stream] = defaultdict(Stream)
        self.goodbye: tuple[int, str] | None = None
        self.closed = False
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def call(
        self, path: str, message: bytes | None = None, more: tuple[tuple[str, str], ...] = (), end: bool = True
    ) -> int:
        """Begins a call; returns its stream."""
        stream = self._h2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", self._host),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            *more,
        ]
        self._h2.send_headers(stream, headers)
        if message is not None:
            self._h2.send_data(stream, b"\0" + struct.pack(">I", len(message)) + message, end_stream=end)
        self.flush()
        return stream

    def room(self, stream: int) -> int:
        """Returns how many bytes the server takes of a stream now."""
        return max(0, self._h2.local_flow_control_window(stream))

    def send(self, stream: int, data: bytes) -> None:
        self._h2.send_data(stream, data)
        self.flush()

    def reset(self, stream: int) -> None:
        self._h2.reset_stream(stream, 8)
        self.flush()

    def ping(self) -> None:
        self._h2.ping(b"edge-rag")
        self.flush()

    def flush(self) -> None:
        """Sends what there is to send."""
        if data := self._h2.data_to_send():
            self.socket.sendall(data)

    def let_send(self, stream: int, count: int) -> None:
        """Allows the server to send so many bytes more, over the stream and the connection."""
        self._h2.increment_flow_control_window(count, stream)
        self._h2.increment_flow_control_window(count)
        self.flush()

    def read(self, seconds: float) -> bool:
        """Takes in what comes within the time; returns whether anything did."""
        self.socket.settimeout(seconds)
        try:
            data = self.socket.recv(_READ_BYTES)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return False
        for event in self._h2.receive_data(data):
            self._take(event)
        try:
            self.flush()
        except OSError:
            self.closed = True
        return True

    def read_until_ended(self, stream: int, seconds: float, reading: bool = True) -> Stream:
        """Takes in what comes until a stream is over, the connection closed, or the time."""
        until = time.monotonic() + seconds
        watched = self.streams[stream]
        while not (watched.ended or self.closed) and (left := until - time.monotonic()) > 0:
            if reading and watched.unread:
                self.let_send(stream, watched.unread)
                watched.unread = 0
            self.read(min(left, 0.5))
        return watched

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived() | h2.events.TrailersReceived():
                headers = {str(name): str(value) for name, value in event.headers or ()}
                self.streams[event.stream_id or 0].headers |= headers
            case h2.events.DataReceived():
                stream = self.streams[event.stream_id or 0]
                stream.body += event.data or b""
                stream.unread += event.flow_controlled_length or 0
            case h2.events.StreamEnded():
                self.streams[event.stream_id or 0].ended = True
            case h2.events.StreamReset():
                stream = self.streams[event.stream_id or 0]
                stream.reset, stream.ended = int(event.error_code or 0), True
            case h2.events.ConnectionTerminated():
                self.goodbye = int(event.error_code or 0), (event.additional_data or b"").decode()
