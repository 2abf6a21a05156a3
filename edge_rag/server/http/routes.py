"""The routes: which operation each one is, and how its request and response look."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from edge_rag.core.documents.collection import CollectionInfo
from edge_rag.core.limits.request_fields import RequestLimits, parse_collection, parse_document_name
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.calls import JSON, Endpoint, Exchange, event_line
from edge_rag.server.http.chat import MODEL_PREFIX, ChatWriter, collection_of, parse_chat, parse_json, question_of
from edge_rag.service import collections, documents
from edge_rag.service.ask import ASK, ask
from edge_rag.service.call import Call, Operation

_TEXT: Final = "text/plain; charset=utf-8"
_EVENTS: Final = "text/event-stream; charset=utf-8"
_DONE: Final = b"data: [DONE]\n\n"
_MAX_POSITION: Final = 1 << 53


class Handlers:
    """Answers requests.

    Args:
        limits: Limits and defaults of requests.
    """

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits

    async def list_models(self, call: Call, exchange: Exchange) -> None:
        """Lists the collections that exist for the caller, as models."""
        found = await collections.list_visible(call)
        await _respond(call, exchange, {"object": "list", "data": [_model(info) for info in found]})

    async def get_model(self, call: Call, exchange: Exchange) -> None:
        """Returns a collection as a model."""
        await _respond(call, exchange, _model(await collections.get(call, collection_of(exchange.path["model"]))))

    async def chat(self, call: Call, exchange: Exchange) -> None:
        """Answers a question, whole or as a stream that begins with the first event of the answer."""
        body = parse_json(exchange.body)
        request = parse_chat(body, call.request_id, call.identity, call.deadline, self.limits)
        writer = ChatWriter(request, int(time.time()), exchange.base_url)
        async with ask(call, request.query) as events:
            async for event in events:
                if not request.stream:
                    writer.take(event)
                    continue
                if not exchange.started:
                    await exchange.start(200, _EVENTS, _headers(call))
                for chunk in writer.chunks(event):
                    await exchange.write(event_line(chunk))
            if request.stream:
                await exchange.write(_DONE)
                await exchange.finish()
        if not request.stream:
            await _respond(call, exchange, writer.completion())

    async def get_document(self, call: Call, exchange: Exchange) -> None:
        """Returns a range of a document's text: JSON if the client accepts it by name, else plain text."""
        name = parse_document_name("document", exchange.path["document"])
        collection = parse_collection(exchange.query.get("collection", ""))
        start, end = _position(exchange, "start"), _position(exchange, "end")
        found = await documents.get(call, collection, name, start, end)
        info, first = found.info, found.end - len(found.text)
        if JSON in exchange.headers.get("accept", ""):
            described = {
                "id": info.document_id,
                "object": "document",
                "collection": info.collection,
                "name": info.name,
                "title": info.title,
                "media_type": info.media_type,
                "pages": info.pages,
                "characters": info.characters,
                "start": first,
                "end": found.end,
                "text": found.text,
            }
            await _respond(call, exchange, described)
            return
        place = {"edge-rag-range": f"{first}-{found.end}/{info.characters}"}
        await exchange.respond(200, found.text.encode(), _TEXT, {**_headers(call), **place})


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """A route.

    Attributes:
        method: HTTP method.
        path: Path, with parameters as Starlette writes them.
        operation: The operation that it is.
        handler: Answers its requests.
        question: Returns the question in a body; None if there are none.
    """

    method: str
    path: str
    operation: Operation
    handler: Callable[[Handlers, Call, Exchange], Awaitable[None]]
    question: Callable[[bytes], str] | None = None

    def endpoint(self, handlers: Handlers) -> Endpoint:
        """Returns what the route does."""
        return Endpoint(self.operation, partial(self.handler, handlers), self.question)


ROUTES: Final = (
    HttpRoute("GET", "/v1/models", collections.LIST_COLLECTIONS, Handlers.list_models),
    HttpRoute("GET", "/v1/models/{model:path}", collections.GET_COLLECTION, Handlers.get_model),
    HttpRoute("POST", "/v1/chat/completions", ASK, Handlers.chat, question_of),
    HttpRoute("GET", "/documents/{document:path}", documents.GET_DOCUMENT, Handlers.get_document),
)


def _model(info: CollectionInfo) -> dict[str, Any]:
    created = 0 if info.created_at is None else int(info.created_at.timestamp())
    return {"id": f"{MODEL_PREFIX}{info.name}", "object": "model", "created": created, "owned_by": "edge-rag"}


def _position(exchange: Exchange, name: str) -> int | None:
    text = exchange.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_POSITION)) and int(text) <= _MAX_POSITION):
        raise InvalidRequest(name, "must be a position in the text, characters from its beginning")
    return int(text)


async def _respond(call: Call, exchange: Exchange, value: dict[str, Any]) -> None:
    await exchange.respond(200, json.dumps(value, ensure_ascii=False).encode(), JSON, _headers(call))


def _headers(call: Call) -> dict[str, str]:
    return {"x-request-id": call.request_id}
