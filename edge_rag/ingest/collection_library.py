"""Makes, changes and removes collections."""

from __future__ import annotations

from typing import Any

from edge_rag.core.documents.collection import CollectionInfo, CollectionSettings
from edge_rag.ingest.library import Library
from edge_rag.storage.collections import CollectionStore
from edge_rag.storage.names import require_collection_name


class CollectionLibrary:
    """Implements the pipeline's ``CollectionLibrary``. All methods may be called from any thread."""

    def __init__(self, store: CollectionStore, library: Library) -> None:
        self._store = store
        self._library = library

    def create(self, name: str, settings: CollectionSettings) -> CollectionInfo:
        """Makes an empty collection; it stays until it is deleted.

        Raises:
            InvalidRequest: No collection may be called so.
            CollectionExists: There is one of that name.
            StorageError: The data directory failed; nothing was made.
        """
        require_collection_name(name)
        return self._store.create(name, settings)

    def get(self, name: str) -> CollectionInfo:
        """Returns a collection.

        Raises:
            CollectionNotFound: There is none of that name.
            StorageError: The data directory failed.
        """
        return self._store.get(name)

    def list(self) -> tuple[CollectionInfo, ...]:
        """Returns all collections, by name.

        Raises:
            StorageError: The data directory failed.
        """
        return self._store.list()

    def update(self, name: str, changes: dict[str, Any]) -> CollectionInfo:
        """Changes settings, given by field of ``CollectionSettings``; the collection stays until it is deleted.

        Raises:
            CollectionNotFound: There is none of that name.
            StorageError: The data directory failed; nothing was changed.
        """
        return self._store.update(name, changes)

    def delete(self, name: str) -> CollectionInfo:
        """Removes a collection with its documents, text, full text, vectors and index; durable when this returns.

        Raises:
            CollectionNotFound: There is none of that name.
            StorageError: The data directory failed; nothing was removed.
        """
        return self._library.drop(lambda: self._store.drop(name))
