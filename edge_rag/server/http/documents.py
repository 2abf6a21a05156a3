"""Documents, where citations lead: ranges of their text, their originals, and pages with the places of a range."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote, urlencode

from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.limits.request_fields import parse_collection, parse_document_name
from edge_rag.core.shapes.encoder import encode
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.exchange import JSON, Exchange, id_header
from edge_rag.service import documents, pages
from edge_rag.service.call import Call

_TEXT: Final = "text/plain; charset=utf-8"
_PNG: Final = "image/png"
_DOWNLOAD: Final = "application/octet-stream"
"""Media type of originals, so that no browser shows what somebody has sent as a page of the box."""

_MAX_POSITION: Final = 1 << 53
_PIECE_BYTES: Final = 256 << 10
"""Bytes of an original that are in memory at once."""

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}


async def get_document(call: Call, exchange: Exchange) -> None:
    """Returns a range of a document's text: JSON if the client accepts it by name, with parts on demand; else text."""
    name, collection = _document(exchange)
    start, end = _number(exchange, "start"), _number(exchange, "end")
    _number(exchange, "page")
    wants_json, wants_parts = JSON in exchange.headers.get("accept", ""), _flag(exchange, "parts", False)
    if wants_parts:
        if not wants_json:
            raise InvalidRequest("parts", "are JSON: send the header Accept: application/json")
        if start is None or end is None:
            raise InvalidRequest("start" if start is None else "end", "is missing: parts are those of a range")
        in_parts = await documents.get_parts(call, collection, name, start, end)
        described = await _described(call, exchange, in_parts.info, start, min(end, in_parts.info.characters))
        whole = {"start": in_parts.start, "end": in_parts.end, "text": in_parts.text, "parts": encode(in_parts.parts)}
        await exchange.respond_json(call, {**described, **whole})
        return
    found = await documents.get(call, collection, name, start, end)
    info, first = found.info, found.end - len(found.text)
    if wants_json:
        described = await _described(call, exchange, info, first, found.end)
        await exchange.respond_json(call, {**described, "start": first, "end": found.end, "text": found.text})
        return
    position = {"edge-rag-range": f"{first}-{found.end}/{info.characters}"}
    await exchange.respond(200, found.text.encode(), _TEXT, {**id_header(call), **position})


async def _described(call: Call, exchange: Exchange, info: DocumentInfo, start: int, end: int) -> dict[str, Any]:
    """Returns the description of a document and of the place of a range of its text."""
    place = await documents.place(call, info.collection, info.document_id, start)
    where, base_url = {"collection": info.collection}, exchange.base_url
    page_url = None
    if info.original and place.page is not None:
        page_url = _url(base_url, info.document_id, f"/pages/{place.page}", {**where, "start": start, "end": end})
    return {
        "id": info.document_id,
        "object": "document",
        "collection": info.collection,
        "name": info.name,
        "title": info.title,
        "media_type": info.media_type,
        "pages": info.pages,
        "characters": info.characters,
        "start": start,
        "end": end,
        "text": "",
        "page": place.page,
        "line": place.line,
        "section": place.headings[-1] if place.headings else None,
        "headings": list(place.headings),
        "original_url": _url(base_url, info.document_id, "/original", where) if info.original else None,
        "page_url": page_url,
    }


async def get_original(call: Call, exchange: Exchange) -> None:
    """Returns the bytes of a document as they were ingested, or a range of them."""
    name, collection = _document(exchange)
    info, original = await pages.open_original(call, collection, name)
    with closing(original):
        wanted = _byte_range(exchange.headers.get("range"), original.size_bytes)
        headers = {
            "accept-ranges": "bytes",
            "content-disposition": f"attachment; filename*=UTF-8''{quote(info.name.rpartition('/')[2], safe='')}",
            **id_header(call),
        }
        if wanted is None:
            headers["content-range"] = f"bytes */{original.size_bytes}"
            await exchange.respond(416, b"", _DOWNLOAD, headers)
            return
        start, end = wanted
        whole = end - start == original.size_bytes
        if not whole:
            headers["content-range"] = f"bytes {start}-{end - 1}/{original.size_bytes}"
        headers["content-length"] = str(end - start)
        await exchange.start(200 if whole else 206, _DOWNLOAD, headers)
        for position in range(start, end, _PIECE_BYTES):
            await exchange.write_all(
                await pages.read_original(call, original, position, min(_PIECE_BYTES, end - position))
            )
        await exchange.finish()


