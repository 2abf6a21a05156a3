"""The HTTP server: listening address, TLS, connections and routes. It runs in the event loop of the gRPC server.

Uvicorn's protocol speaks HTTP/1.1 (h11 parses it) and Starlette routes; both are used as libraries, without Uvicorn's
own main loop, signals and logging, because the daemon has its own.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, cast

import structlog
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from edge_rag.core.address import HTTP, name_of_peer
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.errors import ConfigurationError
from edge_rag.server.http.calls import AnyRoute, HttpCalls
from edge_rag.server.http.connection import KEEP_ALIVE_S, HttpConnection, error_body
from edge_rag.server.http.console import Console, ConsoleRoute
from edge_rag.server.http.exchange import JSON, HttpLimits
from edge_rag.server.http.routes import ROUTES
from edge_rag.server.limits.connections import Connections
from edge_rag.server.listeners import CertificateFiles, HttpListener, ServedCertificate, TlsOptions
from edge_rag.service.call import CallContext

_HANDSHAKE_S: Final = 10.0
"""How long a TLS handshake may take, seconds."""

_SHUTDOWN_S: Final = 2.0
"""How long a client may take to confirm the end of a TLS connection, seconds."""

_TLS_READ_BYTES: Final = 16 << 10
"""Encrypted bytes that a connection takes at once. asyncio's own 256 KiB are in memory as long as the connection is."""

_BACKLOG: Final = 512
"""Connections that the kernel holds until they are accepted."""

_ACCEPTED_AT_ONCE: Final = 8
"""Connections accepted in one turn of the event loop, which may wait for other threads in each."""

_NO_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NO_FILES_S: Final = 0.1
"""Interval of trying to accept while the process can open no more files, seconds."""

log = structlog.get_logger()


