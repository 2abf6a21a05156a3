"""Stored documents, and collections."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from edge_rag.api.v1 import collections_pb2, documents_pb2
from edge_rag.client.connection import AsyncConnection
from edge_rag.client.errors import invalid_argument
from edge_rag.core.documents.collection import CollectionInfo, CollectionSettings
from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.limits.request_fields import bounded_int
from edge_rag.errors import InvalidRequest
from edge_rag.wire.answers import document_from_message, stored_document_from_message
from edge_rag.wire.collections import collection_from_message, settings_to_message, update_to_message
from edge_rag.wire.requests import sendable
from edge_rag.wire.types import StoredDocument


class AsyncDocumentCalls(AsyncConnection):
    """Calls of the ``Documents`` service about stored documents, and of the ``Collections`` service."""

    async def document(
        self, document: str, *, collection: str = "default", start: int = 0, end: int | None = None
    ) -> StoredDocument:
        """Returns a document, named by id or name, with its stored text, which citations point into, or a range of it.

        A long text comes in several calls; if the document is replaced between them, they begin anew.

        Args:
            start: First character of the text, at least 0; citations count likewise.
            end: One past the last character; None for the end. With ``end=0`` there is only the record.

        Example:
            >>> stored = await client.document("lubrication-schedule.md")
            >>> print(stored.text)
        """
        with invalid_argument():
            if start < 0 or (end is not None and end < 0):
                raise InvalidRequest("start" if start < 0 else "end", "must be at least 0")
            request = documents_pb2.GetDocumentRequest(
                collection=sendable("collection", collection),
                document=sendable("document", document),
                start=start,
                end=end,
            )
        get = self._transport.stubs.documents.Get
        first = reply = await self._call(get, request)
        if not first.end:  # an older daemon returns whole texts
            first.text = first.text[start:end]
            return stored_document_from_message(first)
        wanted = first.document.characters if end is None else min(end, first.document.characters)
        parts = [first.text]
        while reply.text and reply.end < wanted:
            request.start = reply.end
            reply = await self._call(get, request)
            if reply.document != first.document:
                return await self.document(document, collection=collection, start=start, end=end)
            parts.append(reply.text)
        first.text = "".join(parts)
        return stored_document_from_message(first)

    async def documents(self, *, collection: str = "default") -> AsyncGenerator[DocumentInfo, None]:
        """Yields the records of a collection's documents, in order of id.

        Example:
            >>> async for info in client.documents():
            ...     print(info.name, info.chunks)
        """
        with invalid_argument():
            request = documents_pb2.ListDocumentsRequest(collection=sendable("collection", collection), page_size=500)
        while True:
            reply = await self._call(self._transport.stubs.documents.List, request)
            for message in reply.documents:
                yield document_from_message(message)
            if not reply.next_page_token:
                return
            request.page_token = reply.next_page_token

    async def document_page(
        self, *, collection: str = "default", cursor: str = "", size: int = 100
    ) -> tuple[tuple[DocumentInfo, ...], str]:
        """Returns a page of a collection's documents, in order of id, and the cursor of the next page.

        Args:
            cursor: The cursor that the previous page returned; empty for the first page.
            size: Most documents, 1 to 1,000. A page may have fewer before the last one.

        Example:
            >>> page, cursor = await client.document_page(size=50)
        """
        with invalid_argument():
            request = documents_pb2.ListDocumentsRequest(
                collection=sendable("collection", collection),
                page_token=sendable("cursor", cursor),
                page_size=bounded_int("size", size, 1, 1000),
            )
        reply = await self._call(self._transport.stubs.documents.List, request)
        return tuple(map(document_from_message, reply.documents)), reply.next_page_token

    async def delete(self, document: str, *, collection: str = "default") -> DocumentInfo:
        """Removes a document, named by id or name, and returns its record.

        Example:
            >>> await client.delete("note.txt")
        """
        with invalid_argument():
            request = documents_pb2.DeleteDocumentRequest(
                collection=sendable("collection", collection), document=sendable("document", document)
            )
        reply = await self._call(self._transport.stubs.documents.Delete, request)
        return document_from_message(reply.document)

    async def create_collection(self, name: str, settings: CollectionSettings | None = None) -> CollectionInfo:
        """Makes an empty collection, which stays until it is deleted. The call is not repeated.

        Args:
            name: 1 to 64 characters of ``a-z 0-9 - _``.

        Example:
            >>> await client.create_collection("boiler", CollectionSettings(description="Boiler house"))
        """
        with invalid_argument():
            request = collections_pb2.CreateCollectionRequest(
                name=sendable("name", name), settings=settings_to_message(settings or CollectionSettings())
            )
        reply = await self._call(self._transport.stubs.collections.Create, request, repeat=False)
        return collection_from_message(reply.collection)

    async def collection(self, name: str) -> CollectionInfo:
        """Returns a collection.

        Example:
            >>> info = await client.collection("default")
            >>> print(info.documents)
        """
        with invalid_argument():
            request = collections_pb2.GetCollectionRequest(name=sendable("name", name))
        reply = await self._call(self._transport.stubs.collections.Get, request)
        return collection_from_message(reply.collection)

    async def collections(self) -> tuple[CollectionInfo, ...]:
        """Returns all collections, by name.

        Example:
            >>> print([info.name for info in await client.collections()])
        """
        request = collections_pb2.ListCollectionsRequest()
        reply = await self._call(self._transport.stubs.collections.List, request)
        return tuple(map(collection_from_message, reply.collections))

    async def update_collection(self, name: str, settings: CollectionSettings, fields: Iterable[str]) -> CollectionInfo:
        """Changes settings of a collection and returns it.

        Args:
            settings: Holds the new values.
            fields: Names of the fields of ``CollectionSettings`` to change.

        Example:
            >>> await client.update_collection("boiler", CollectionSettings(chunk_tokens=160), ["chunk_tokens"])
        """
        with invalid_argument():
            request = update_to_message(name, settings, fields)
        reply = await self._call(self._transport.stubs.collections.Update, request)
        return collection_from_message(reply.collection)

    async def delete_collection(self, name: str) -> CollectionInfo:
        """Removes a collection with all its documents, and returns its last state.

        Example:
            >>> await client.delete_collection("boiler")
        """
        with invalid_argument():
            request = collections_pb2.DeleteCollectionRequest(name=sendable("name", name))
        reply = await self._call(self._transport.stubs.collections.Delete, request)
        return collection_from_message(reply.collection)
