"""Documents that are there, and collections."""

from __future__ import annotations

from collections.abc import Collection as Names

from edge_rag.api.v1 import collections_pb2, documents_pb2
from edge_rag.client import replies
from edge_rag.client.call_flow import (
    CREATE_COLLECTION,
    DELETE_COLLECTION,
    DELETE_DOCUMENT,
    GET_COLLECTION,
    GET_DOCUMENT,
    LIST_COLLECTIONS,
    LIST_DOCUMENTS,
    UPDATE_COLLECTION,
    CallOptions,
    Flow,
    Streaming,
    Tell,
    exchange,
    repeated,
)
from edge_rag.client.collection_messages import collection_info, settings_message, update_request
from edge_rag.client.requests import sendable
from edge_rag.client.values import StoredDocument
from edge_rag.core.documents.collection import CollectionInfo, CollectionSettings
from edge_rag.core.documents.document import DocumentInfo


def document(terms: CallOptions, document: str, *, collection: str = "default") -> Flow[StoredDocument]:
    """Returns a document, by id or by name, with its stored text.

    Raises:
        ClientError: The call failed.

    Example:
        >>> print(client.document("lubrication-schedule.md").text)
    """
    request = documents_pb2.GetDocumentRequest(
        collection=sendable("collection", collection), document=sendable("document", document)
    )
    return replies.stored_document((yield from repeated(GET_DOCUMENT, lambda: request, terms)))


def documents(terms: CallOptions, *, collection: str = "default") -> Streaming[DocumentInfo]:
    """Yields the records of a collection's documents, in order of id.

    Raises:
        ClientError: A call failed.

    Example:
        >>> for info in client.documents():
        ...     print(info.name, info.chunks)
    """
    request = documents_pb2.ListDocumentsRequest(collection=sendable("collection", collection), page_size=500)
    while True:
        reply = yield from repeated(LIST_DOCUMENTS, lambda: request, terms)
        for message in reply.documents:
            yield Tell(replies.document_info(message))
        if not reply.next_page_token:
            return
        request.page_token = reply.next_page_token


def delete(terms: CallOptions, document: str, *, collection: str = "default") -> Flow[DocumentInfo]:
    """Removes a document, by id or by name, and returns its record.

    Raises:
        ClientError: The call failed.

    Example:
        >>> client.delete("note.txt")
    """
    request = documents_pb2.DeleteDocumentRequest(
        collection=sendable("collection", collection), document=sendable("document", document)
    )
    reply = yield from repeated(DELETE_DOCUMENT, lambda: request, terms)
    return replies.document_info(reply.document)


def create_collection(
    terms: CallOptions, name: str, settings: CollectionSettings | None = None
) -> Flow[CollectionInfo]:
    """Makes an empty collection, which stays until it is deleted. Not repeated.

    Raises:
        ClientError: The call failed; ALREADY_EXISTS, there is one of that name.

    Example:
        >>> client.create_collection("boiler", CollectionSettings(description="Boiler house"))
    """
    request = collections_pb2.CreateCollectionRequest(
        name=sendable("name", name), settings=settings_message(settings or CollectionSettings())
    )
    return collection_info((yield from exchange(CREATE_COLLECTION, request, terms)).collection)


def collection(terms: CallOptions, name: str) -> Flow[CollectionInfo]:
    """Returns a collection.

    Raises:
        ClientError: The call failed.

    Example:
        >>> print(client.collection("default").documents)
    """
    request = collections_pb2.GetCollectionRequest(name=sendable("name", name))
    return collection_info((yield from repeated(GET_COLLECTION, lambda: request, terms)).collection)


def collections(terms: CallOptions) -> Flow[tuple[CollectionInfo, ...]]:
    """Returns all collections, by name.

    Raises:
        ClientError: The call failed.

    Example:
        >>> print([known.name for known in client.collections()])
    """
    reply = yield from repeated(LIST_COLLECTIONS, collections_pb2.ListCollectionsRequest, terms)
    return tuple(collection_info(message) for message in reply.collections)


def update_collection(
    terms: CallOptions, name: str, settings: CollectionSettings, fields: Names[str]
) -> Flow[CollectionInfo]:
    """Changes a collection's settings.

    Args:
        name: Its name.
        settings: Has the new values.
        fields: Which fields of ``CollectionSettings`` to take over.

    Raises:
        ClientError: The call failed.

    Example:
        >>> client.update_collection("boiler", CollectionSettings(chunk_tokens=160), ["chunk_tokens"])
    """
    request = update_request(name, settings, fields)
    return collection_info((yield from repeated(UPDATE_COLLECTION, lambda: request, terms)).collection)


def delete_collection(terms: CallOptions, name: str) -> Flow[CollectionInfo]:
    """Removes a collection with all that is in it, and returns what it was.

    Raises:
        ClientError: The call failed.

    Example:
        >>> client.delete_collection("boiler")
    """
    request = collections_pb2.DeleteCollectionRequest(name=sendable("name", name))
    return collection_info((yield from repeated(DELETE_COLLECTION, lambda: request, terms)).collection)
