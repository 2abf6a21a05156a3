"""The Model Context Protocol over HTTP: one endpoint, each tool an operation of its own.

A request is admitted before its body is read, as an operation for everyone who is identified. Its message says which
operation it wants; roles, quotas, audit log and metrics are then those of that operation. Nothing is kept between
requests but the calls that run, so that a notification of the older revisions can cancel them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

from edge_rag.core.address import document_url
from edge_rag.core.answer import AnswerEvent, PassagesFound
from edge_rag.core.documents.collection import CollectionInfo
from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.documents.filters import Filter
from edge_rag.core.limits.request_fields import parse_document_name
from edge_rag.core.passage import FoundPassage
from edge_rag.errors import InvalidRequest, UndecodableMessage
from edge_rag.server.http.calls import HttpRoute
from edge_rag.server.http.exchange import JSON, Exchange, error_object, event_line, http_status, id_header
from edge_rag.server.mcp import protocol
from edge_rag.server.mcp.box import AnswerPart, Hits, Passages, Question
from edge_rag.server.mcp.protocol import Cancellation, Ignored, ProtocolError, Reply, ToolCall
from edge_rag.service import collections, documents
from edge_rag.service.ask import ASK, SEARCH, ask, search
from edge_rag.service.call import Call, CallFailed, Operation
from edge_rag.service.codes import Code

MCP: Final = Operation("Mcp", None)
"""The operation of a request before its body is read, and of messages that call no tool."""

OPERATIONS: Final[Mapping[str, Operation]] = {
    "search": SEARCH,
    "fetch": documents.GET_DOCUMENT,
    "ask": ASK,
    "list_documents": documents.LIST_DOCUMENTS,
    "list_collections": collections.LIST_COLLECTIONS,
}
"""The operation of each tool."""

_SESSION: Final = "mcp-session-id"
_STATUS: Final[Mapping[int, int]] = {protocol.METHOD_NOT_FOUND: 404}
"""HTTP status of errors of the protocol in its present revision; 400 for all others. Requests of the older ones get 200
unless the message as such cannot be read."""

_Key = tuple[str, str, protocol.Token]


class McpEndpoint:
    """The endpoint. For one event loop."""

    def __init__(self) -> None:
        self._running: dict[_Key, Callable[[], None]] = {}

    def route(self) -> HttpRoute:
        return HttpRoute("POST", "/mcp", MCP, self._serve, _question, operation_of=_operation, failure=_failure)

    async def _serve(self, call: Call, exchange: Exchange) -> None:
        match exchange.parsed:
            case ToolCall() as wanted:
                await self._call_tool(call, exchange, wanted)
            case Reply() as reply:
                # The session has no state: its id only limits which calls a notification may cancel.
                session = {_SESSION: uuid.uuid4().hex} if reply.opens else {}
                await exchange.respond(200, _encoded(reply.response), JSON, id_header(call) | session)
            case Cancellation(request_id):
                session_id = exchange.headers.get(_SESSION)
                if session_id is not None and (end := self._running.get((call.identity.name, session_id, request_id))):
                    end()
                await exchange.respond(202, b"", JSON, id_header(call))
            case Ignored():
                await exchange.respond(202, b"", JSON, id_header(call))
            case ProtocolError(code=protocol.PARSE_ERROR):
                raise UndecodableMessage
            case ProtocolError() as error:
                raise InvalidRequest("message", error.message)

    async def _call_tool(self, call: Call, exchange: Exchange, wanted: ToolCall) -> None:
        streams = wanted.progress_token is not None and "text/event-stream" in exchange.headers.get("accept", "")

        async def report(amount: int, message: str) -> None:
            if not exchange.started:
                await exchange.start_events(call, lambda error: event_line(wanted.failure(error["message"])))
            await exchange.write(event_line(wanted.progress(amount, message)))

        with self._cancellable(call, exchange, wanted.request_id):
            value = await wanted.tool.call(_Daemon(call, exchange), wanted.arguments, report if streams else None)
        response = wanted.response(value, _encoded(value).decode())
        if exchange.started:
            await exchange.write(event_line(response))
            await exchange.finish()
        else:
            await exchange.respond_json(call, response)

    @contextmanager
    def _cancellable(self, call: Call, exchange: Exchange, request_id: protocol.Token) -> Iterator[None]:
        """Lets a notification of the same caller and session end the call, as if the client had gone."""
        session_id = exchange.headers.get(_SESSION)
        if session_id is None:
            yield
            return
        key = (call.identity.name, session_id, request_id)
        end = exchange.connection.abort
        self._running[key] = end
        try:
            yield
        finally:
            if self._running.get(key) == end:
                del self._running[key]


class _Daemon:
    """The daemon of a call, for tools (``Box``)."""

    def __init__(self, call: Call, exchange: Exchange) -> None:
        self._call = call
        self._requests = exchange.requests
        self._base_url = exchange.base_url

    def url(self, collection: str, document_id: str, start: int, end: int, page: int | None = None) -> str:
        return document_url(self._base_url, document_id, collection, start, end, page)

    async def search(self, collection: str, query: str, limit: int, condition: Filter | None) -> Hits:
        call = self._call
        wanted = call.asker(self._requests).search(query, collection, limit, condition=condition)
        found = await search(call, wanted)
        return Hits(tuple(map(FoundPassage.of, found.passages)), found.did_you_mean)

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[AnswerPart]]:
        call = self._call
        query = call.asker(self._requests).query(
            question.text,
            question.collection,
            mode=question.mode,
            max_sentences=question.max_sentences,
            passages=question.passages,
            condition=question.filter,
            turns=question.turns,
        )
        async with ask(call, query) as events:
            yield _parts(events)

    async def document(self, collection: str, document: str, start: int, end: int) -> tuple[DocumentInfo, str]:
        found = await documents.get(self._call, collection, parse_document_name("id", document), start, end)
        return found.info, found.text

    async def documents(self, collection: str, cursor: str, size: int) -> tuple[Sequence[DocumentInfo], str]:
        after = documents.parse_page_token(cursor, "cursor")
        found, last = await documents.list_page(self._call, collection, after, size)
        return found, documents.page_token(last)

    async def collections(self) -> Sequence[CollectionInfo]:
        return await collections.list_visible(self._call)


async def _parts(events: AsyncIterator[AnswerEvent]) -> AsyncIterator[AnswerPart]:
    async for event in events:
        if isinstance(event, PassagesFound):
            found = tuple(FoundPassage.of(ranked) for ranked in event.passages)
            yield Passages(found, event.evidence, event.model, event.standalone_question, event.did_you_mean)
        else:
            yield event


def _operation(exchange: Exchange) -> Operation:
    try:
        exchange.parsed = protocol.read(exchange.body, exchange.headers.items())
    except ProtocolError as error:
        exchange.parsed = error
    return OPERATIONS[exchange.parsed.tool.name] if isinstance(exchange.parsed, ToolCall) else MCP


def _question(body: bytes) -> str:
    with suppress(ProtocolError):
        match protocol.read(body):
            case ToolCall(arguments={"question": str() as question}):
                return question
    return ""


def _failure(exchange: Exchange, failed: CallFailed) -> tuple[int, dict[str, Any]]:
    match exchange.parsed:
        case ToolCall() as wanted if failed.code is Code.PERMISSION_DENIED:
            return 403, protocol.error_response(wanted.request_id, protocol.REFUSED, failed.message)
        case ToolCall() as wanted:
            return 200, wanted.failure(failed.message)
        case ProtocolError() as error if error.request_id is None or error.modern:
            return _STATUS.get(error.code, 400), error.response()
        case ProtocolError(code=protocol.UNSUPPORTED_VERSION) as error:
            return 400, error.response()
        case ProtocolError() as error:
            return 200, error.response()
        case _:
            response = protocol.error_response(None, protocol.REFUSED, failed.message, error_object(failed))
            return http_status(failed), response


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
