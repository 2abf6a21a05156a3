"""Collections and documents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from edge_rag.core.documents.checks import checked_settings
from edge_rag.core.documents.collection import BackendKind, CollectionInfo, CollectionSettings
from edge_rag.core.documents.document import DocumentInfo, IngestOutcome
from edge_rag.core.documents.listing import (
    MAX_CURSOR_CHARACTERS,
    MAX_SEARCH_CHARACTERS,
    MAX_SKIPPED,
    DocumentSelection,
    ListCursor,
    ListOrder,
)
from edge_rag.core.limits.request_fields import parse_text
from edge_rag.core.monitoring.status import IndexInUse
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.api.decode import Between, Changes, Collection, Condition, Document, Legal, decoded_filter
from edge_rag.server.http.api.endpoints import MAX_RESPONSE_BYTES, fitting, size_of
from edge_rag.server.http.api.operation import OneJob
from edge_rag.service import collections, documents, jobs
from edge_rag.service.call import Call
from edge_rag.service.documents import UploadEnd, UploadHeader, UploadPart

_MOST_DOCUMENTS: Final = 1000
_MOST_CHARACTERS: Final = 1 << 53

Cursor = Annotated[
    str,
    Legal(
        lambda field, value: parse_text(field, value, MAX_CURSOR_CHARACTERS),
        (("minLength", 1), ("maxLength", MAX_CURSOR_CHARACTERS)),
    ),
]
"""A place in a list of documents."""

Search = Annotated[
    str,
    Legal(
        lambda field, value: parse_text(field, value, MAX_SEARCH_CHARACTERS) if value else value,
        (("maxLength", MAX_SEARCH_CHARACTERS),),
    ),
]
"""Words that documents are searched for."""

Position = Annotated[int, Between(0, _MOST_CHARACTERS)]
"""Characters from the beginning of a document's text."""


@dataclass(frozen=True, slots=True)
class Collections:
    """Collections.

    Attributes:
        collections: By name. Descriptions, labels and synonyms that would make the response too large are left
            out.
    """

    collections: tuple[CollectionInfo, ...]


@dataclass(frozen=True, slots=True)
class OneCollection:
    """A collection.

    Attributes:
        collection: The collection.
    """

    collection: CollectionInfo


@dataclass(frozen=True, slots=True)
class DeletedCollection:
    """A collection that was deleted.

    Attributes:
        deleted: The collection.
    """

    deleted: CollectionInfo


@dataclass(frozen=True, slots=True)
class CollectionRequest:
    """A collection.

    Attributes:
        collection: Its name.
    """

    collection: Collection


@dataclass(frozen=True, slots=True)
class CreateCollectionRequest:
    """A new collection.

    Attributes:
        name: Its name.
        settings: Its settings.
    """

    name: Collection
    settings: CollectionSettings = field(default_factory=CollectionSettings)


@dataclass(frozen=True, slots=True)
class UpdateCollectionRequest:
    """Changes of a collection.

    Attributes:
        collection: Its name.
        settings: The settings that change; each is replaced as a whole.
    """

    collection: Collection
    settings: Annotated[Mapping[str, Any], Changes(CollectionSettings)]


@dataclass(frozen=True, slots=True)
class MoveIndexRequest:
    """Where the index of a collection is moved to.

    Attributes:
        collection: Name of the collection.
        backend: ``faiss`` for this machine, ``milvus`` for the configured server.
    """

    collection: Collection
    backend: BackendKind


@dataclass(frozen=True, slots=True)
class OneIndex:
    """A vector index.

    Attributes:
        index: The index.
    """

    index: IndexInUse


async def list_collections(call: Call) -> Collections:
    """Lists the collections that exist for the caller."""
    left = MAX_RESPONSE_BYTES
    shown: list[CollectionInfo] = []
    for info in await collections.list_visible(call):
        left -= size_of(info)
        short = replace(info.settings, description="", labels={}, synonyms="")
        shown.append(info if left >= 0 else replace(info, settings=short))
    return Collections(tuple(shown))


async def create_collection(call: Call, request: CreateCollectionRequest) -> OneCollection:
    """Creates an empty collection."""
    return OneCollection(await collections.create(call, request.name, checked_settings(request.settings)))


async def get_collection(call: Call, request: CollectionRequest) -> OneCollection:
    """Returns a collection with its settings."""
    return OneCollection(await collections.get(call, request.collection))


async def update_collection(call: Call, request: UpdateCollectionRequest) -> OneCollection:
    """Changes the given settings of a collection and keeps the others.

    A changed size of chunks applies to documents that are ingested afterwards.
    """
    if not request.settings:
        raise InvalidRequest("settings", "must hold at least one setting to change")
    checked = checked_settings(CollectionSettings(**request.settings))
    changes = {name: getattr(checked, name) for name in request.settings}
    return OneCollection(await collections.update(call, request.collection, changes))


