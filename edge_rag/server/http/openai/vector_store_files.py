"""Documents of collections as files of vector stores in the shape of OpenAI's API, one by one and in batches.

A file of a collection is a document, and what becomes of it is the state of its ingest. A document that came another
way is listed too, by its own id. A batch is an ingest job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

from edge_rag.core.documents.document import RejectionCause
from edge_rag.core.documents.files import Attachment
from edge_rag.core.documents.jobs import JobDocumentState, JobId
from edge_rag.core.limits.request_fields import bounded_int, parse_chunk_tokens, parse_collection_name
from edge_rag.errors import CollectionNotFound, InvalidRequest, JobNotFound
from edge_rag.server.http.exchange import JSON, Exchange, id_header
from edge_rag.server.http.fields import check_names, check_supported, choice, parse_json, typed
from edge_rag.server.http.openai.filters import attributes_of, parse_attributes
from edge_rag.server.http.openai.pages import page_object, parse_page, read_page
from edge_rag.server.http.openai.requests import EXTENSION
from edge_rag.service import collections, documents, files, jobs
from edge_rag.service.call import Call
from edge_rag.service.files import MAX_ATTACHED, FileToAttach, SameName
from edge_rag.storage.uploads.attachments import AttachmentPage

_LEAST_POLL_MS: Final = 100
_MOST_POLL_MS: Final = 2_000
_ATTACHED: Final = frozenset({"file_id", "attributes", "chunking_strategy"})
_ATTACHED_TOGETHER: Final = frozenset({"file_ids", "files", "attributes", "chunking_strategy"})

STATUSES: Final[Mapping[JobDocumentState, str]] = {
    JobDocumentState.QUEUED: "in_progress",
    JobDocumentState.ADDED: "completed",
    JobDocumentState.REPLACED: "completed",
    JobDocumentState.UNCHANGED: "completed",
    JobDocumentState.REJECTED: "failed",
    JobDocumentState.SUPERSEDED: "cancelled",
    JobDocumentState.CANCELLED: "cancelled",
}
"""OpenAI's status of a file by the state of its document."""

_CODES: Final[Mapping[RejectionCause | None, str]] = {
    RejectionCause.UNSUPPORTED: "unsupported_file",
    RejectionCause.UNUSABLE: "invalid_file",
}
"""OpenAI's codes of failures; ``server_error`` for all others."""


async def attach_file(call: Call, exchange: Exchange) -> None:
    store = store_of(exchange)
    body = parse_json(exchange.body)
    check_supported(body, _ATTACHED, {})
    await _check_chunking(call, store, body)
    _, (attached,) = await files.attach(call, store, (_file(body),), SameName.KEEP)
    await _respond_file(call, exchange, attached)


async def list_files(call: Call, exchange: Exchange) -> None:
    await collections.get(call, store_of(exchange))
    await _respond_files(call, exchange, None)


async def get_file(call: Call, exchange: Exchange) -> None:
    await _respond_file(call, exchange, await files.file_state(call, store_of(exchange), exchange.path["file"]))


async def update_file(call: Call, exchange: Exchange) -> None:
    """Replaces the attributes of a file; those found in the document stay."""
    store = store_of(exchange)
    body = parse_json(exchange.body)
    check_supported(body, ("attributes",), {})
    if "attributes" not in body:
        raise InvalidRequest("attributes", "is missing")
    given = parse_attributes(body["attributes"])
    await _respond_file(call, exchange, await files.update_metadata(call, store, exchange.path["file"], given))


async def detach_file(call: Call, exchange: Exchange) -> None:
    file_id = exchange.path["file"]
    await files.detach(call, store_of(exchange), file_id)
    await exchange.respond_json(call, {"id": file_id, "object": "vector_store.file.deleted", "deleted": True})


async def get_content(call: Call, exchange: Exchange) -> None:
    """Returns the text of a file's document in parts, which are read one by one."""
    store, file_id = store_of(exchange), exchange.path["file"]
    found = await files.file_state(call, store, file_id)
    if found.document_id is None:
        raise InvalidRequest("file_id", f"{file_id[:256]!r} is not stored in the vector store, so it has no text")
    part = await documents.get(call, store, found.document_id, 0)
    head = {
        "object": "vector_store.file_content.page",
        "file_id": file_id,
        "filename": found.name,
        "attributes": attributes_of(found.metadata),
        "has_more": False,
        "next_page": None,
    }
    await exchange.start(200, JSON, id_header(call))
    await exchange.write(json.dumps(head, ensure_ascii=False)[:-1].encode() + b', "data": [')
    await exchange.write(_part(part.text))
    while part.end < part.info.characters:
        part = await documents.get(call, store, found.document_id, part.end)
        await exchange.write(b", " + _part(part.text))
    await exchange.write(b"]}")
    await exchange.finish()


