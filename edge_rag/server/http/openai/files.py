"""Files in the shape of OpenAI's API; a document that came another way is a file whose id is the document's id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Any, Final
from urllib.parse import quote

from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.documents.files import KEPT_S, StoredFile
from edge_rag.core.limits.request_fields import parse_document_name
from edge_rag.errors import EdgeRagError, InvalidRequest
from edge_rag.server.http.exchange import Exchange, id_header
from edge_rag.server.http.multipart import MAX_FRAME_BYTES, MultipartForm
from edge_rag.server.http.openai.pages import page_object, parse_page, read_page
from edge_rag.service import files
from edge_rag.service.call import Call
from edge_rag.storage.uploads.files import IncomingFile

PURPOSES: Final = ("assistants", "user_data")
"""Legal purposes of a file; both mean the same here."""

_ANCHOR: Final = "expires_after[anchor]"
_SECONDS: Final = "expires_after[seconds]"
_LEAST_S, _MOST_S = 3600, 30 * 24 * 3600
_FIELDS: Final = ("purpose", _ANCHOR, _SECONDS)
_PAGE: Final = 100
_DOWNLOAD: Final = "application/octet-stream"
"""Media type of all downloads, so that no browser shows what somebody has sent as a page of the box."""


async def create_file(call: Call, exchange: Exchange) -> None:
    """Stores the file of a form."""
    most = call.backend.document_bytes + MAX_FRAME_BYTES
    form = MultipartForm(exchange.headers.get("content-type", ""), exchange.pieces(most))
    fields: dict[str, str] = {}
    incoming: IncomingFile | None = None
    try:
        async with aclosing(form.parts()) as parts:
            async for part in parts:
                if part.name in fields or (part.name == "file" and incoming is not None):
                    raise InvalidRequest(part.name, "is there twice")
                if part.name == "file":
                    name = parse_document_name("file", part.file_name or "")
                    incoming = await files.receive(call, name, part.media_type, form.content())
                elif part.name in _FIELDS:
                    fields[part.name] = await form.text(part.name)
                else:
                    raise InvalidRequest(part.name[:256], "is not supported; leave it out")
        if incoming is None:
            raise InvalidRequest("file", "is missing")
        stored = await asyncio.to_thread(incoming.finish, _purpose(fields), _kept_s(fields))
    except BaseException:
        if incoming is not None:
            with suppress(EdgeRagError):
                await asyncio.shield(asyncio.to_thread(incoming.discard))
        raise
    await exchange.respond_json(call, file_object(stored))


async def list_files(call: Call, exchange: Exchange) -> None:
    """Lists the caller's files by their age."""
    request = parse_page(exchange.query, frozenset({"purpose"}), _PAGE)
    purpose = exchange.query.get("purpose") or None

    async def read(cursor: str | None, limit: int, newest_first: bool) -> Sequence[StoredFile]:
        page, _ = await files.list_page(call, purpose, cursor, limit, newest_first=newest_first)
        return page

    page, has_more = await read_page(request, read, lambda file: file.file_id)
    await exchange.respond_json(call, page_object([file_object(file) for file in page], has_more))


async def get_file(call: Call, exchange: Exchange) -> None:
    await exchange.respond_json(call, file_object(await files.get(call, exchange.path["file"])))


async def delete_file(call: Call, exchange: Exchange) -> None:
    file_id = exchange.path["file"]
    await files.delete(call, file_id)
    await exchange.respond_json(call, {"id": file_id, "object": "file", "deleted": True})


async def get_content(call: Call, exchange: Exchange) -> None:
    """Returns the bytes of a file."""
    found = await files.get(call, exchange.path["file"])
    name = found.name if isinstance(found, DocumentInfo) else found.about.name
    headers = {
        "content-length": str(found.size_bytes),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        **id_header(call),
    }
    async with aclosing(files.read(call, found)) as pieces:
        first = await anext(pieces, b"")  # what cannot be read fails before the head is sent
        await exchange.start(200, _DOWNLOAD, headers)
        await exchange.write_all(first)
        async for piece in pieces:
            await exchange.write_all(piece)
    await exchange.finish()


def file_object(file: StoredFile | DocumentInfo) -> dict[str, Any]:
    """Returns a file as OpenAI's clients read it."""
    if isinstance(file, DocumentInfo):
        name, created, expires = file.name, file.ingested_at, None
        file_id, purpose = str(file.document_id), PURPOSES[0]
    else:
        name, created, expires = file.about.name, file.created_at, file.expires_at
        file_id, purpose = file.file_id, file.purpose
    return {
        "id": file_id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": int(created.timestamp()),
        "expires_at": None if expires is None else int(expires.timestamp()),
        "filename": name,
        "purpose": purpose,
        "status": "processed",
        "status_details": None,
    }


def _purpose(fields: dict[str, str]) -> str:
    purpose = fields.get("purpose")
    if purpose not in PURPOSES:
        raise InvalidRequest("purpose", f"must be one of {', '.join(PURPOSES)}")
    return purpose


def _kept_s(fields: dict[str, str]) -> int:
    anchor, seconds = fields.get(_ANCHOR), fields.get(_SECONDS)
    if anchor is None and seconds is None:
        return KEPT_S
    if anchor != "created_at":
        raise InvalidRequest(_ANCHOR, "must be created_at")
    if seconds is None or not (seconds.isascii() and seconds.isdigit() and len(seconds) <= len(str(_MOST_S))):
        raise InvalidRequest(_SECONDS, f"must be {_LEAST_S:,} to {_MOST_S:,} seconds")
    if not _LEAST_S <= int(seconds) <= _MOST_S:
        raise InvalidRequest(_SECONDS, f"must be {_LEAST_S:,} to {_MOST_S:,} seconds")
    return int(seconds)
