"""A daemon that tools reach by a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urlsplit

from edge_rag.client import (
    AskEvent,
    AskOptions,
    AsyncClient,
    CollectionInfo,
    DocumentInfo,
    Filter,
    PassagesReceived,
    PermissionDenied,
    SearchOptions,
)
from edge_rag.core.address import document_url, is_loopback
from edge_rag.server.mcp.box import AnswerPart, Hits, Passages, Question
from edge_rag.server.mcp.tools import local_url


class RemoteBox:
    """A daemon that a client calls, for tools (``Box``).

    Args:
        base_url: Where its HTTP server is reached; None to ask the daemon, which answers operators only.
    """

    def __init__(self, client: AsyncClient, base_url: str | None) -> None:
        self._client = client
        self._base_url = base_url

    def url(self, collection: str, document_id: str, start: int, end: int, page: int | None = None) -> str:
        if not self._base_url:
            return local_url(collection, document_id, start, end)
        return document_url(self._base_url.rstrip("/"), document_id, collection, start, end, page)

    async def search(self, collection: str, query: str, limit: int, condition: Filter | None) -> Hits:
        await self._find_http()
        reply = await self._client.search(query, SearchOptions(collection=collection, limit=limit, filter=condition))
        return Hits(reply.hits, reply.did_you_mean)

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[AnswerPart]]:
        """Answers a question; leaving the block cancels an unfinished answer."""
        asked = AskOptions(
            collection=question.collection,
            mode=question.mode,
            max_sentences=question.max_sentences,
            passages=question.passages,
            filter=question.filter,
            turns=question.turns,
        )
        await self._find_http()
        async with aclosing(self._client.ask(question.text, asked)) as events:
            yield _parts(events)

    async def document(self, collection: str, document: str, start: int, end: int) -> tuple[DocumentInfo, str]:
        await self._find_http()
        stored = await self._client.document(document, collection=collection, start=start, end=end)
        return stored.info, stored.text

    async def documents(self, collection: str, cursor: str, size: int) -> tuple[Sequence[DocumentInfo], str]:
        await self._find_http()
        return await self._client.document_page(collection=collection, cursor=cursor, size=size)

    async def collections(self) -> Sequence[CollectionInfo]:
        return await self._client.collections()

    async def _find_http(self) -> None:
        """Asks the daemon once for the URL of its HTTP server, unless it is known."""
        if self._base_url is not None:
            return
        try:
            url = (await self._client.status()).http_address
        except PermissionDenied:
            url = ""
        self._base_url = url if _is_reachable(url, self._client.address) else ""


def _is_reachable(url: str, address: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host in ("", "0.0.0.0", "::"):
        return False
    called = address.rpartition(":")[0].strip("[]")
    here = address.startswith("unix:") or called == "localhost" or is_loopback(called)
    return here or not (host == "localhost" or is_loopback(host))


async def _parts(events: AsyncIterator[AskEvent]) -> AsyncIterator[AnswerPart]:
    async for event in events:
        if isinstance(event, PassagesReceived):
            yield Passages(event.passages, event.evidence, event.model, event.standalone_question, event.did_you_mean)
        else:
            yield event
