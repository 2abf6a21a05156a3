"""Calls over HTTP: admission before the request is read, and what ends with the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from starlette.types import Receive, Scope, Send

from edge_rag.core.address import HTTP
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.errors import CallTimeout, EdgeRagError, InvalidRequest, PermissionDenied, SlowConsumer
from edge_rag.server.http.console import Console, ConsoleRoute
from edge_rag.server.http.exchange import ClientGone, Exchange, HttpLimits, openai_failure
from edge_rag.server.http.probes import HttpProbe
from edge_rag.server.limits.call_memory import CallMemory
from edge_rag.server.limits.connections import CANCEL_DELAY_S, REFUSAL_DELAY_S, Connections
from edge_rag.service.authentication import Credentials
from edge_rag.service.call import (
    IDENTIFIED_REFUSALS,
    STAGES_FIRST_S,
    Call,
    CallContext,
    CallFailed,
    CallRequest,
    Operation,
)
from edge_rag.service.codes import Code


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """A route.

    Attributes:
        method: HTTP method.
        path: Path, with parameters as Starlette writes them.
        operation: What its callers want.
        handler: Answers a request.
        question: Returns the question in a body; errors are answered in its language. None if the call has none.
        streams: Whether the handler reads the body itself, by ``Exchange.pieces``.
        operation_of: Returns the operation that a request wants once its body is read, and keeps what it made of the
            body in ``Exchange.parsed``; None if that is always ``operation``, which callers are admitted for.
        failure: Returns the status and the body of a failure.
    """

    method: str
    path: str
    operation: Operation
    handler: Callable[[Call, Exchange], Awaitable[None]]
    question: Callable[[bytes], str] | None = None
    streams: bool = False
    operation_of: Callable[[Exchange], Operation] | None = None
    failure: Callable[[Exchange, CallFailed], tuple[int, dict[str, Any]]] = openai_failure


AnyRoute = HttpRoute | HttpProbe | ConsoleRoute


class HttpCalls:
    """Serves calls over HTTP by the call context that all transports share.

    Args:
        console: The console; None if it is not served.
    """

    def __init__(
        self,
        calls: CallContext,
        limits: HttpLimits,
        requests: RequestLimits,
        connections: Connections,
        console: Console | None = None,
    ) -> None:
        self.requests = requests
        self._calls = calls
        self._limits = limits
        self._connections = connections
        self._console = console

    async def serve(self, route: AnyRoute, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request."""
        if scope["client"] is None:  # it closed the connection before its request was looked at
            return
        exchange = Exchange(scope, receive, send, self._limits, self.requests)
        credentials = exchange.credentials()
        try:
            if self._connections.is_cancelling(credentials.peer):
                await asyncio.sleep(CANCEL_DELAY_S)
            try:
                await self._serve(route, exchange, credentials)
            except CallFailed as failed:
                failure = route.failure if isinstance(route, HttpRoute) else openai_failure
                await exchange.fail(failed, *failure(exchange, failed))
        except ClientGone:
            self._connections.call_cancelled(credentials.peer, HTTP)
        except SlowConsumer:
            exchange.connection.abort()

    async def delay(self, peer: str) -> None:
        """Counts a request without identity, and waits before it is refused if its network makes many."""
        if self._connections.call_refused(peer):
            await asyncio.sleep(REFUSAL_DELAY_S)

    async def _serve(self, route: AnyRoute, exchange: Exchange, known: Credentials) -> None:
        operation = route.operation
        try:
            exchange.check_head()
        except (PermissionDenied, InvalidRequest) as refusal:
            await self.delay(known.peer)
            raise self._calls.refused(operation, known.address, exchange.request_id, refusal) from None
        if isinstance(route, ConsoleRoute):
            await self._show(operation, exchange, known)
            return
        try:
            admission = self._calls.admit(operation, known, exchange.request_id, exchange.connection.abort)
        except CallFailed as refusal:
            if refusal.code is Code.UNAUTHENTICATED:
                exchange.token_refused()
            if refusal.code in IDENTIFIED_REFUSALS and not operation.anonymous:
                self._connections.identified(known.peer, HTTP)
            else:
                await self.delay(known.peer)
            raise
        streams = isinstance(route, HttpRoute) and route.streams
        memory = CallMemory(self._calls.messages, admission.account, streams)
        try:
            if admission.identity is not None:
                self._connections.identified(known.peer, HTTP)
            request = CallRequest(known, exchange.request_id, None, tuple(exchange.headers.items()), admission.identity)
            await self._run(route, exchange, request, memory, admission.keep)
        finally:
            memory.close()
            admission.release()

    async def _show(self, operation: Operation, exchange: Exchange, known: Credentials) -> None:
        """Answers with a part of the console, which is in memory.

        It takes no slot: thirty phones behind one address load it at once, over six connections each, and sign in only
        then. What bounds them is the number of connections, each of which has one request at a time.
        """
        if self._calls.admit_without_slot(operation, known) is not None:
            self._connections.identified(known.peer, HTTP)
        elif self._connections.page_requested(known.peer):
            await asyncio.sleep(REFUSAL_DELAY_S)
        assert self._console is not None, "without the console there are no such routes"
        await self._console.answer(exchange)

    async def _run(
        self,
        route: HttpRoute | HttpProbe,
        exchange: Exchange,
        request: CallRequest,
        memory: CallMemory,
        keep: Callable[[], None],
    ) -> None:
        operation = route.operation
        seconds = self._calls.timeouts.seconds(operation.long, None)
        client = request.credentials.address if request.identity is None else request.identity.name
        try:
            async with asyncio.timeout(seconds + STAGES_FIRST_S):
                if isinstance(route, HttpProbe):
                    await exchange.read(memory)
                    await route.answer(self._calls.lifecycle.state, exchange)
                    return
                await (exchange.begin_stream(memory) if route.streams else exchange.read(memory))
                keep()
                if route.operation_of is not None:
                    operation = route.operation_of(exchange)
                    request = replace(request, identity=None)  # the caller is admitted for another operation
                if route.question is not None:
                    request = replace(request, question=route.question(exchange.body))
                async with _ending_with_client(exchange):
                    with self._calls.handle(operation, request) as call:
                        await route.handler(call, exchange)
        except TimeoutError:
            error: EdgeRagError = CallTimeout(f"the call took longer than {seconds:g} s")
            raise self._calls.refused(operation, client, exchange.request_id, error) from None
        except SlowConsumer:
            raise
        except EdgeRagError as refusal:  # before the call was handled
            raise self._calls.refused(operation, client, exchange.request_id, refusal) from None


class _ending_with_client:  # noqa: N801 - a context manager, used like a function
    """Cancels the block when the client closes the connection, which ends it with ClientGone."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._gone = False

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._watch = asyncio.create_task(self._until_gone())

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._watch.cancel()
        if self._gone and kind is asyncio.CancelledError and self._task is not None and self._task.uncancel() == 0:
            raise ClientGone from None

    async def _until_gone(self) -> None:
        await self._exchange.until_gone()
        if self._exchange.finished:
            return
        self._gone = True
        if self._task is not None:
            self._task.cancel()
