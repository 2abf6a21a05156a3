"""Endpoints: a request decoded by its type, one handler, and its result encoded by its type or sent as events."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, get_type_hints

from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.core.shapes.encoder import encode
from edge_rag.errors import InvalidRequest, Overloaded, SlowConsumer
from edge_rag.server.http.api.decode import decode_fields
from edge_rag.server.http.calls import HttpRoute
from edge_rag.server.http.credentials import BrowserSession
from edge_rag.server.http.exchange import JSON, Exchange, event_line, id_header
from edge_rag.server.http.fields import parse_json
from edge_rag.service.call import Call, Operation

EVENTS: Final = "text/event-stream"
PREFIX: Final = "/api/v1"

MAX_RESPONSE_BYTES: Final = 512 << 10
"""Most bytes of the elements of a response, but for one element that alone has more."""

_BODY_METHODS: Final = ("POST", "PUT", "PATCH")
_UNKNOWN_MEDIA_TYPES: Final = ("application/octet-stream", "application/x-www-form-urlencoded")
"""What clients send with documents whose type they do not know."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation of the API.

    The handler's signature is the interface: the type of its parameter ``request`` has the parameters of the path, and
    those of the query string or the fields of the body; its result type has the fields of the response. The first line
    of its docstring is the summary. An asynchronous generator makes a stream, of events or of bytes.

    Attributes:
        method: HTTP method.
        path: Path, with parameters as Starlette writes them.
        operation: What its callers want.
        handler: Called with the call, the request if it takes one, and what else it takes by name: ``limits`` of
            requests; the ``session`` of the browser; ``content``, the body as it arrives, and its ``media_type``, which
            is empty if it says nothing.
        events: Names of the events of a stream, by type; none if it is not one.
        event_id: Returns the id of an event, after which a client that was disconnected continues; None for none.
        whole: Makes one response of the request, the call and the events, for clients that do not ask for a stream;
            None for streams only.
        media_type: Media type of a stream of bytes.
        file_name: Name of the file that a stream of bytes is saved as; may have parameters of the path, in braces,
            whose legal values are names of files.
        question: Returns the question in a body; errors are answered in its language.
    """

    method: str
    path: str
    operation: Operation
    handler: Callable[..., Any]
    events: Mapping[type, str] = field(default_factory=dict)
    event_id: Callable[[Any], int | None] | None = None
    whole: Callable[[Any, Call, list[Any]], Any] | None = None
    media_type: str = JSON
    file_name: str = ""
    question: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters of the path."""
        return tuple(re.findall(r"\{(\w+)", self.path))

    @property
    def has_body(self) -> bool:
        """Whether the fields of a request are in its body."""
        return self.method in _BODY_METHODS and not self.takes_content

    @property
    def takes_content(self) -> bool:
        """Whether the body of a request is a document."""
        return "content" in self.hints

    @property
    def hints(self) -> dict[str, Any]:
        """Types of the handler's parameters and result."""
        return get_type_hints(self.handler, include_extras=True)

    def route(self) -> HttpRoute:
        """Returns the route that serves it."""
        question = _QuestionOf(self.question) if self.question else None
        return HttpRoute(self.method, self.path, self.operation, _Handler(self), question, self.takes_content)


@dataclass(frozen=True, slots=True)
class _QuestionOf:
    """Reads the question of a body; empty if it has none."""

    name: str

    def __call__(self, data: bytes) -> str:
        try:
            found = parse_json(data).get(self.name)
        except InvalidRequest:
            return ""
        return found if isinstance(found, str) else ""