async def attach_batch(call: Call, exchange: Exchange) -> None:
    """Makes documents of files, as one job."""
    store = store_of(exchange)
    body = parse_json(exchange.body)
    check_supported(body, _ATTACHED_TOGETHER, {})
    wanted = parse_files(body)
    await _check_chunking(call, store, body)
    for index, each in enumerate(body.get("files") or ()):
        await _check_chunking(call, store, each, f"files[{index}]")
    job, _ = await files.attach(call, store, wanted, SameName.KEEP)
    await _respond_batch(call, exchange, job.job_id)


async def get_batch(call: Call, exchange: Exchange) -> None:
    await _respond_batch(call, exchange, _batch_of(exchange))


async def cancel_batch(call: Call, exchange: Exchange) -> None:
    """Cancels a batch: its waiting files are not stored."""
    batch = _batch_of(exchange)
    counts = count_files(await files.attached_counts(call, store_of(exchange), batch))
    if counts["in_progress"]:
        await jobs.cancel(call, batch)
    await _respond_batch(call, exchange, batch)


async def list_batch(call: Call, exchange: Exchange) -> None:
    batch = _batch_of(exchange)
    await files.attached_counts(call, store_of(exchange), batch)
    await _respond_files(call, exchange, batch)


def store_of(exchange: Exchange) -> str:
    return parse_collection_name(exchange.path["store"], "vector_store_id")


def count_files(counts: Mapping[JobDocumentState, tuple[int, int]]) -> dict[str, int]:
    """Returns the numbers of files by OpenAI's status, and in total.

    Args:
        counts: Number and bytes of files by state.
    """
    found = dict.fromkeys(("in_progress", "completed", "failed", "cancelled"), 0)
    for state, (number, _) in counts.items():
        found[STATUSES[state]] += number
    return {**found, "total": sum(found.values())}


def parse_files(body: Mapping[str, Any]) -> tuple[FileToAttach, ...]:
    """Returns the files of a batch: ``files`` with attributes of their own, or ``file_ids`` with common ones."""
    ids, several = typed(body, "file_ids", list), typed(body, "files", list)
    if ids and several:
        raise InvalidRequest("files", "cannot be together with file_ids; leave one out")
    field, given = ("files", several) if several else ("file_ids", ids or [])
    bounded_int(field, len(given), 1, MAX_ATTACHED)
    if several:
        for name in ("attributes", "chunking_strategy"):
            if body.get(name) is not None:
                raise InvalidRequest(name, "belongs to each of files; leave it out")
        found = tuple(_file(each, f"files[{index}]") for index, each in enumerate(several))
    else:
        attributes = parse_attributes(body.get("attributes"))
        found = tuple(
            FileToAttach(_file_id(each, f"file_ids[{index}]"), attributes) for index, each in enumerate(given)
        )
    if len({each.file_id for each in found}) < len(found):
        raise InvalidRequest(field, "holds a file twice; leave one out")
    return found


def parse_chunking(body: Mapping[str, Any], prefix: str = "") -> int | None:
    """Returns the size of chunks that a chunking strategy wants, tokens; None for the default.

    Args:
        prefix: Its name in errors; empty for the body.
    """
    field = f"{prefix}.chunking_strategy" if prefix else "chunking_strategy"
    strategy = typed(body, "chunking_strategy", dict, prefix) or {"type": "auto"}
    check_names(strategy, frozenset({"type", "static"}), field)
    kind = choice(strategy, "type", {"auto": "auto", "static": "static"}, field)
    static = typed(strategy, "static", dict, field)
    if kind != "static" or static is None:
        if kind == "auto" and static is None:
            return None
        raise InvalidRequest(f"{field}.type", "must be auto, or static with an object static")
    check_names(static, frozenset({"max_chunk_size_tokens", "chunk_overlap_tokens"}), f"{field}.static")
    if typed(static, "chunk_overlap_tokens", int, f"{field}.static"):
        raise InvalidRequest(f"{field}.static.chunk_overlap_tokens", "must be 0: chunks do not overlap here")
    size = typed(static, "max_chunk_size_tokens", int, f"{field}.static")
    if size is None:
        raise InvalidRequest(f"{field}.static.max_chunk_size_tokens", "is missing")
    return parse_chunk_tokens(f"{field}.static.max_chunk_size_tokens", size)


