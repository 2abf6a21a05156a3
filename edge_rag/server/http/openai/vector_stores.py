"""Collections as vector stores in the shape of OpenAI's API: the id is the collection's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from edge_rag.core.address import document_url
from edge_rag.core.documents.collection import CollectionInfo, CollectionSettings
from edge_rag.core.ids import DocumentId
from edge_rag.core.limits.request_fields import (
    bounded_float,
    bounded_int,
    parse_description,
    parse_labels,
    parse_title,
)
from edge_rag.errors import EdgeRagError, InvalidRequest
from edge_rag.pipeline.pipeline import SearchResult
from edge_rag.server.http.exchange import Exchange
from edge_rag.server.http.fields import check_names, check_supported, choice, parse_json, typed
from edge_rag.server.http.openai.filters import attributes_of, parse_filters
from edge_rag.server.http.openai.pages import following, page_object, parse_page, read_page
from edge_rag.server.http.openai.requests import EXTENSION
from edge_rag.server.http.openai.vector_store_files import count_files, parse_chunking, parse_files, store_of
from edge_rag.service import collections, files
from edge_rag.service.ask import search
from edge_rag.service.call import Call

MAX_RESULTS: Final = 50
"""Most results of a search."""

_DEFAULT_RESULTS: Final = 10
_OLDEST: Final = datetime.fromtimestamp(0, UTC)
_CREATED: Final = frozenset({"name", "description", "metadata", "chunking_strategy", "file_ids"})
_UPDATED: Final = frozenset({"name", "metadata"})
_SEARCHED: Final = frozenset({"query", "filters", "max_num_results", "ranking_options", "rewrite_query"})
_RANKERS: Final[Mapping[str, bool]] = {"auto": True, "none": False}
"""Whether the reranker orders the results, by the name of OpenAI's API."""


async def create_store(call: Call, exchange: Exchange) -> None:
    """Creates a collection, and makes documents of files in it."""
    body = parse_json(exchange.body or b"{}")
    check_supported(body, _CREATED, {})
    wanted = parse_files({"file_ids": body["file_ids"]}) if body.get("file_ids") else ()
    settings = CollectionSettings(
        description=parse_description("description", typed(body, "description", str) or ""),
        chunk_tokens=parse_chunking(body),
        title=_title(body),
        labels=_labels(body),
    )
    info = await collections.create_titled(call, settings)
    if wanted:
        try:
            await files.attach(call, info.name, wanted, files.SameName.KEEP)
        except EdgeRagError:
            await collections.delete(call, info.name)
            raise
    await _respond_store(call, exchange, info)


async def list_stores(call: Call, exchange: Exchange) -> None:
    """Lists the collections that exist for the caller, by their age."""
    request = parse_page(exchange.query)
    found = sorted(await collections.list_visible(call), key=lambda info: (info.created_at or _OLDEST, info.name))

    async def read(cursor: str | None, limit: int, newest_first: bool) -> Sequence[CollectionInfo]:
        return following(found[::-1] if newest_first else found, cursor, limit, lambda info: info.name)

    page, has_more = await read_page(request, read, lambda info: info.name)
    stores = [await _store_object(call, info) for info in page]
    await exchange.respond_json(call, page_object(stores, has_more))


async def get_store(call: Call, exchange: Exchange) -> None:
    await _respond_store(call, exchange, await collections.get(call, store_of(exchange)))


async def update_store(call: Call, exchange: Exchange) -> None:
    """Changes a collection's title and labels; fields that are absent or null stay."""
    name = store_of(exchange)
    body = parse_json(exchange.body or b"{}")
    check_supported(body, _UPDATED, {})
    changes: dict[str, Any] = {}
    if body.get("name") is not None:
        title = _title(body)
        changes["title"] = "" if title == name else title
    if body.get("metadata") is not None:
        changes["labels"] = _labels(body)
    info = await (collections.update(call, name, changes) if changes else collections.get(call, name))
    await _respond_store(call, exchange, info)


async def delete_store(call: Call, exchange: Exchange) -> None:
    info = await collections.delete(call, store_of(exchange))
    await exchange.respond_json(call, {"id": info.name, "object": "vector_store.deleted", "deleted": True})