class _Handler:
    """Serves an endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        hints = endpoint.hints
        self._endpoint = endpoint
        self._request: type | None = hints.get("request")
        self._takes_limits = hints.get("limits") is RequestLimits
        self._takes_session = hints.get("session") is BrowserSession
        self._takes_content = endpoint.takes_content
        self._streams = inspect.isasyncgenfunction(endpoint.handler)

    async def __call__(self, call: Call, exchange: Exchange) -> None:
        request = self._parsed(exchange)
        given: dict[str, Any] = {} if self._request is None else {"request": request}
        if self._takes_limits:
            given["limits"] = exchange.requests
        if self._takes_session:
            given["session"] = exchange.session
        if self._takes_content:
            async with aclosing(exchange.pieces(call.backend.document_bytes)) as content:
                given |= {"content": content, "media_type": _media_type(exchange)}
                await exchange.respond_json(call, encode(await self._endpoint.handler(call, **given)))
            return
        if not self._streams:
            await exchange.respond_json(call, encode(await self._endpoint.handler(call, **given)))
            return
        results: AsyncGenerator[Any, None] = self._endpoint.handler(call, **given)
        async with aclosing(results):
            if not self._endpoint.events:
                await self._send_bytes(results, call, exchange)
            elif self._endpoint.whole is None or _wants_events(request, exchange):
                await self._send_events(results, call, exchange)
            else:
                taken = [event async for event in results]
                await exchange.respond_json(call, encode(self._endpoint.whole(request, call, taken)))

    def _parsed(self, exchange: Exchange) -> Any:
        """Returns the request.

        Raises:
            InvalidRequest: Names the first unusable parameter or field.
        """
        names = self._endpoint.parameters
        given = _query(exchange)
        body: dict[str, Any] = {}
        if self._endpoint.has_body:
            if given:
                raise InvalidRequest(next(iter(given))[:256], "belongs into the body")
            body = parse_json(exchange.body) if exchange.body else {}
            given = body
        for name in names:
            if name in given:
                raise InvalidRequest(name, "is given by the path")
        if self._request is None:
            for name in given:
                raise InvalidRequest(name[:256], "is not supported; leave it out")
            return None
        if self._endpoint.event_id is not None and (last := exchange.headers.get("last-event-id")):
            given["after"] = last
        path = {name: exchange.path[name] for name in names}
        if not self._endpoint.has_body:
            return self._request(**decode_fields(self._request, {**given, **path}, "", text=True))
        # Parameters of a path are texts whose checks do not depend on where they come from.
        return self._request(**decode_fields(self._request, {**path, **given}, ""))

    async def _send_events(self, events: AsyncGenerator[Any, None], call: Call, exchange: Exchange) -> None:
        async for event in events:
            if not exchange.started:
                await exchange.start_events(call, _failure)
            data = self._event(event)
            try:
                assert exchange.memory is not None, "the request was read"
                async with exchange.memory.sending(len(data)):
                    await exchange.write_all(data)
            except (SlowConsumer, Overloaded) as error:
                await events.athrow(error)
        if not exchange.started:
            await exchange.start_events(call, _failure)
        await exchange.finish()

    def _event(self, event: Any) -> bytes:
        endpoint = self._endpoint
        number = None if endpoint.event_id is None else endpoint.event_id(event)
        identified = b"" if number is None else f"id: {number}\n".encode()
        return identified + event_line(encode(event), endpoint.events[type(event)])

    async def _send_bytes(self, chunks: AsyncGenerator[bytes, None], call: Call, exchange: Exchange) -> None:
        name = self._endpoint.file_name.format_map(exchange.path)
        named = {"content-disposition": f'attachment; filename="{name}"'}
        async for chunk in chunks:
            if not exchange.started:
                await exchange.start(200, self._endpoint.media_type, {**id_header(call), **named})
            await exchange.write_all(chunk)
        await exchange.finish()


def _media_type(exchange: Exchange) -> str:
    named = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
    return "" if named in _UNKNOWN_MEDIA_TYPES else named


def _query(exchange: Exchange) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in exchange.query.multi_items():
        if name in given:
            raise InvalidRequest(name[:256], "is given twice")
        given[name] = value
    return given


def _wants_events(request: Any, exchange: Exchange) -> bool:
    return bool(getattr(request, "stream", False)) or EVENTS in exchange.headers.get("accept", "")


def _failure(error: Mapping[str, Any]) -> bytes:
    return event_line({"error": error}, "error")


def fitting(elements: Iterable[_T]) -> tuple[_T, ...]:
    """Returns the first elements that fit a response together, and at least one if there is any."""
    taken: list[_T] = []
    left = MAX_RESPONSE_BYTES
    for element in elements:
        left -= size_of(element)
        if taken and left < 0:
            break
        taken.append(element)
    return tuple(taken)


def size_of(element: Any) -> int:
    """Returns the bytes of a value as JSON."""
    return len(json.dumps(encode(element), ensure_ascii=False).encode()) + 2