def file_object(found: Attachment) -> dict[str, Any]:
    """Returns what became of a file as a file of a vector store."""
    status, error = STATUSES[found.state], None
    if status == "failed":
        error = {"code": _CODES.get(found.cause, "server_error"), "message": found.reason}
    return {
        "id": found.file_id,
        "object": "vector_store.file",
        "created_at": int(found.attached_at.timestamp()),
        "vector_store_id": found.collection,
        "status": status,
        "last_error": error,
        "usage_bytes": found.size_bytes if status == "completed" else 0,
        "attributes": attributes_of(found.metadata),
        "chunking_strategy": {"type": "other"},
        EXTENSION: {"document_id": found.document_id, "document": found.name, "note": found.reason},
    }


def batch_status(counts: Mapping[JobDocumentState, tuple[int, int]]) -> str:
    if JobDocumentState.QUEUED in counts:
        return "in_progress"
    if JobDocumentState.CANCELLED in counts:
        return "cancelled"
    return "failed" if set(counts) == {JobDocumentState.REJECTED} else "completed"


async def _respond_file(call: Call, exchange: Exchange, found: Attachment) -> None:
    waiting = found.job_id if found.state is JobDocumentState.QUEUED else None
    await _respond_pollable(call, exchange, file_object(found), waiting)


async def _respond_files(call: Call, exchange: Exchange, batch: JobId | None) -> None:
    """Responds with a page of a collection's files, or of those of a batch."""
    store = store_of(exchange)
    request = parse_page(exchange.query, frozenset({"filter"}))
    wanted = exchange.query.get("filter")
    states = frozenset(state for state, status in STATUSES.items() if status == wanted)
    if wanted is not None and not states:
        raise InvalidRequest("filter", f"must be one of {', '.join(dict.fromkeys(STATUSES.values()))}")

    async def read(cursor: str | None, limit: int, newest_first: bool) -> Sequence[Attachment]:
        page, _ = await files.list_attached(call, store, AttachmentPage(cursor, limit, newest_first, states, batch))
        return page

    found, has_more = await read_page(request, read, lambda file: file.file_id)
    await exchange.respond_json(call, page_object([file_object(each) for each in found], has_more))


async def _respond_batch(call: Call, exchange: Exchange, batch: JobId) -> None:
    store = store_of(exchange)
    counts = await files.attached_counts(call, store, batch)
    first, _ = await files.list_attached(call, store, AttachmentPage(None, 1, False, job_id=batch))
    status = batch_status(counts)
    value = {
        "id": batch,
        "object": "vector_store.files_batch",
        "created_at": int(first[0].attached_at.timestamp()) if first else 0,
        "vector_store_id": store,
        "status": status,
        "file_counts": count_files(counts),
    }
    await _respond_pollable(call, exchange, value, batch if status == "in_progress" else None)


async def _respond_pollable(call: Call, exchange: Exchange, value: Mapping[str, Any], waiting: JobId | None) -> None:
    headers = id_header(call)
    if waiting is not None:
        headers["openai-poll-after-ms"] = str(await _poll_after_ms(call, waiting))
    await exchange.respond(200, json.dumps(value, ensure_ascii=False).encode(), JSON, headers)


async def _poll_after_ms(call: Call, job: JobId) -> int:
    try:
        left_s = (await jobs.get(call, job)).time_left_s
    except JobNotFound:
        left_s = 0.0
    return min(_MOST_POLL_MS, max(_LEAST_POLL_MS, ceil(1000 * (left_s or 0.0))))


async def _check_chunking(call: Call, store: str, body: Mapping[str, Any], prefix: str = "") -> None:
    """Checks that the requested size of a file's chunks is that of the collection."""
    wanted = parse_chunking(body, prefix)
    if wanted is None:
        return
    try:
        size = (await collections.get(call, store)).settings.chunk_tokens
    except CollectionNotFound:
        size = None
    if wanted != size:
        field = f"{prefix}.chunking_strategy" if prefix else "chunking_strategy"
        had = "the default" if size is None else f"{size:,}"
        raise InvalidRequest(f"{field}.static", f"is one of the whole vector store, in which it is {had}; leave it out")


def _batch_of(exchange: Exchange) -> JobId:
    return JobId(exchange.path["batch"])


def _file(body: object, field: str = "") -> FileToAttach:
    if not isinstance(body, dict):
        raise InvalidRequest(field, "must be an object")
    prefix = f"{field}." if field else ""
    if field:
        check_names(body, _ATTACHED, field)
    attributes = parse_attributes(body.get("attributes"), f"{prefix}attributes")
    return FileToAttach(_file_id(body.get("file_id"), f"{prefix}file_id"), attributes)


def _file_id(value: object, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequest(field, "must be the id of a file")
    return value


def _part(text: str) -> bytes:
    return json.dumps({"type": "text", "text": text}, ensure_ascii=False).encode()
