"""One connection over HTTP/1.1: a strict parser, bounded reads, and a bound on the time of a request's head.

Uvicorn's protocol and h11 do the rest. Faults that they forgive are refused here: a proxy may read them differently,
and then one request is two (Kettle, HTTP Desync Attacks, 2019; RFC 9112, section 11.2).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

HEAD_S: Final = 10.0
"""How long the head of a request, or the first one of a connection, may take to arrive, seconds."""

KEEP_ALIVE_S: Final = 75.0
"""How long a connection may be idle between two requests, seconds."""

READ_BYTES: Final = 16 << 10
"""Most bytes taken from a connection at once; asyncio's own 256 KiB would be held for each of them."""

_UNSENT_BYTES: Final = 16 << 10
"""Unsent bytes of a response from which on the next ones wait; over TLS asyncio's own bound is 512 KiB."""

_FREE_CHUNKS: Final = 1024
_CHUNK_BYTES: Final = 256
"""Mean size of the chunks of a body, at least, beyond the first ``_FREE_CHUNKS``: each is parsed at some cost."""

_BUFFER: Final = memoryview(bytearray(READ_BYTES))
"""Where all connections of the process receive: what was received is parsed before anything else runs."""

_BEFORE_RESPONSE: Final = (h11.IDLE, h11.SEND_RESPONSE)


class RequestParser(h11.Connection):
    """h11's parser, which refuses faults that h11 forgives."""

    def __init__(self, head_bytes: int) -> None:
        super().__init__(h11.SERVER, head_bytes)
        self._head_bytes = head_bytes
        self._chunks = self._body_bytes = 0
        self.refusal = "the request is not HTTP/1.1"

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Returns the next event, as ``h11.Connection.next_event`` does."""
        unread = self.trailing_data[0] if self.their_state is h11.IDLE else b""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
            self._check_head(event, unread[: len(unread) - len(self.trailing_data[0])])
        elif isinstance(event, h11.Data):
            self._body_bytes += len(event.data)
            self._chunks += event.chunk_start
            if self._chunks > _FREE_CHUNKS + self._body_bytes // _CHUNK_BYTES:
                self._refuse("the chunks of the body are too small")
        return event

    def _check_head(self, request: h11.Request, head: bytes) -> None:
        if len(head) > self._head_bytes:
            self._refuse(f"the head has more than {self._head_bytes:,} bytes")
        if not head.count(b"\n") == head.count(b"\r") == head.count(b"\r\n"):
            self._refuse("a line of the head does not end with CR LF")
        if b"\n " in head or b"\n\t" in head:
            self._refuse("a header goes on in the next line")
        if request.http_version not in (b"1.0", b"1.1"):
            self._refuse("the version is not HTTP/1.1")
        names = [name for name, _ in request.headers]
        if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
            self._refuse("the length of the body is given twice")

    def _refuse(self, why: str) -> None:
        self.refusal = why
        raise h11.RemoteProtocolError(why)


class HttpConnection(H11Protocol, asyncio.BufferedProtocol):
    """A connection.

    Uvicorn bounds only the time between two requests, and each byte of a request resets it.

    Args:
        peer: gRPC's name of the peer.
        closed: Called once the connection has ended, if it began.

    Attributes:
        peer: As given.
        opened: Whether it began: over TLS once the handshake is done.
        certificate_names: Common names of the client's certificate.
    """

    app_state: dict[str, Any]

    def __init__(
        self, config: Config, state: ServerState, head_bytes: int, peer: str, closed: Callable[[HttpConnection], None]
    ) -> None:
        super().__init__(config, state, {})
        self.app_state["connection"] = self
        self.conn = self._parser = RequestParser(head_bytes)
        self.peer = peer
        self.opened = False
        self.certificate_names: tuple[str, ...] = ()
        self._closed = closed
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the connection."""
        self.opened = True
        made = cast(asyncio.Transport, transport)
        super().connection_made(made)
        made.set_write_buffer_limits(high=_UNSENT_BYTES)
        certificate: Any = transport.get_extra_info("peercert") or {}
        subject = [part for parts in certificate.get("subject", ()) for part in parts]
        self.certificate_names = tuple(value for name, value in subject if name == "commonName")
        self._head_timer = self.loop.call_later(HEAD_S, self.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns where to receive."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Takes bytes of requests."""
        if self.transport.is_closing():
            return
        if self._head_timer is None and self.conn.their_state is h11.IDLE:
            self._head_timer = self.loop.call_later(HEAD_S, self.abort)
        self.data_received(bytes(_BUFFER[:nbytes]))
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the connection."""
        self._stop_head_timer()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._closed(self)

    def timeout_keep_alive_handler(self) -> None:
        """Ends an idle connection, even if its client has not read the last response."""
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():
            self.abort()

    def on_response_complete(self) -> None:
        """Goes on to the next request, unless the body of this one was not read."""
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuses bytes that are no request, and closes the connection."""
        if self.conn.our_state in _BEFORE_RESPONSE:
            self.transport.write(self._refusal())
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    @property
    def can_write(self) -> bool:
        """Whether sending does not wait for the client."""
        return not self.flow.write_paused

    def abort(self) -> None:
        """Closes the connection at once, even if the client has not read everything."""
        self.transport.abort()

    def _refusal(self) -> bytes:
        body = error_body(self._parser.refusal, "bad_request")
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        events = (response, h11.Data(data=body), h11.EndOfMessage())
        return b"".join(self.conn.send(event) or b"" for event in events)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def error_body(message: str, code: str) -> bytes:
    """Returns the body that refuses a request that is no call: it has no route, or is not HTTP."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return json.dumps({"error": error}).encode()
