"""Documents, chunks, full text and vectors in SQLite, the source of truth; indexes and caches are rebuilt from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import apsw
import numpy as np
from numpy.typing import NDArray

from edge_rag.core.documents.document import (
    Chunk,
    ChunkTerms,
    Content,
    DocumentInfo,
    DocumentPlace,
)
from edge_rag.core.documents.jobs import JobDocumentState, Ticket
from edge_rag.core.documents.listing import EVERYTHING, DocumentSelection, ListCursor, ListOrder
from edge_rag.core.documents.metadata import Metadata, encode_metadata, validate_metadata
from edge_rag.core.documents.parts import ChunkPlace
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage, Surroundings
from edge_rag.errors import InvalidRequest, OriginalNotKept
from edge_rag.storage.database import Database
from edge_rag.storage.filter_sql import SqlCondition, SqlValue, joined, search_condition
from edge_rag.storage.filter_sql import condition as filter_condition
from edge_rag.storage.jobs import complete, is_queued, supersede
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.spool.originals import OriginalFile, Originals
from edge_rag.storage.statements import (
    COLLECTIONS,
    INFO,
    Collection,
    DocumentChange,
    NewDocument,
    StoredPassage,
    collection_of,
    decode_lines,
    drop_collection,
    ensure_collection,
    ensure_embedder,
    info_of,
    insert_chunk,
    insert_document,
    insert_metadata,
    new_document_id,
    remove_document,
    renew_generation,
    require_collection,
    require_document,
    stored_metadata,
)
from edge_rag.storage.texts import MAX_AROUND, TextReader, chunk_places, chunk_reaching, whole_lines
from edge_rag.storage.words.chunk_terms import held_terms
from edge_rag.storage.words.vocabulary import count_words

_BATCH_ROWS = 500

_ID: Final = "d.id"
_LISTED: Final = {
    ListOrder.ADDED: _ID,
    ListOrder.NAME: "d.name COLLATE NOCASE",
    ListOrder.SIZE: "d.size_bytes",
    ListOrder.STORED: "d.ingested_at",
}
"""What documents are listed by; each has an index."""


MAX_BEFORE: Final = 1024
"""Most characters of the text before a chunk that is in no chunk."""


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk as stored.

    Attributes:
        before: Text between the chunk before and this one, at most ``MAX_BEFORE`` characters of it.
    """

    chunk_id: ChunkId
    chunk: Chunk
    before: str


def _continue() -> None:
    pass


