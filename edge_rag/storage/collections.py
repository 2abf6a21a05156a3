"""Collections in SQLite: their names and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import apsw

from edge_rag.core.documents.collection import CollectionInfo, CollectionSettings
from edge_rag.errors import CollectionExists, StorageFull
from edge_rag.storage.database import Database
from edge_rag.storage.jobs import supersede_all
from edge_rag.storage.names import require_collection_name
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.spool.originals import Originals
from edge_rag.storage.statements import (
    decode_settings,
    drop_collection,
    encode_settings,
    insert_collection,
    remove_document,
    require_collection,
)

_DOCUMENTS: Final = "SELECT document FROM documents WHERE collection = ?"
_ORIGINALS: Final = "SELECT DISTINCT sha256 FROM documents WHERE collection = ? AND original"
_INFO: Final = (
    "SELECT c.name, c.settings, count(d.document), coalesce(sum(d.chunks), 0), c.kept, c.created_at, "
    "coalesce(sum(d.size_bytes), 0), max(d.ingested_at) "
    "FROM collections c LEFT JOIN documents d USING (collection)"
)


class CollectionStore:
    """Reads and writes collections. May be used from any thread; every write is one transaction, durable on return.

    Args:
        spool: Holds the bytes of queued documents; those of superseded ones are deleted.
        originals: Keeps the bytes of stored documents.
    """

    def __init__(self, database: Database, spool: Spool, originals: Originals) -> None:
        self._database = database
        self._spool = spool
        self._originals = originals

    def create(self, name: str, settings: CollectionSettings) -> CollectionInfo:
        """Creates an empty collection that is kept without documents.

        Raises:
            CollectionExists: A collection of that name exists.
        """
        require_collection_name(name)
        with self._database.writing() as connection:
            if connection.execute("SELECT 1 FROM collections WHERE name = ?", (name,)).fetchone():
                raise CollectionExists(name)
            insert_collection(connection, name, datetime.now(UTC), encode_settings(settings), kept=True)
            return _info(connection, name)

    def get(self, name: str) -> CollectionInfo:
        with self._database.snapshot() as connection:
            return _info(connection, name)

    def list(self) -> tuple[CollectionInfo, ...]:
        with self._database.reading() as connection:
            rows = connection.execute(f"{_INFO} GROUP BY c.collection ORDER BY c.name").fetchall()
        return tuple(_info_of(row) for row in rows)

    def update(self, name: str, changes: dict[str, Any]) -> CollectionInfo:
        """Changes settings; from then on the collection is kept without documents."""
        with self._database.writing() as connection:
            collection = require_collection(connection, name)
            settings = replace(collection.settings, **changes)
            connection.execute(
                "UPDATE collections SET settings = ?, kept = 1 WHERE collection = ?",
                (encode_settings(settings), collection.number),
            )
            return _info(connection, name)

    def drop(self, name: str) -> tuple[int, CollectionInfo, int]:
        """Removes a collection with its documents, and supersedes documents queued for it.

        Returns:
            Its row id, its last state, and an epoch later than all its epochs.
        """
        number, info = self._info_of(name)
        with self._database.reading() as connection:
            originals = connection.execute(_ORIGINALS, (number,)).fetchall()

        def remove(connection: apsw.Connection) -> tuple[int, tuple[str, ...]]:
            for (document,) in connection.execute(_DOCUMENTS, (number,)).fetchall():
                remove_document(connection, number, document)
            epoch = drop_collection(connection, number)
            connection.execute("DELETE FROM attachments WHERE collection = ?", (name,))
            connection.execute("DELETE FROM feedback WHERE collection = ?", (name,))
            return epoch, supersede_all(connection, name, "the collection was deleted")

        try:
            epoch, superseded = self._database.remove(remove)
        except StorageFull:
            # The space kept for deletions is that of the largest document, not of all together.
            self._remove_documents(number)
            epoch, superseded = self._database.remove(remove)
        self._spool.discard(*superseded)
        self._originals.discard(*(sha256 for (sha256,) in originals))
        return number, info, epoch

    def _info_of(self, name: str) -> tuple[int, CollectionInfo]:
        with self._database.snapshot() as connection:
            return require_collection(connection, name).number, _info(connection, name)

    def _remove_documents(self, number: int) -> None:
        with self._database.reading() as connection:
            documents = connection.execute(_DOCUMENTS, (number,)).fetchall()
        for (document,) in documents:
            self._database.remove(partial(remove_document, collection=number, document=document))


def _info(connection: apsw.Connection, name: str) -> CollectionInfo:
    number = require_collection(connection, name).number
    return _info_of(connection.execute(f"{_INFO} WHERE c.collection = ? GROUP BY c.collection", (number,)).fetchone())


def _info_of(row: Sequence[Any] | None) -> CollectionInfo:
    if row is None:
        raise apsw.InternalError("a collection that was found has no row")
    name, settings, documents, chunks, kept, created_at, size_bytes, ingested_at = row
    made, stored = (None if moment is None else datetime.fromisoformat(moment) for moment in (created_at, ingested_at))
    return CollectionInfo(name, decode_settings(settings), documents, chunks, bool(kept), made, size_bytes, stored)