async def delete_collection(call: Call, request: CollectionRequest) -> DeletedCollection:
    """Deletes a collection with its documents, text, vectors and settings."""
    return DeletedCollection(await collections.delete(call, request.collection))


async def move_index(call: Call, request: MoveIndexRequest) -> OneIndex:
    """Moves the vectors of a collection to another index backend while searches continue."""
    return OneIndex(await collections.move_index(call, request.collection, request.backend))


@dataclass(frozen=True, slots=True)
class ListDocumentsRequest:
    """A page of the documents of a collection.

    Attributes:
        collection: Name of the collection.
        after: Where the page begins, as ``next`` of the page before with the same order; none for the first page.
        skip: Documents that are left out before the page begins.
        limit: Most documents of the page.
        search: Words that each are part of the name, the title or the metadata; upper and lower case are the same.
        filter: Condition on name, media type, time and metadata, for example ``year >= 2020``.
        order: The sort order: ``added`` and ``stored`` are when they came first and last.
        descending: Whether the largest, latest or last one comes first.
    """

    collection: Collection
    after: Cursor | None = None
    skip: Annotated[int, Between(0, MAX_SKIPPED)] = 0
    limit: Annotated[int, Between(1, _MOST_DOCUMENTS)] = 100
    search: Search = ""
    filter: Condition | None = None
    order: ListOrder = ListOrder.ADDED
    descending: bool = False


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page of documents.

    Attributes:
        documents: In the order that was asked for.
        next: Where the next page begins; null at the end.
        total: Number of documents of all pages, on the first one; null on others.
    """

    documents: tuple[DocumentInfo, ...]
    next: str | None
    total: int | None


@dataclass(frozen=True, slots=True)
class GetDocumentRequest:
    """A document and a range of its text.

    Attributes:
        collection: Name of the collection.
        document: Id or name of the document.
        start: First character.
        end: One past the last character; none for the end of the text.
    """

    collection: Collection
    document: Document
    start: Position = 0
    end: Position | None = None


@dataclass(frozen=True, slots=True)
class DocumentText:
    """A document and a range of its text.

    Attributes:
        document: Its record.
        text: The text, which citations point into; as much of the range as a response holds.
        end: One past the last character of the text; ask for more from here if it is less than wanted.
    """

    document: DocumentInfo
    text: str
    end: int


@dataclass(frozen=True, slots=True)
class DocumentRequest:
    """A document.

    Attributes:
        collection: Name of the collection.
        document: Id or name of the document.
    """

    collection: Collection
    document: Document


@dataclass(frozen=True, slots=True)
class DeletedDocument:
    """A document that was deleted.

    Attributes:
        deleted: Its record.
    """

    deleted: DocumentInfo


async def list_documents(call: Call, request: ListDocumentsRequest) -> DocumentPage:
    """Lists the documents of a collection, page by page."""
    order = request.order
    selection = DocumentSelection(request.search, decoded_filter(request.filter), order, request.descending)
    after = None if request.after is None else ListCursor.decoded(request.after, order)
    page, following = await documents.select_page(
        call, request.collection, selection, after, request.limit, request.skip
    )
    sent = fitting(page)
    if len(sent) < len(page):
        following = ListCursor.after(sent[-1], order)
    is_first = after is None and not request.skip
    total = await documents.count(call, request.collection, selection) if is_first else None
    return DocumentPage(sent, None if following is None else following.encoded(order), total)


async def get_document(call: Call, request: GetDocumentRequest) -> DocumentText:
    """Returns a document, by id or by name, with a range of its text."""
    found = await documents.get(call, request.collection, request.document, request.start, request.end)
    return DocumentText(found.info, found.text, found.end)


async def put_document(
    call: Call, request: DocumentRequest, content: AsyncIterator[bytes], media_type: str
) -> IngestOutcome:
    """Stores a document under its name, and returns when it can be found.

    The body is the document as it is; a document of that name is replaced. `Content-Type` is its media type, which is
    detected if it is left out. Many documents are better sent as jobs: see `queue_document`.
    """

    uploads = documents.receive(call, _parts(request, content, media_type))
    async with aclosing(documents.ingest(call, uploads)) as outcomes:
        return await anext(outcomes)


async def queue_document(
    call: Call, request: DocumentRequest, content: AsyncIterator[bytes], media_type: str
) -> OneJob:
    """Stores a document under its name as a job, and returns the job when the document has arrived.

    The body is that of `put_document`. The job goes on without the client.
    """
    return OneJob(await jobs.queue(call, documents.receive(call, _parts(request, content, media_type))))


async def _parts(
    request: DocumentRequest, content: AsyncIterator[bytes], media_type: str
) -> AsyncGenerator[UploadPart, None]:
    yield UploadHeader(request.collection, request.document, media_type, {})
    async for piece in content:
        yield piece
    yield UploadEnd()


async def delete_document(call: Call, request: DocumentRequest) -> DeletedDocument:
    """Deletes a document, by id or by name, with its text and vectors."""
    return DeletedDocument(await documents.delete(call, request.collection, request.document))