class DocumentStore:
    """Reads and writes documents. May be used from any thread; every write is one transaction, durable on return.

    Args:
        spool: Holds the bytes of queued documents; those of superseded ones are deleted.
        originals: Keeps the bytes of stored documents.
    """

    def __init__(self, database: Database, spool: Spool, originals: Originals) -> None:
        self._database = database
        self._spool = spool
        self._originals = originals
        self._texts = TextReader()

    def collections(self) -> tuple[Collection, ...]:
        with self._database.reading() as connection:
            rows = connection.execute(f"{COLLECTIONS} ORDER BY name").fetchall()
        return tuple(collection_of(row) for row in rows)

    def document_counts(self) -> dict[str, int]:
        """Returns the number of documents by collection name."""
        with self._database.reading() as connection:
            return dict(
                connection.execute(
                    "SELECT c.name, count(d.document) FROM collections c LEFT JOIN documents d USING (collection) "
                    "GROUP BY c.name ORDER BY c.name"
                ).fetchall()
            )

    def collection(self, name: str) -> Collection:
        with self._database.reading() as connection:
            return require_collection(connection, name)

    def find(self, collection: str, name: str) -> DocumentInfo | None:
        """Returns the record of the document with exactly this name, or None."""
        with self._database.reading() as connection:
            row = connection.execute(
                f"SELECT {INFO} FROM documents d JOIN collections c USING (collection) WHERE c.name = ? AND d.name = ?",
                (collection, name),
            ).fetchone()
        return None if row is None else info_of(row)

    def by_id(self, document: DocumentId) -> DocumentInfo | None:
        """Returns the record of the document with this id in any collection, or None."""
        with self._database.reading() as connection:
            row = connection.execute(
                f"SELECT {INFO} FROM documents d JOIN collections c USING (collection) WHERE d.id = ?", (document,)
            ).fetchone()
        return None if row is None else info_of(row)

    def ingested_with(self, document: DocumentId) -> tuple[Metadata, int | None]:
        """Returns the metadata that a client gave with a document, and the size its chunks were packed to.

        Both are empty if the document does not exist. The size is None if an older version chunked the document.
        """
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT given_metadata, chunk_tokens FROM documents WHERE id = ?", (document,)
            ).fetchone()
        return ({}, None) if row is None else (stored_metadata(row[0]), row[1])

    def get(
        self, collection: str, document: str, start: int = 0, end: int | None = None, max_bytes: int | None = None
    ) -> tuple[DocumentInfo, str]:
        """Returns a document's record and a range of its stored text, by id or else by name.

        Args:
            end: One past the last character; None for the end of the text.
            max_bytes: Most bytes of UTF-8; the range ends earlier if it has more. None for no bound.
        """
        with self._database.snapshot() as connection:
            number = require_document(connection, require_collection(connection, collection), document)
            text = self._texts.read(connection, number, start, end, max_bytes)
            return _record(connection, number), text

    def place(self, collection: str, document: str, position: int) -> DocumentPlace:
        """Returns where in a document a character of its text is, by the passage that has it or precedes it."""
        with self._database.snapshot() as connection:
            number = require_document(connection, require_collection(connection, collection), document)
            ordinal = chunk_reaching(connection, number, _record(connection, number).chunks, position)
            rows = connection.execute(
                "SELECT ordinal, first, page, context, lines FROM chunks WHERE document = ? "
                "AND ordinal BETWEEN ? AND ? ORDER BY ordinal",
                (number, ordinal - 1, ordinal),
            ).fetchall()
        found = DocumentPlace()
        for each, first, page, context, lines in rows:
            if first <= position or each == 0:
                found = DocumentPlace(page, tuple(json.loads(context)))
            if each == ordinal:  # the text before a chunk counts as part of it
                found = replace(found, line=decode_lines(lines).line_at(position))
        return found

    def get_with_chunks(
        self, collection: str, document: str, start: int, end: int
    ) -> tuple[DocumentInfo, str, tuple[ChunkPlace, ...]]:
        """Returns a document's record, a range of its text, and the chunks with text in the range and the next one.

        Args:
            end: One past the last character.
        """
        with self._database.snapshot() as connection:
            number = require_document(connection, require_collection(connection, collection), document)
            info = _record(connection, number)
            text = self._texts.read(connection, number, start, end)
            return info, text, chunk_places(connection, number, info.chunks, start, end)

    def chunks(
        self, collection: str, document: str, after: int | None, limit: int, max_bytes: int
    ) -> tuple[Collection, DocumentInfo, tuple[ChunkRow, ...]]:
        """Returns up to ``limit`` chunks of a document, found by id or else by name, in order.

        Args:
            after: Position of the chunk that they follow; None for the first ones.
            max_bytes: They end with the one that brings their texts to this many bytes of UTF-8.
        """
        with self._database.snapshot() as connection:
            stored = require_collection(connection, collection)
            number = require_document(connection, stored, document)
            info = _record(connection, number)
            query = (
                "SELECT chunk, ordinal, first, past, page, context, text, "
                "ifnull((SELECT p.past FROM chunks p WHERE p.document = k.document AND p.ordinal = k.ordinal - 1), 0) "
                "FROM chunks k WHERE document = ? AND ordinal > ? ORDER BY ordinal LIMIT ?"
            )
            with closing(connection.execute(query, (number, -1 if after is None else after, limit))) as found:
                rows = list(_until(found, max_bytes))
            chunks = []
            for chunk_id, ordinal, first, past, page, context, text, ended in rows:
                gap = min(first, ended + MAX_BEFORE)
                before = self._texts.read(connection, number, ended, gap) if gap > ended else ""
                chunk = Chunk(ordinal, first, past, page, tuple(json.loads(context)), text)
                chunks.append(ChunkRow(ChunkId(chunk_id), chunk, before))
        return stored, info, tuple(chunks)

    def chunk_terms(self, collection: str, document: str, position: int) -> ChunkTerms:
        """Returns the terms that the full text index holds of a chunk; the document is found by id or else by name."""
        with self._database.snapshot() as connection:
            stored = require_collection(connection, collection)
            number = require_document(connection, stored, document)
            row = connection.execute(
                "SELECT chunk, text, context FROM chunks WHERE document = ? AND ordinal = ?", (number, position)
            ).fetchone()
            if row is None:
                raise InvalidRequest("position", f"document {document!r} has no chunk {position:,}")
            chunk, text, context = row
            (total,) = connection.execute(
                "SELECT count(*) FROM chunks WHERE collection = ?", (stored.number,)
            ).fetchone()
            terms, left_out = held_terms(connection, stored.number, ChunkId(chunk), text, context)
        return ChunkTerms(position, terms, left_out, total)

    def list(
        self,
        collection: str,
        after: ListCursor | None,
        limit: int,
        max_bytes: int | None = None,
        *,
        selection: DocumentSelection = EVERYTHING,
        skip: int = 0,
    ) -> tuple[DocumentInfo, ...]:
        """Returns up to ``limit`` records of a selection, in its order.

        The records end with the one that brings them to ``max_bytes`` as they are stored, if that is given.

        Args:
            after: Where they begin; None for the first.
            skip: Documents that are left out before they begin.
        """
        key, compared = _LISTED[selection.order], "<" if selection.descending else ">"
        direction = " DESC" if selection.descending else ""
        with self._database.snapshot() as connection:
            number = require_collection(connection, collection).number
            condition = _selected(selection, number)
            values: tuple[SqlValue, ...] = (number, *condition.parameters)
            begin = ""
            if after is not None:
                # SQLite finds the first row in the index by the first term; row values have no collation for that.
                begin = f"AND {key} {compared}= ? AND ({key} {compared} ? OR d.id {compared} ?) "
                values = (*values, after.key, after.key, after.document_id)
            ordered = f"{key}{direction}" + ("" if key == _ID else f", {_ID}{direction}")
            query = (
                f"SELECT {INFO} FROM collections c CROSS JOIN documents d ON d.collection = c.collection "
                f"WHERE c.collection = ? AND ({condition.sql}) {begin}ORDER BY {ordered} LIMIT ? OFFSET ?"
            )
            with closing(connection.execute(query, (*values, limit, skip))) as rows:
                return tuple(map(info_of, _until(rows, max_bytes)))

    def count(self, collection: str, selection: DocumentSelection) -> int:
        with self._database.snapshot() as connection:
            number = require_collection(connection, collection).number
            condition = _selected(selection, number)
            query = f"SELECT count(*) FROM documents d WHERE d.collection = ? AND ({condition.sql})"
            (found,) = connection.execute(query, (number, *condition.parameters)).fetchone()
        return int(found)

    def put(self, document: NewDocument, check: Callable[[], None] = _continue) -> DocumentChange:
        """Writes a document. A document of the same name is replaced and its id kept.

        Queued documents of that name are superseded.

        Args:
            check: Called now and then; an exception from it ends the transaction without a change.
        """
        replaced: set[str] = set()
        with self._originals.changing(document.content), self._database.writing() as connection:
            superseded = supersede(connection, document.collection, document.name, None, "a newer one was ingested")
            change = self._write(connection, document, check, replaced)
        self._spool.discard(*superseded)
        self._originals.discard(*replaced)
        return change

    def put_accepted(
        self, document: NewDocument, ticket: Ticket, check: Callable[[], None] = _continue
    ) -> DocumentChange | None:
        """Writes a document that was queued, and completes its ticket in the same transaction.

        Returns:
            The change, or None if nothing was written because the ticket is no longer queued.
        """
        replaced: set[str] = set()
        with self._originals.changing(document.content), self._database.writing() as connection:
            if not is_queued(connection, ticket):
                return None
            superseded = supersede(connection, document.collection, document.name, ticket, "a newer one was ingested")
            change = self._write(connection, document, check, replaced)
            state = JobDocumentState.REPLACED if change.removed else JobDocumentState.ADDED
            complete(connection, ticket, state, document.parsed.note, change.info.document_id)
        self._spool.discard(*superseded)
        self._originals.discard(*replaced)
        return change

    def keep_original(self, document: DocumentInfo, content: Content) -> DocumentInfo:
        """Keeps the bytes of a stored document, if originals are kept and its own is not; returns its record then."""
        if not self._originals.keep or (
            document.original and self._originals.has(document.sha256, document.size_bytes)
        ):
            return document
        with self._originals.changing(content), self._database.writing() as connection:
            connection.execute(
                "UPDATE documents SET original = ? WHERE id = ? AND sha256 = ?",
                (int(self._originals.add(content)), document.document_id, content.sha256),
            )
        return replace(document, original=True)

    def open_original(self, collection: str, document: str) -> tuple[DocumentInfo, OriginalFile]:
        """Opens the bytes of a document, by id or else by name; the caller closes them.

        Raises:
            OriginalNotKept: Its bytes are not kept.
        """
        info, _ = self.get(collection, document, 0, 0)
        if not info.original:
            raise OriginalNotKept(info.name)
        return info, self._originals.open(info.sha256, info.size_bytes)

    def supersede_queued(self, collection: str, document: str) -> None:
        """Supersedes queued documents of a name: the stored document was ingested after they were accepted."""
        with self._database.reading() as connection:
            waiting = connection.execute(
                "SELECT 1 FROM job_documents WHERE collection = ? AND name = ? AND state = 'queued'",
                (collection, document),
            ).fetchone()
        if waiting is not None:
            with self._database.writing() as connection:
                superseded = supersede(connection, collection, document, None, "a newer one was ingested")
            self._spool.discard(*superseded)

    def delete(self, collection: str, document: str) -> DocumentChange:
        """Removes a document, and its collection with the last document unless the collection is kept."""

        def remove(connection: apsw.Connection) -> tuple[DocumentChange, tuple[str, ...]]:
            stored = require_collection(connection, collection)
            number = require_document(connection, stored, document)
            info = _record(connection, number)
            removed = remove_document(connection, stored.number, number)
            superseded = supersede(connection, collection, info.name, None, "the document was deleted")
            (remaining,) = connection.execute(
                "SELECT EXISTS (SELECT 1 FROM documents WHERE collection = ?)", (stored.number,)
            ).fetchone()
            renew_generation(connection, stored.number)
            after = require_collection(connection, collection)
            dropped = not remaining and not stored.kept
            if dropped:
                after = replace(after, epoch=drop_collection(connection, stored.number))
            return DocumentChange(after, removed, (), dropped, info=info), superseded

        change, superseded = self._database.remove(remove)
        self._spool.discard(*superseded)
        if change.info.original:
            self._originals.discard(change.info.sha256)
        return change

    def update_metadata(self, collection: str, document: str, given: Metadata) -> DocumentChange:
        """Replaces the metadata that a client gave with a document; metadata found in it stays."""
        with self._database.writing() as connection:
            before_change = require_collection(connection, collection)
            number, row = before_change.number, require_document(connection, before_change, document)
            stored, old = connection.execute(
                "SELECT metadata, given_metadata FROM documents WHERE document = ?", (row,)
            ).fetchone()
            before = stored_metadata(old)
            found = {key: value for key, value in stored_metadata(stored).items() if key not in before}
            metadata = validate_metadata({**found, **given})
            connection.execute(
                "UPDATE documents SET metadata = ?, given_metadata = ? WHERE document = ?",
                (encode_metadata(metadata), encode_metadata(given), row),
            )
            connection.execute("DELETE FROM document_metadata WHERE document = ?", (row,))
            insert_metadata(connection, number, row, metadata)
            renew_generation(connection, number)
            changed = require_collection(connection, collection)
            return DocumentChange(changed, (), (), info=_record(connection, row))

    def passages(self, chunks: Sequence[ChunkId]) -> dict[ChunkId, StoredPassage]:
        """Returns the passages of those of the given chunks that are still stored."""
        found: dict[ChunkId, StoredPassage] = {}
        with self._database.reading() as connection:
            for first in range(0, len(chunks), _BATCH_ROWS):
                batch = chunks[first : first + _BATCH_ROWS]
                rows = connection.execute(
                    "SELECT k.chunk, d.id, d.name, k.page, k.first, k.past, k.text, k.context, d.metadata, k.ordinal, "
                    "d.ingested_at "
                    f"FROM chunks k JOIN documents d USING (document) WHERE k.chunk IN ({', '.join('?' * len(batch))})",
                    batch,
                )
                for row in rows:
                    values: tuple[Any, ...] = (*row[:-4], tuple(json.loads(row[-4])), stored_metadata(row[-3]))
                    ingested_at = datetime.fromisoformat(row[-1])
                    found[ChunkId(row[0])] = StoredPassage(Passage(*values), row[-2], ingested_at)
        return found

    def text_around(self, chunk: ChunkId, start: int, end: int) -> str | None:
        """Returns a range of the stored text of a chunk's document; None if the chunk is no longer stored."""
        with self._database.snapshot() as connection:
            row = connection.execute("SELECT document FROM chunks WHERE chunk = ?", (chunk,)).fetchone()
            return None if row is None else self._texts.read(connection, row[0], start, end)

    def surroundings(self, passage: Passage) -> Surroundings | None:
        """Returns a passage with up to ``MAX_AROUND`` characters on each side; None if it is no longer stored."""
        with self._database.snapshot() as connection:
            row = connection.execute(
                "SELECT document, d.characters, d.chunks FROM chunks k JOIN documents d USING (document) "
                "WHERE k.chunk = ?",
                (passage.chunk_id,),
            ).fetchone()
            if row is None:
                return None
            number, characters, chunks = row
            at, until = max(0, passage.start - MAX_AROUND), min(characters, passage.end + MAX_AROUND)
            text = self._texts.read(connection, number, at, until)
            places = chunk_places(connection, number, chunks, at, until)
        start, end = whole_lines(text, passage.start - at, passage.end - at, at == 0, until == characters)
        return Surroundings(at + start, text[start:end], places)

    def similarities(self, chunks: Sequence[ChunkId], question: NDArray[np.float32]) -> dict[ChunkId, float]:
        """Returns the cosine similarity of a question vector to the chunks that are still stored; vectors have length
        1.
        """
        found: dict[ChunkId, float] = {}
        with self._database.reading() as connection:
            for chunk in chunks:
                row = connection.execute("SELECT embedding FROM chunks WHERE chunk = ?", (chunk,)).fetchone()
                if row is not None and len(row[0]) == question.nbytes:
                    found[chunk] = float(np.frombuffer(row[0], dtype="<f4") @ question)
        return found

    def _write(
        self, connection: apsw.Connection, document: NewDocument, check: Callable[[], None], replaced: set[str]
    ) -> DocumentChange:
        """Writes a document; adds the SHA-256 of the original of the document that it replaces to ``replaced``."""
        collection = ensure_collection(connection, document.collection)
        embedder = ensure_embedder(connection, document.embedder, document.vectors.shape[1])
        old = connection.execute(
            "SELECT document, id, sha256, original FROM documents WHERE collection = ? AND name = ?",
            (collection, document.name),
        ).fetchone()
        removed = remove_document(connection, collection, old[0]) if old else ()
        replaced |= {old[2]} if old and old[3] else set()
        document_id = DocumentId(old[1]) if old else new_document_id()
        parsed = document.parsed
        info = DocumentInfo(
            document_id=document_id,
            collection=document.collection,
            name=document.name,
            title=parsed.title,
            media_type=document.media_type,
            sha256=document.sha256,
            size_bytes=document.size_bytes,
            characters=len(parsed.text),
            chunks=len(document.chunks),
            pages=parsed.pages,
            ingested_at=datetime.now(UTC),
            metadata=document.metadata,
            original=self._originals.add(document.content),
        )
        number = insert_document(
            connection, collection, info, parsed.text, document.given_metadata, document.chunk_tokens
        )
        added: list[ChunkId] = []
        for chunk, vector in zip(document.chunks, document.vectors, strict=True):
            check()
            added.append(insert_chunk(connection, collection, number, chunk, embedder, vector))
        count_words(connection, collection, number)
        renew_generation(connection, collection)
        return DocumentChange(require_collection(connection, document.collection), removed, tuple(added), info=info)


def _selected(selection: DocumentSelection, collection: int) -> SqlCondition:
    found = [SqlCondition("TRUE", ())]
    if selection.search.strip():
        found.append(search_condition(selection.search, collection))
    if selection.filter is not None:
        found.append(filter_condition(selection.filter, collection))
    return joined(" AND ", found)


def _record(connection: apsw.Connection, number: int) -> DocumentInfo:
    row = connection.execute(
        f"SELECT {INFO} FROM documents d JOIN collections c USING (collection) WHERE d.document = ?", (number,)
    ).fetchone()
    assert row is not None, "the document was found in the same transaction"
    return info_of(row)


def _until(rows: Iterable[Sequence[Any]], max_bytes: int | None) -> Iterator[Sequence[Any]]:
    """Yields rows until their texts together have ``max_bytes``."""
    size = 0
    for row in rows:
        yield row
        size += sum(len(value.encode()) for value in row if isinstance(value, str))
        if max_bytes is not None and size >= max_bytes:
            return
