"""Ranges of documents, where citations lead."""

from __future__ import annotations

from typing import Final

from edge_rag.core.address import document_url as document_url
from edge_rag.core.limits.request_fields import parse_collection, parse_document_name
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.exchange import JSON, Exchange, id_header
from edge_rag.service import documents
from edge_rag.service.call import Call

_TEXT: Final = "text/plain; charset=utf-8"
_MAX_POSITION: Final = 1 << 53


async def get_document(call: Call, exchange: Exchange) -> None:
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
        await exchange.respond_json(call, described)
        return
    place = {"edge-rag-range": f"{first}-{found.end}/{info.characters}"}
    await exchange.respond(200, found.text.encode(), _TEXT, {**id_header(call), **place})


def _position(exchange: Exchange, name: str) -> int | None:
    text = exchange.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_POSITION)) and int(text) <= _MAX_POSITION):
        raise InvalidRequest(name, "must be a position in the text, characters from its beginning")
    return int(text)
