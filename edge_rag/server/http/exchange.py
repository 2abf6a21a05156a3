"""One request and its response: what a request must have, slow and gone clients, and errors as responses."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from ipaddress import ip_address
from typing import Any, Final, Protocol

from starlette.datastructures import Headers, QueryParams
from starlette.types import Message, Receive, Scope, Send

from edge_rag.core.address import Peer, name_of_peer
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.errors import CallTimeout, DocumentTooLarge, InvalidRequest, PermissionDenied, SlowConsumer
from edge_rag.server.http.credentials import NO_PROXIES, BrowserSession, TrustedProxies, is_of_another_site
from edge_rag.server.limits.call_memory import CallMemory
from edge_rag.service.authentication import Credentials
from edge_rag.service.call import Call, CallFailed, bearer_token
from edge_rag.service.codes import Code

BODY_S: Final = 20.0
"""How long the body of a request may take to arrive, or each ``STREAMED_BYTES`` of one that is a stream, seconds."""

STREAMED_BYTES: Final = 64 << 10
"""Bytes of a body that is a stream that are handed over at once; as many more may wait in the connection."""

_REFUSAL_S: Final = 10.0
"""How long a client may take to receive the response of a failed call, seconds."""

_DISCARDED_BYTES: Final = 64 << 10
"""Body of a refused request that is still read, so that the client can read the response; beyond that, the connection
is closed after the response."""

_DISCARD_S: Final = 2.0
"""How long that may take, seconds."""

_DISCARDED_STREAM_BYTES: Final = 64 << 20
_DISCARD_STREAM_S: Final = 10.0
"""The same of a body that is a stream, whose caller is known: clients send all of a file before they read."""

_PIECE_BYTES: Final = 16 << 10
"""Response bytes handed over at once; the next ones wait until the client has read most of them."""

JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream; charset=utf-8"

HTTP_STATUS: Final[Mapping[Code, int]] = {
    Code.CANCELLED: 499,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 422,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}
"""The HTTP status of every code but OK. Clients retry 409, 429 and from 500 on, unless `x-should-retry` forbids it."""

_WITHOUT_LENGTH: Final = (204, 304)
"""Statuses of responses that have no body, and no length of one."""

_STATUS_OF_REASON: Final[Mapping[str, int]] = {"DocumentTooLarge": 413}
"""The HTTP status of errors for which there is one of their own."""

_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_RETRIED: Final = (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE)
"""Codes of calls that may succeed if they are repeated unchanged."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of a request and its response.

    Attributes:
        head_bytes: Largest head of a request, without its first line; h11 bounds incomplete heads only.
        body_bytes: Largest body of a request.
        slow_client_s: How long a client may leave a response unread, seconds.
        hosts: Names in the header ``Host`` that are the box's besides addresses and ``localhost``, lower case.
        proxies: Proxies that name the user of a request.
    """

    head_bytes: int
    body_bytes: int
    slow_client_s: float
    hosts: frozenset[str]
    proxies: TrustedProxies = NO_PROXIES


class Connection(Protocol):
    """The connection of a request, in the ASGI scope's state as ``connection``."""

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Common names of the client's certificate."""
        ...

    @property
    def can_write(self) -> bool:
        """Whether sending does not wait for the client."""
        ...

    def abort(self) -> None:
        """Closes it at once, even if the client has not read everything."""
        ...