async def search_store(call: Call, exchange: Exchange) -> None:
    """Searches a collection."""
    name = store_of(exchange)
    body = parse_json(exchange.body)
    check_supported(body, _SEARCHED, {})
    if typed(body, "rewrite_query", bool):
        raise InvalidRequest("rewrite_query", "is not supported: questions are searched for as they are; leave it out")
    options = typed(body, "ranking_options", dict) or {}
    check_names(options, frozenset({"ranker", "score_threshold"}), "ranking_options")
    rerank = choice(options, "ranker", _RANKERS, "ranking_options")
    least = typed(options, "score_threshold", float, "ranking_options") or 0.0
    bounded_float("ranking_options.score_threshold", least, 0.0, 1.0)
    limit = typed(body, "max_num_results", int)
    query = call.asker(exchange.requests).search(
        _query(body),
        name,
        bounded_int("max_num_results", _DEFAULT_RESULTS if limit is None else limit, 1, MAX_RESULTS),
        rerank=True if rerank is None else rerank,
        condition=parse_filters(body.get("filters")),
    )
    found = await search(call, query)
    names = await files.files_of(call, name, [each.passage.document_id for each in found.passages])
    page = {
        "object": "vector_store.search_results.page",
        "search_query": [query.query],
        "data": _results(found, names, name, least, exchange.base_url),
        "has_more": False,
        "next_page": None,
    }
    await exchange.respond_json(call, page)


def query_of(data: bytes) -> str:
    try:
        return _query(parse_json(data))
    except InvalidRequest:
        return ""


async def _respond_store(call: Call, exchange: Exchange, info: CollectionInfo) -> None:
    await exchange.respond_json(call, await _store_object(call, info))


async def _store_object(call: Call, info: CollectionInfo) -> dict[str, Any]:
    return store_object(info, count_files(await files.attached_counts(call, info.name)))


def store_object(info: CollectionInfo, counts: Mapping[str, int]) -> dict[str, Any]:
    """Returns a collection as a vector store."""
    created = info.created_at or _OLDEST
    return {
        "id": info.name,
        "object": "vector_store",
        "created_at": int(created.timestamp()),
        "name": info.settings.title or info.name,
        "description": info.settings.description,
        "usage_bytes": info.size_bytes,
        "file_counts": dict(counts),
        "status": "in_progress" if counts["in_progress"] else "completed",
        "expires_after": None,
        "expires_at": None,
        "last_active_at": int(max(created, info.ingested_at or created).timestamp()),
        "metadata": dict(info.settings.labels),
    }


def _title(body: Mapping[str, Any]) -> str:
    return parse_title("name", typed(body, "name", str) or "")


def _labels(body: Mapping[str, Any]) -> dict[str, str]:
    labels = typed(body, "metadata", dict) or {}
    for name, text in labels.items():
        if not isinstance(text, str):
            raise InvalidRequest(f"metadata.{name[:256]}", "must be a string")
    return parse_labels("metadata", labels)


def _query(body: Mapping[str, Any]) -> str:
    query = body.get("query")
    if isinstance(query, list) and len(query) == 1:
        query = query[0]
    if isinstance(query, list):
        raise InvalidRequest("query", "must be one question; search for several one by one")
    if not isinstance(query, str):
        raise InvalidRequest("query", "must be a string")
    return query


def _results(
    found: SearchResult, files_of: Mapping[DocumentId, str], collection: str, least: float, base_url: str
) -> list[dict[str, Any]]:
    results = []
    for ranked, relevance in zip(found.passages, found.relevances, strict=True):
        passage = ranked.passage
        if relevance < least:
            continue
        url = document_url(base_url, passage.document_id, collection, passage.start, passage.end, passage.page)
        place = {"document_id": passage.document_id, "page": passage.page, "start": passage.start, "end": passage.end}
        results.append(
            {
                "file_id": files_of[passage.document_id],
                "filename": passage.document,
                "score": relevance,
                "attributes": attributes_of(passage.metadata),
                "content": [{"type": "text", "text": passage.text}],
                EXTENSION: {**place, "url": url},
            }
        )
    return results
