"""Documents that are there, and collections."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Iterator

import grpc

from edge_rag.api.v1 import collections_pb2, documents_pb2
from edge_rag.client import replies
from edge_rag.client.collection_messages import collection_info, settings_message, update_request
from edge_rag.client.connection import Connection
from edge_rag.client.failures import client_error
from edge_rag.client.requests import sendable
from edge_rag.client.values import StoredDocument
from edge_rag.core.collection import CollectionInfo, CollectionSettings
from edge_rag.core.document import DocumentInfo


class DocumentCalls(Connection):
    """Reads and removes documents; makes, changes and removes collections."""

    def document(self, document: str, *, collection: str = "default") -> StoredDocument:
        """Returns a document, by id or by name, with its stored text.

        Raises:
            ClientError: The call failed.
        """
        request = documents_pb2.GetDocumentRequest(
            collection=sendable("collection", collection), document=sendable("document", document)
        )
        return replies.stored_document(self._repeat(lambda timeout_s: self._documents.Get(request, timeout=timeout_s)))

    def documents(self, *, collection: str = "default") -> Iterator[DocumentInfo]:
        """Yields the records of a collection's documents, in order of id.

        Raises:
            ClientError: A call failed.
        """
        request = documents_pb2.ListDocumentsRequest(collection=sendable("collection", collection), page_size=500)
        while True:
            reply = self._repeat(lambda timeout_s: self._documents.List(request, timeout=timeout_s))
            yield from (replies.document_info(document) for document in reply.documents)
            if not reply.next_page_token:
                return
            request.page_token = reply.next_page_token

    def delete(self, document: str, *, collection: str = "default") -> DocumentInfo:
        """Removes a document, by id or by name, and returns its record.

        Raises:
            ClientError: The call failed.
        """
        request = documents_pb2.DeleteDocumentRequest(
            collection=sendable("collection", collection), document=sendable("document", document)
        )
        reply = self._repeat(lambda timeout_s: self._documents.Delete(request, timeout=timeout_s))
        return replies.document_info(reply.document)

    def create_collection(self, name: str, settings: CollectionSettings | None = None) -> CollectionInfo:
        """Makes an empty collection, which stays until it is deleted. Not repeated.

        Raises:
            ClientError: The call failed; ALREADY_EXISTS, there is one of that name.
        """
        request = collections_pb2.CreateCollectionRequest(
            name=sendable("name", name), settings=settings_message(settings or CollectionSettings())
        )
        try:
            return collection_info(self._collections.Create(request, timeout=self._timeout_s).collection)
        except grpc.RpcError as failure:
            raise client_error(failure, self.address) from failure

    def collection(self, name: str) -> CollectionInfo:
        """Returns a collection.

        Raises:
            ClientError: The call failed.
        """
        request = collections_pb2.GetCollectionRequest(name=sendable("name", name))
        reply = self._repeat(lambda timeout_s: self._collections.Get(request, timeout=timeout_s))
        return collection_info(reply.collection)

    def collections(self) -> tuple[CollectionInfo, ...]:
        """Returns all collections, by name.

        Raises:
            ClientError: The call failed.
        """
        request = collections_pb2.ListCollectionsRequest()
        reply = self._repeat(lambda timeout_s: self._collections.List(request, timeout=timeout_s))
        return tuple(collection_info(collection) for collection in reply.collections)

    def update_collection(self, name: str, settings: CollectionSettings, fields: Names[str]) -> CollectionInfo:
        """Changes a collection's settings.

        Args:
            name: Its name.
            settings: Has the new values.
            fields: Which fields of ``CollectionSettings`` to take over.

        Raises:
            ClientError: The call failed.
        """
        request = update_request(name, settings, fields)
        reply = self._repeat(lambda timeout_s: self._collections.Update(request, timeout=timeout_s))
        return collection_info(reply.collection)

    def delete_collection(self, name: str) -> CollectionInfo:
        """Removes a collection with all that is in it, and returns what it was.

        Raises:
            ClientError: The call failed.
        """
        request = collections_pb2.DeleteCollectionRequest(name=sendable("name", name))
        reply = self._repeat(lambda timeout_s: self._collections.Delete(request, timeout=timeout_s))
        return collection_info(reply.collection)