class Exchange:
    """A request and its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: HttpLimits, requests: RequestLimits) -> None:
        self.requests = requests
        self.headers = Headers(scope=scope)
        self.query = QueryParams(scope["query_string"])
        self.path: Mapping[str, str] = scope.get("path_params", {})
        self.session = BrowserSession(self.headers.getlist("cookie"))
        self.body = b""
        self.parsed: Any = None
        self.memory: CallMemory | None = None
        self.started = self.finished = False
        self._streaming = False
        self._failure: Callable[[Mapping[str, Any]], bytes] = _error_line
        self._scope = scope
        self._receive = receive
        self._send = send
        self._limits = limits
        self._wait_s = limits.slow_client_s
        self._read = False
        self._is_gone = False
        self._discarded = _DISCARDED_BYTES, _DISCARD_S
        self._watched = asyncio.Event()  # only the end of the connection can still be received

    @property
    def connection(self) -> Connection:
        connection: Connection = self._scope["state"]["connection"]
        return connection

    @property
    def base_url(self) -> str:
        """Where the client reached the server, for example ``http://127.0.0.1:7480``."""
        return f"{self._scope['scheme']}://{self.headers.get('host', '')}"

    @property
    def request_id(self) -> str:
        chosen: str = self.headers.get("x-request-id", "")
        return chosen

    def credentials(self) -> Credentials:
        """Returns the credentials of the connection and the request: a bearer token takes precedence."""
        client: Peer = tuple(self._scope["client"][:2])
        bearer = bearer_token(self.headers.get("authorization"))
        return Credentials(
            peer=name_of_peer(client),
            tls=self._scope["scheme"] == "https",
            token=self.session.token if bearer is None else bearer,
            user=self._limits.proxies.user(client[0], self.headers),
            certificate_names=self.connection.certificate_names,
        )

    def token_refused(self) -> None:
        """Ends the session if its token was the one that is not known, so that the next request does without it."""
        if self.session.token is not None and "authorization" not in self.headers:
            self.session.end()

    def check_head(self) -> None:
        """Checks that the request is meant for this server (``Host``) and comes from no other site (``Origin``).

        A page of another site reaches a server on loopback by a name that it points there (DNS rebinding), or by a
        request across sites. Over TLS the certificate says which names are the server's.
        """
        if sum(len(name) + len(value) for name, value in self.headers.raw) > self._limits.head_bytes:
            raise InvalidRequest("headers", f"have more than {self._limits.head_bytes:,} bytes")
        host = self.headers.get("host", "")
        tls = self._scope["scheme"] == "https"
        if not (_HOST.fullmatch(host) if tls else is_own_host(host, self._limits.hosts)):
            raise PermissionDenied(
                f"Host: {host[:256]!r} is no address or name of this box; name it in the setting http.hosts"
            )
        origin = self.headers.get("origin")
        if origin is not None and origin.lower() != self.base_url.lower():
            raise PermissionDenied(f"Origin: requests of pages of other sites are refused, {origin[:256]!r} is one")
        if "authorization" in self.headers:
            return
        has_cookie = self.session.token is not None
        by_browser = has_cookie or self._limits.proxies.user(self._scope["client"][0], self.headers) is not None
        if by_browser and is_of_another_site(self._scope["method"], self.headers, has_cookie):
            raise PermissionDenied(
                "Origin: a request with the session of a browser has to come from the box's own page; programs send "
                "the header `authorization: Bearer TOKEN`"
            )

    def ignore_body(self) -> None:
        """Says that the response does not depend on the body; the connection ends after it if there is one."""
        if not self._has_body:
            self._end_of_body()

    async def read(self, memory: CallMemory) -> None:
        """Reads the body; ``memory`` holds its bytes."""
        self.memory = memory
        length = self.headers.get("content-length")
        most = self._limits.body_bytes
        if length is not None and length.isdigit() and int(length) > most:
            raise _too_large(most)
        if not self._has_body:
            self._end_of_body()
            return
        media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != JSON:
            raise InvalidRequest("content-type", f"must be {JSON}")
        await memory.reserve(most if length is None else int(length))
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                while not self._read:
                    message = await self._receive()
                    self._raise_if_gone(message)
                    body += message["body"]
                    self._read = not message["more_body"]
                    if len(body) > most:
                        raise _too_large(most)
        except TimeoutError:
            raise CallTimeout(f"the body of the request did not arrive within {BODY_S:g} s") from None
        self.body = bytes(body)
        self._end_of_body()
        memory.received(len(body))

    async def begin_stream(self, memory: CallMemory) -> None:
        self.memory = memory
        self._discarded = _DISCARDED_STREAM_BYTES, _DISCARD_STREAM_S
        if self._has_body:
            await memory.reserve(2 * STREAMED_BYTES)
        else:
            self._end_of_body()

    async def pieces(self, most_bytes: int) -> AsyncGenerator[bytes, None]:
        """Yields the body as it arrives, in pieces of ``STREAMED_BYTES`` or, at its end, less.

        The received part of a body that does not end is yielded, too. If its client is gone, the call is cancelled.
        """
        length = self.headers.get("content-length", "")
        too_large = DocumentTooLarge(f"body: has more than {most_bytes:,} bytes (ingest.document_mib)")
        if length.isdigit() and int(length) > most_bytes:
            raise too_large
        left = most_bytes
        while not self._read:
            piece = bytearray()
            slow = False
            try:
                async with asyncio.timeout(BODY_S):
                    while not self._read and not self._is_gone and len(piece) < STREAMED_BYTES:
                        message = await self._receive()
                        self._is_gone = message["type"] == "http.disconnect"
                        piece += message.get("body", b"")
                        self._read = not self._is_gone and not message["more_body"]
            except TimeoutError:
                slow = True
            left -= len(piece)
            if left < 0:
                raise too_large
            if piece:
                yield bytes(piece)
            if slow:
                raise CallTimeout(f"less than {STREAMED_BYTES:,} bytes of the body arrived within {BODY_S:g} s")
            if self._is_gone:
                self._watched.set()
                await asyncio.Event().wait()  # until the call is cancelled
        self._end_of_body()

    async def until_gone(self) -> None:
        await self._watched.wait()
        while not self._is_gone:
            self._is_gone = (await self._receive())["type"] == "http.disconnect"

    @property
    def _has_body(self) -> bool:
        length = self.headers.get("content-length")
        return length != "0" and (length is not None or "transfer-encoding" in self.headers)

    def _end_of_body(self) -> None:
        self._read = True
        self._watched.set()

    async def respond(self, status: int, body: bytes, media_type: str, headers: Mapping[str, str]) -> None:
        if self.memory is None:
            await self._respond(status, body, media_type, headers)
            return
        async with self.memory.sending(len(body)):
            await self._respond(status, body, media_type, headers)

    async def _respond(self, status: int, body: bytes, media_type: str, headers: Mapping[str, str]) -> None:
        await self.start(status, media_type, {"content-length": str(len(body)), **headers})
        await self.write_all(body)
        await self.finish()

    async def respond_empty(self, status: int, headers: Mapping[str, str]) -> None:
        """Sends a whole response without a body; errors as for ``respond``."""
        length = {} if status in _WITHOUT_LENGTH else {"content-length": "0"}
        await self.start(status, "", {**length, **headers})
        await self.finish()

    async def respond_json(self, call: Call, value: Mapping[str, Any], status: int = 200) -> None:
        await self.respond(status, json.dumps(value, ensure_ascii=False).encode(), JSON, id_header(call))

    async def start_events(self, call: Call, failure: Callable[[Mapping[str, Any]], bytes] | None = None) -> None:
        """Sends the head of a stream of events; ``event_line`` makes each of them.

        Args:
            failure: Returns the end of a stream whose call fails, of its ``error_object``; None for a line with that.
        """
        self._failure = failure or self._failure
        await self.start(200, _EVENTS, id_header(call) | {"x-accel-buffering": "no"})  # proxies would hold events back

    async def start(self, status: int, media_type: str, headers: Mapping[str, str]) -> None:
        """Sends the head of a response; ``write`` and ``finish`` send the rest."""
        self.started = True
        self._streaming = media_type.startswith("text/event-stream")
        sent = {
            "date": formatdate(usegmt=True),
            **({"content-type": media_type} if media_type else {}),
            "x-content-type-options": "nosniff",
            "cache-control": "no-store",
            **headers,
            **self.session.headers,
        }
        if not self._read:
            sent["connection"] = "close"
        head = [(name.encode("ascii"), value.encode("latin-1", "replace")) for name, value in sent.items()]
        await self._write({"type": "http.response.start", "status": status, "headers": head})

    async def write(self, data: bytes) -> None:
        await self._write({"type": "http.response.body", "body": data, "more_body": True})

    async def write_all(self, data: bytes) -> None:
        for begin in range(0, len(data), _PIECE_BYTES):
            await self.write(data[begin : begin + _PIECE_BYTES])

    async def finish(self) -> None:
        self.finished = True
        await self._write({"type": "http.response.body", "body": b"", "more_body": False})

    async def fail(self, failed: CallFailed, status: int, value: Mapping[str, Any]) -> None:
        """Sends the failure of a call: as a response, or within a stream that has begun, as the end of it."""
        self._wait_s = _REFUSAL_S
        if self.started and not self._streaming:
            raise SlowConsumer(self._limits.slow_client_s)
        if self.started:
            await self.write(self._failure(error_object(failed)))
            await self.finish()
            return
        if not self._read:
            await self._discard()
        body = json.dumps(value, ensure_ascii=False).encode()
        self.memory = None
        await self.respond(status, body, JSON, error_headers(failed))

    async def _discard(self) -> None:
        """Reads the rest of a small body: a connection closed before that loses the response, too."""
        if "expect" in self.headers:
            return
        left, seconds = self._discarded
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._read and left > 0:
                    message = await self._receive()
                    self._raise_if_gone(message)
                    left -= len(message["body"])
                    self._read = not message["more_body"]

    async def _write(self, message: Message) -> None:
        if self.connection.can_write:  # a timer for each event of a stream would cost a third of sending it
            await self._send(message)
            return
        try:
            async with asyncio.timeout(self._wait_s):
                await self._send(message)
        except TimeoutError:
            raise SlowConsumer(self._wait_s) from None

    def _raise_if_gone(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            raise ClientGone


class ClientGone(Exception):
    """The client closed the connection before its request had come."""


def is_own_host(host: str, names: frozenset[str]) -> bool:
    """Returns whether a header ``Host`` names this server: an address, ``localhost``, or one of the names.

    A name of another site that was pointed at this server is neither.
    """
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found["name"].lower()
    if name == "localhost" or name in names:
        return True
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")


def http_status(failed: CallFailed) -> int:
    return _STATUS_OF_REASON.get(failed.reason) or HTTP_STATUS[failed.code]


def error_object(failed: CallFailed) -> dict[str, Any]:
    status = http_status(failed)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = re.sub(r"(?<!^)(?=[A-Z])", "_", failed.reason).lower() or failed.code.name.lower()
    return {"message": failed.message, "type": kind, "param": failed.field, "code": code}


def openai_failure(exchange: Exchange, failed: CallFailed) -> tuple[int, dict[str, Any]]:
    return http_status(failed), {"error": error_object(failed)}


def error_headers(failed: CallFailed) -> dict[str, str]:
    headers = {"x-request-id": failed.request_id, "x-should-retry": str(failed.code in _RETRIED).lower()}
    if failed.retry_after_s is not None:
        headers["retry-after-ms"] = str(round(failed.retry_after_s * 1000))
    if failed.code is Code.UNAUTHENTICATED:
        headers["www-authenticate"] = "Bearer"
    return headers


def id_header(call: Call) -> dict[str, str]:
    return {"x-request-id": call.request_id}


def event_line(value: Mapping[str, Any], name: str = "") -> bytes:
    """Returns an event of a stream (text/event-stream), with a name unless that is empty."""
    named = f"event: {name}\n".encode() if name else b""
    return named + b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _error_line(error: Mapping[str, Any]) -> bytes:
    return event_line({"error": error})


def _too_large(most: int) -> InvalidRequest:
    return InvalidRequest("body", f"has more than {most:,} bytes")