class HttpServer:
    """Serves the routes.

    Args:
        most_connections: Connections accepted at once; for the last one, the oldest without an authenticated call is
            closed.
        console: The console; None if it is not served.
    """

    def __init__(
        self,
        listener: HttpListener,
        calls: CallContext,
        requests: RequestLimits,
        limits: HttpLimits,
        connections: Connections,
        most_connections: int,
        console: Console | None = None,
    ) -> None:
        self._listener = listener
        self._connections = connections
        self._head_bytes = limits.head_bytes
        self._room = asyncio.Semaphore(most_connections)
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._opened: dict[HttpConnection, asyncio.Task[None]] = {}
        self._certificates = None if listener.tls is None else CertificateFiles(listener.tls)
        self._state = ServerState()
        self._calls = HttpCalls(calls, limits, requests, connections, console)
        served = [route for route in ROUTES if console is not None or not isinstance(route, ConsoleRoute)]
        routes: Sequence[BaseRoute] = [_Route(route, self._calls) for route in served]
        router = Router(routes, redirect_slashes=False, default=_NotFound(self._calls))
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
            timeout_keep_alive=int(KEEP_ALIVE_S),
        )

    async def start(self) -> str:
        """Binds and starts; calls are refused until the daemon serves.

        Returns:
            Where it listens, for example ``http://127.0.0.1:7480``.
        """
        host, _, port = self._listener.address.rpartition(":")
        tls = None if self._certificates is None else _server_context(self._certificates)
        self._config.load()
        try:
            self._listening = _bind(host.strip("[]"), int(port))
        except OSError as error:
            raise ConfigurationError(
                f"http.address: {self._listener.address} cannot be bound: {error.strerror or error}"
            ) from error
        bound = self._listening.getsockname()[1]
        self._connections.add_ports([bound], HTTP)
        self._accepting = asyncio.create_task(self._accept(self._listening, tls), name="http")
        return f"{'http' if tls is None else 'https'}://{host}:{bound}"

    async def _accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accepts connections, a few in each turn of the event loop: however many come, calls go on."""
        loop = asyncio.get_running_loop()
        for number in itertools.count():
            await self._room.acquire()
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:
                self._room.release()
                await asyncio.sleep(_NO_FILES_S if error.errno in _NO_FILES else 0)
                continue
            connection = HttpConnection(
                self._config, self._state, self._head_bytes, name_of_peer(peer[:2]), self._closed
            )
            if self._room.locked():
                await asyncio.sleep(0)  # connections accepted before have begun, and can be closed
                self._make_room()
            self._opened[connection] = asyncio.create_task(self._open(connection, accepted, tls))
            if number % _ACCEPTED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _make_room(self) -> None:
        """Closes the oldest connection without an authenticated call, so that a newcomer need not wait for its end."""
        for connection, opening in self._opened.items():
            if not self._connections.is_identified(connection.peer, HTTP):
                if connection.opened:
                    connection.abort()
                else:
                    opening.cancel()
                return

    async def _open(self, connection: HttpConnection, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Serves a connection, over TLS once its handshake is done."""
        loop = asyncio.get_running_loop()
        seconds = None if tls is None else _HANDSHAKE_S
        ending = None if tls is None else _SHUTDOWN_S
        try:
            with suppress(OSError):  # the handshake failed, or took too long
                await loop.connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=tls,
                    ssl_handshake_timeout=seconds,
                    ssl_shutdown_timeout=ending,
                )
        finally:
            if not connection.opened:
                self._closed(connection)

    def _closed(self, connection: HttpConnection) -> None:
        self._opened.pop(connection, None)
        self._room.release()

    async def stop(self, grace_s: float) -> None:
        """Ends all calls within the grace period, seconds. Idempotent."""
        if self._listening is None or self._accepting is None:
            return
        opening = [task for task in self._opened.values() if not task.done()]
        for task in (self._accepting, *opening):
            task.cancel()
        await asyncio.gather(self._accepting, *opening, return_exceptions=True)
        self._listening.close()
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
            tls: The TLS options; ignored unless the server was started with TLS.
        """
        if tls is not None and self._certificates is not None:
            self._certificates.replace(tls.files)
        self._calls.requests = limits


class _Application:
    """A route as an ASGI application."""

    def __init__(self, route: AnyRoute, calls: HttpCalls) -> None:
        self._route = route
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._calls.serve(self._route, scope, receive, send)


class _Route(Route):
    """A route that refuses other methods in the shape of failed calls."""

    def __init__(self, route: AnyRoute, calls: HttpCalls) -> None:
        super().__init__(route.path, _Application(route, calls), methods=[route.method])
        self._calls = calls

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        allowed = self.methods or set()
        if scope["method"] in allowed:
            await self.app(scope, receive, send)
        else:
            headers = [(b"allow", ", ".join(sorted(allowed)).encode())]
            await _refuse(self._calls, scope, send, 405, "the path has no such method", "method_not_allowed", headers)


class _NotFound:
    """Refuses requests to paths that no route has."""

    def __init__(self, calls: HttpCalls) -> None:
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _refuse(self._calls, scope, send, 404, "there is no such path", "not_found", [])


async def _refuse(
    calls: HttpCalls,
    scope: Scope,
    send: Send,
    status: int,
    message: str,
    code: str,
    headers: list[tuple[bytes, bytes]],
) -> None:
    if scope["client"] is not None:
        await calls.delay(name_of_peer(scope["client"][:2]))
    body = error_body(message, code)
    described = [(b"content-type", JSON.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*described, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _bind(host: str, port: int) -> socket.socket:
    name = "127.0.0.1" if host == "localhost" else host
    if ":" in name:
        made = socket.create_server((name, port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=name == "::")
    else:
        made = socket.create_server((name, port), backlog=_BACKLOG)
    # asyncio sets it for sockets that name their protocol only. Without it the kernel holds an event of a stream until
    # the client acknowledges the one before, which takes it 40 ms. Accepted sockets inherit it.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setblocking(False)
    return made


def _server_context(certificates: CertificateFiles) -> ssl.SSLContext:
    """Returns a TLS context that uses the present certificates in each handshake."""
    SSLProtocol.max_size = _TLS_READ_BYTES
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
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(served.files.certificate, served.files.key)
        if served.authority is not None:
            context.load_verify_locations(cadata=served.authority.decode("ascii"))
            context.verify_mode = ssl.CERT_REQUIRED
            # A resumed session has the client's certificate without its signature being verified again.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ConfigurationError(f"tls: {served.files.certificate} cannot be used: {error}") from error
    return context
