"""The HTTP server: listening address, TLS, connections and routes. It runs in the event loop of the gRPC server.

Uvicorn's protocol speaks HTTP/1.1 (h11 parses it) and Starlette routes; both are used as libraries, without Uvicorn's
own main loop, signals and logging, because the daemon has its own.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

import h11
import structlog
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.errors import ConfigurationError
from edge_rag.server.http.calls import HttpCalls, HttpRoute
from edge_rag.server.http.exchange import JSON, HttpLimits
from edge_rag.server.http.routes import ROUTES
from edge_rag.server.limits.connections import Connections
from edge_rag.server.listeners import CertificateFiles, HttpListener, ServedCertificate, TlsOptions
from edge_rag.service.call import CallContext

HEAD_S: Final = 10.0
"""How long the head of a request, or the first one of a connection, may take to arrive, seconds."""

KEEP_ALIVE_S: Final = 75.0
"""How long a connection may be idle between two requests, seconds."""

_HANDSHAKE_S: Final = 10.0
"""How long a TLS handshake may take, seconds."""

_BACKLOG: Final = 512
"""Connections that the kernel holds until they are accepted."""

log = structlog.get_logger()


class HttpConnection(H11Protocol):
    """A connection, with a bound on the time that the head of a request takes.

    Uvicorn bounds only the time between two requests, and each byte of a request resets it.
    """

    app_state: dict[str, Any]
    _head_timer: asyncio.TimerHandle | None = None
    certificate_names: tuple[str, ...] = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the connection."""
        super().connection_made(cast(asyncio.Transport, transport))
        certificate: Any = transport.get_extra_info("peercert") or {}
        subject = [part for parts in certificate.get("subject", ()) for part in parts]
        self.certificate_names = tuple(value for name, value in subject if name == "commonName")
        self.app_state = {**self.app_state, "connection": self}
        self._head_timer = self.loop.call_later(HEAD_S, self.abort)

    def data_received(self, data: bytes) -> None:
        """Takes bytes of requests."""
        if self._head_timer is None and self.conn.their_state is h11.IDLE:
            self._head_timer = self.loop.call_later(HEAD_S, self.abort)
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the connection."""
        self._stop_head_timer()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        """Ends an idle connection, even if its client has not read the last response."""
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():
            self.abort()

    def abort(self) -> None:
        """Closes the connection at once, whatever the client has not read."""
        self.transport.abort()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class HttpServer:
    """Serves the routes.

    Args:
        listener: Listening address and its TLS.
        calls: The call context.
        requests: Limits and defaults of requests.
        limits: Bounds of requests and responses.
        connections: The connections of all transports.
    """

    def __init__(
        self,
        listener: HttpListener,
        calls: CallContext,
        requests: RequestLimits,
        limits: HttpLimits,
        connections: Connections,
    ) -> None:
        self._listener = listener
        self._connections = connections
        self._certificates = None if listener.tls is None else CertificateFiles(listener.tls)
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._calls = HttpCalls(calls, limits, requests, connections)
        routes: Sequence[BaseRoute] = [
            Route(route.path, _Application(route, self._calls), methods=[route.method]) for route in ROUTES
        ]
        router = Router(routes, redirect_slashes=False, default=_not_found)
        self._config = Config(
            cast(Any, router),
            http=HttpConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # errors of handlers are logged by the call context
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=limits.head_bytes,
            timeout_keep_alive=int(KEEP_ALIVE_S),
        )

    async def start(self) -> str:
        """Binds and starts; calls are refused until the daemon serves.

        Returns:
            Where it listens, for example ``http://127.0.0.1:7480``.

        Raises:
            ConfigurationError: The address cannot be bound, or the certificate is unusable.
        """
        host, _, port = self._listener.address.rpartition(":")
        tls = None if self._certificates is None else _server_context(self._certificates)
        self._config.load()
        loop = asyncio.get_running_loop()
        try:
            listening = _bind(host.strip("[]"), int(port))
            self._server = await loop.create_server(
                partial(HttpConnection, self._config, self._state, {}),
                sock=listening,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else _HANDSHAKE_S,
                backlog=_BACKLOG,
            )
        except OSError as error:
            raise ConfigurationError(
                f"http.address: {self._listener.address} cannot be bound: {error.strerror or error}"
            ) from error
        bound = listening.getsockname()[1]
        self._connections.add_ports([bound])
        return f"{'http' if tls is None else 'https'}://{host}:{bound}"

    async def stop(self, grace_s: float) -> None:
        """Ends all calls within the grace period, seconds. Idempotent."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            cast(HttpConnection, connection).shutdown()
        tasks = set(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self._state.connections):
            cast(HttpConnection, connection).abort()

    def reload(self, limits: RequestLimits, tls: TlsOptions | None) -> None:
        """Applies other limits to later requests, and other certificates to new connections.

        Args:
            limits: Limits and defaults of requests.
            tls: The TLS options; ignored unless the server was started with TLS.

        Raises:
            ConfigurationError: The certificates are unusable; nothing changes.
        """
        if tls is not None and self._certificates is not None:
            self._certificates.replace(tls.files)
        self._calls.requests = limits


class _Application:
    """A route as an ASGI application."""

    def __init__(self, route: HttpRoute, calls: HttpCalls) -> None:
        self._route = route
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._calls.serve(self._route, scope, receive, send)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers requests to paths that no route has."""
    error = {"message": "there is no such path", "type": "invalid_request_error", "param": None, "code": "not_found"}
    body = json.dumps({"error": error}).encode()
    headers = [
        (b"content-type", JSON.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _bind(host: str, port: int) -> socket.socket:
    name = "127.0.0.1" if host == "localhost" else host
    if ":" in name:
        return socket.create_server((name, port), family=socket.AF_INET6, dualstack_ipv6=name == "::")
    return socket.create_server((name, port))


def _server_context(certificates: CertificateFiles) -> ssl.SSLContext:
    """Returns a TLS context of which each handshake uses the present certificates.

    Raises:
        ConfigurationError: The certificates are unusable.
    """
    current = _context(certificates.first())

    def choose(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        nonlocal current
        changed = certificates.changed()
        if changed is not None:
            try:
                current = _context(changed)
            except ConfigurationError as error:
                log.warning("the new certificate is unusable; the old one stays in use", error=str(error))
        connection.context = current

    accepting = _context(certificates.first())
    accepting.sni_callback = cast(Any, choose)
    return accepting


def _context(served: ServedCertificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(served.files.certificate, served.files.key)
        if served.authority is not None:
            context.load_verify_locations(cadata=served.authority.decode("ascii"))
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ConfigurationError(f"tls: {served.files.certificate} cannot be used: {error}") from error
    return context
