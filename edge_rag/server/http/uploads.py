"""Uploads in pieces with resume: the tus protocol 1.0.0, https://tus.io/protocols/resumable-upload."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from contextlib import aclosing
from email.utils import format_datetime
from typing import Final

from edge_rag.core.documents.files import Attachment, NewFile, StoredFile
from edge_rag.core.documents.metadata import MetadataValue, decode_metadata, validate_metadata
from edge_rag.core.limits.request_fields import parse_collection_name, parse_document_name
from edge_rag.errors import InvalidRequest, OffsetMismatch
from edge_rag.server.http.exchange import Exchange, id_header
from edge_rag.service import files
from edge_rag.service.call import Call
from edge_rag.service.files import CHECKSUMS, Checksum

VERSION: Final = "1.0.0"
EXTENSIONS: Final = "creation,creation-with-upload,termination,expiration,checksum"
PIECE: Final = "application/offset+octet-stream"

_MAX_DIGITS: Final = 16
_VERSION_HEADER: Final = {"tus-resumable": VERSION}
_PURPOSE: Final = "user_data"
_METADATA: Final = ("filename", "filetype", "collection", "metadata")


async def describe_uploads(call: Call, exchange: Exchange) -> None:
    """Tells what the server can do."""
    headers = {
        "tus-version": VERSION,
        "tus-extension": EXTENSIONS,
        "tus-max-size": str(call.backend.document_bytes),
        "tus-checksum-algorithm": ",".join(CHECKSUMS),
    }
    await exchange.respond_empty(204, {**_VERSION_HEADER, **headers, **id_header(call)})


async def create_upload(call: Call, exchange: Exchange) -> None:
    """Begins an upload; takes its first piece if the request has one."""
    if not await _check_version(call, exchange):
        return
    length = _number(exchange, "upload-length")
    about = _parse_metadata(exchange.headers.get("upload-metadata", ""))
    collection = str(about.get("collection", ""))
    new = NewFile(
        owner="",
        name=parse_document_name("upload-metadata.filename", str(about.get("filename", ""))),
        media_type=str(about.get("filetype", "")),
        purpose=_PURPOSE,
        size_bytes=length,
        collection=parse_collection_name(collection, "upload-metadata.collection") if collection else "",
        metadata=_document_metadata(about.get("metadata")),
    )
    has_piece = "content-type" in exchange.headers
    if has_piece:
        _check_media_type(exchange)
    checksum = _checksum(exchange)
    file = await files.create(call, new)
    if has_piece:
        async with aclosing(exchange.pieces(length)) as pieces:
            file = await files.receive(call, file.file_id, 0, pieces, checksum)
    elif not length:
        file = await files.finish(call, file.file_id)
    await _respond(call, exchange, 201, file, {"location": f"{exchange.base_url}/api/v1/uploads/{file.file_id}"})


async def get_upload(call: Call, exchange: Exchange) -> None:
    if await _check_version(call, exchange):
        file = await files.settle(call, exchange.path["upload"])
        await _respond(call, exchange, 200, file, {"upload-length": str(file.about.size_bytes)})


async def continue_upload(call: Call, exchange: Exchange) -> None:
    """Takes a piece of an upload."""
    if not await _check_version(call, exchange):
        return
    _check_media_type(exchange)
    offset, checksum = _number(exchange, "upload-offset"), _checksum(exchange)
    file = await files.settle(call, exchange.path["upload"])
    if offset != file.offset:
        raise OffsetMismatch(file.offset)
    length = file.about.size_bytes or 0
    if offset < length:
        async with aclosing(exchange.pieces(length - offset)) as pieces:
            file = await files.receive(call, file.file_id, offset, pieces, checksum)
    await _respond(call, exchange, 204, file, {})


async def delete_upload(call: Call, exchange: Exchange) -> None:
    if await _check_version(call, exchange):
        await files.delete(call, exchange.path["upload"])
        await exchange.respond_empty(204, {**_VERSION_HEADER, **id_header(call)})


async def _respond(call: Call, exchange: Exchange, status: int, file: StoredFile, headers: Mapping[str, str]) -> None:
    attached = await files.ingest_where_wanted(call, file)
    state = {**_VERSION_HEADER, **id_header(call), "upload-offset": str(file.offset), "edge-rag-file": file.file_id}
    if file.expires_at is not None:
        state["upload-expires"] = format_datetime(file.expires_at, usegmt=True)
    await exchange.respond_empty(status, {**state, **_attachment_headers(attached), **headers})


def _attachment_headers(attached: Attachment | None) -> dict[str, str]:
    if attached is None:
        return {}
    headers = {"edge-rag-job": attached.job_id, "edge-rag-state": attached.state.value}
    if attached.document_id is not None:
        headers["edge-rag-document"] = attached.document_id
    return headers


async def _check_version(call: Call, exchange: Exchange) -> bool:
    """Whether a request is of this version of the protocol; responds if it is not."""
    if exchange.headers.get("tus-resumable") == VERSION:
        return True
    await exchange.respond_empty(412, {"tus-version": VERSION, **_VERSION_HEADER, **id_header(call)})
    return False


def _check_media_type(exchange: Exchange) -> None:
    if exchange.headers.get("content-type", "").partition(";")[0].strip().lower() != PIECE:
        raise InvalidRequest("content-type", f"must be {PIECE}")


def _number(exchange: Exchange, name: str) -> int:
    text = exchange.headers.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise InvalidRequest(name, "must be a number of bytes")
    return int(text)


def _checksum(exchange: Exchange) -> Checksum | None:
    text = exchange.headers.get("upload-checksum")
    if text is None:
        return None
    algorithm, _, digest = text.partition(" ")
    if algorithm not in CHECKSUMS:
        raise InvalidRequest("upload-checksum", f"must be of one of {', '.join(CHECKSUMS)}")
    return Checksum(algorithm, _decode("upload-checksum", digest))


def _parse_metadata(header: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in filter(None, (each.strip() for each in header.split(","))):
        name, _, encoded = pair.partition(" ")
        field = f"upload-metadata.{name[:256]}"
        if name not in _METADATA:
            raise InvalidRequest(field, "is not supported; leave it out")
        if name in found:
            raise InvalidRequest(field, "is there twice")
        try:
            found[name] = _decode(field, encoded).decode()
        except UnicodeDecodeError:
            raise InvalidRequest(field, "is not UTF-8") from None
    return found


def _document_metadata(text: str | None) -> dict[str, MetadataValue]:
    if not text:
        return {}
    try:
        return validate_metadata(decode_metadata(text))
    except (ValueError, RecursionError):
        raise InvalidRequest("upload-metadata.metadata", "is not a JSON object of metadata") from None


def _decode(field: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidRequest(field, "is not base64") from None