async def get_page(call: Call, exchange: Exchange) -> None:
    """Returns a picture of a page, with a range of the text marked on it if one is given."""
    name, collection = _document(exchange)
    page, width = _page(exchange), _number(exchange, "width")
    start, end = _number(exchange, "start"), _number(exchange, "end")
    if (start is None) != (end is None):
        raise InvalidRequest("start" if start is None else "end", "is missing: a range has both")
    marked = None if start is None or end is None or not _flag(exchange, "marked", True) else (start, end)
    found = await pages.picture(call, collection, name, page, width, marked)
    await exchange.respond(200, found.png, _PNG, {**id_header(call), "content-security-policy": "default-src 'none'"})


async def get_page_boxes(call: Call, exchange: Exchange) -> None:
    """Returns where a range of the text is on a page."""
    name, collection = _document(exchange)
    page, start, end = _page(exchange), _number(exchange, "start"), _number(exchange, "end")
    if start is None or end is None:
        raise InvalidRequest("start" if start is None else "end", "is missing")
    found = await pages.boxes(call, collection, name, page, start, end)
    info = found.info
    marked = {"collection": info.collection, "start": start, "end": end}
    described: dict[str, Any] = {
        "id": info.document_id,
        "object": "document.page",
        "collection": info.collection,
        "name": info.name,
        "page": found.page,
        "pages": info.pages,
        "width": found.width,
        "height": found.height,
        "start": start,
        "end": end,
        "boxes": [dict(zip(("left", "top", "right", "bottom"), box, strict=True)) for box in found.boxes],
        "continues": found.continues,
        "image_url": _url(exchange.base_url, info.document_id, f"/pages/{found.page}", marked),
    }
    await exchange.respond_json(call, described)


def _url(base_url: str, document_id: str, path: str, query: dict[str, Any]) -> str:
    return f"{base_url}/documents/{quote(document_id, safe='')}{path}?{urlencode(query)}"


def _document(exchange: Exchange) -> tuple[str, str]:
    name = parse_document_name("document", exchange.path["document"])
    return name, parse_collection(exchange.query.get("collection", ""))


def _page(exchange: Exchange) -> int:
    text = exchange.path["page"]
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_POSITION))):
        raise InvalidRequest("page", "must be the number of a page, from 1 on")
    return int(text)


def _number(exchange: Exchange, name: str) -> int | None:
    text = exchange.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_POSITION)) and int(text) <= _MAX_POSITION):
        what = "a position in the text, characters from its beginning" if name in ("start", "end") else "a whole number"
        raise InvalidRequest(name, f"must be {what}")
    return int(text)


def _flag(exchange: Exchange, name: str, default: bool) -> bool:
    text = exchange.query.get(name)
    if text is None:
        return default
    if text not in _FLAGS:
        raise InvalidRequest(name, "must be true or false")
    return _FLAGS[text]


def _byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Returns the bytes that a header ``Range`` asks for, as start and end; None if there are none of them.

    Anything but a single range of bytes is ignored, as RFC 9110 allows.
    """
    found = _RANGE.fullmatch((header or "").strip())
    if found is None or found[0] == "bytes=-":
        return 0, size
    first, last = found.groups()
    if not first:
        return (max(0, size - int(last)), size) if int(last) and size else None
    start, end = int(first), size if not last else min(size, int(last) + 1)
    if last and int(last) < start:
        return 0, size
    return (start, end) if start < size else None
