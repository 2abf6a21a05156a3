"""Ingests and removes documents, and removes collections, in the store and in the indexes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.analysis.languages import sure_language_of
from edge_rag.core.documents.collection import BackendKind, CollectionInfo
from edge_rag.core.documents.document import (
    Chunk,
    ChunkPage,
    DocumentInfo,
    IngestOutcome,
    IngestStatus,
    ParsedDocument,
    RejectionCause,
    StoredChunk,
    Upload,
)
from edge_rag.core.documents.jobs import IngestPhase, Ticket
from edge_rag.core.documents.metadata import Metadata, MetadataValue, validate_metadata
from edge_rag.core.monitoring.status import IndexInUse
from edge_rag.core.placement import OffloadRule
from edge_rag.core.ports import Embedder, Embedding, IngestTask
from edge_rag.errors import CollectionNotFound, DocumentRejected, InvalidRequest, StorageCorrupt
from edge_rag.index.manager import VectorIndexes
from edge_rag.index.token_vectors import IngestedVectors, TokenVectorFile
from edge_rag.ingest.chunking import SPECIAL_TOKENS, ChunkLimits, chunk_document, index_text
from edge_rag.ingest.embedding import LocalEmbedding
from edge_rag.ingest.parsing.sandbox.pool import ParserPool
from edge_rag.storage.collections import CollectionStore
from edge_rag.storage.documents import DocumentStore
from edge_rag.storage.names import require_collection_name, require_document_name
from edge_rag.storage.statements import Change, DocumentChange, NewDocument


class _Unscheduled:
    """Implements ``IngestTask`` for a document that is ingested alone."""

    def check(self) -> None:
        pass

    def parsing(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def embedding(self) -> AbstractContextManager[None]:
        return nullcontext()

    def pause(self, worked_s: float) -> None:
        pass

    def charge(self, seconds: float) -> None:
        pass

    def report(self, phase: IngestPhase, done: int, total: int) -> None:
        pass


UNSCHEDULED: Final = _Unscheduled()
"""The task of a document that is ingested alone."""


class DocumentLibrary:
    """Ingests and removes documents, in the store and in the indexes. All methods may be called from any thread.

    A collection that was not created explicitly exists while it holds documents: the first one creates it, and it is
    removed with the last one.

    Args:
        on_removed: Called with a collection's name and its new epoch after text of it was removed, so that everything
            derived from earlier epochs can be discarded.
        working: Returns a context that is entered while chunks are embedded on this box.
        embedding: Source of the vectors; the embedder if None.
        token_vectors: Keeps the token vectors of passages that are embedded on this box; None keeps none.
    """

    def __init__(
        self,
        store: DocumentStore,
        collections: CollectionStore,
        vectors: VectorIndexes,
        parsers: ParserPool,
        embedder: Embedder,
        chunk_limits: ChunkLimits,
        on_removed: Callable[[str, int], None],
        working: Callable[[], AbstractContextManager[None]] = nullcontext,
        embedding: Embedding | None = None,
        token_vectors: TokenVectorFile | None = None,
    ) -> None:
        self._store = store
        self._collections = collections
        self._vectors = vectors
        self._parsers = parsers
        self._embedder = embedder
        self._embedding = embedding or LocalEmbedding(embedder)
        self._chunk_limits = chunk_limits
        self._on_removed = on_removed
        self._working = working
        self._token_vectors = token_vectors
        self._max_chunk_tokens = embedder.max_tokens - chunk_limits.context - SPECIAL_TOKENS
        self._committing = threading.Lock()

    def ingest(self, upload: Upload, task: IngestTask = UNSCHEDULED) -> IngestOutcome:
        """Ingests a document; unless the result is REJECTED, the document is durable and can be found on return.

        The same bytes under the same name with the same given metadata are UNCHANGED, unless the size of chunks has
        changed. A rejected document leaves an older version as it was.
        """
        with self._ingesting() as tokens:
            prepared = self._prepare(upload, task, tokens)
            if isinstance(prepared, IngestOutcome):
                if prepared.status is IngestStatus.UNCHANGED:
                    self._store.supersede_queued(upload.collection, upload.name)
                return prepared
            with self._committing:
                change = self._store.put(prepared, task.check)
                self._apply(change, prepared, tokens)
        self._forget(change)
        return self._outcome(change, prepared.parsed.note)

    def take(self, upload: Upload, ticket: Ticket, task: IngestTask = UNSCHEDULED) -> IngestOutcome | None:
        """Ingests a queued document; if it is stored, its ticket is completed in the same transaction.

        Returns:
            As ``ingest``; None if a newer document of that name was stored meanwhile or the job was cancelled.
        """
        with self._ingesting() as tokens:
            prepared = self._prepare(upload, task, tokens)
            if isinstance(prepared, IngestOutcome):
                return prepared
            with self._committing:
                change = self._store.put_accepted(prepared, ticket, task.check)
                if change is None:
                    return None
                self._apply(change, prepared, tokens)
        self._forget(change)
        return self._outcome(change, prepared.parsed.note)

    def _ingesting(self) -> AbstractContextManager[IngestedVectors | None]:
        return nullcontext() if self._token_vectors is None else self._token_vectors.ingesting()

    def _apply(self, change: DocumentChange, prepared: NewDocument, tokens: IngestedVectors | None) -> None:
        self._discard_removed(change)
        self._vectors.apply(change, prepared.vectors)
        if tokens is not None:
            tokens.keep(change.added, [index_text(chunk.context, chunk.text) for chunk in prepared.chunks])

    def _forget(self, change: DocumentChange) -> None:
        """Removes the token vectors of removed chunks; chunks never get their ids, so other changes may come before."""
        if self._token_vectors is not None:
            self._token_vectors.remove(change.removed)

    def _prepare(self, upload: Upload, task: IngestTask, tokens: IngestedVectors | None) -> NewDocument | IngestOutcome:
        """Prepares a document for storage; returns the outcome if it is unchanged or rejected."""
        require_collection_name(upload.collection)
        require_document_name(upload.name)
        given = validate_metadata(upload.metadata)
        sha256 = upload.content.sha256
        present = self._store.find(upload.collection, upload.name)
        limits = self._limits_in(upload.collection)
        if present is not None and present.sha256 == sha256 and self._is_unchanged(present, given, limits):
            kept = self._store.keep_original(present, upload.content)
            return IngestOutcome(upload.name, IngestStatus.UNCHANGED, kept)
        try:
            media_type, parsed = self._parse(upload, task)
            metadata = _merged(parsed.metadata, given)
        except DocumentRejected as error:
            task.check()  # a parser that was ended rejects its document
            return IngestOutcome(upload.name, IngestStatus.REJECTED, None, str(error), RejectionCause.of(error))
        chunks = self._chunk(parsed, limits, task)
        texts = [index_text(chunk.context, chunk.text) for chunk in chunks]
        vectors = self._embed(upload.collection, texts, task, tokens)
        task.report(IngestPhase.COMMITTING, len(chunks), len(chunks))
        return NewDocument(
            collection=upload.collection,
            name=upload.name,
            media_type=media_type,
            sha256=sha256,
            size_bytes=upload.content.size_bytes,
            parsed=parsed,
            chunks=chunks,
            embedder=self._embedder.name,
            vectors=vectors,
            metadata=metadata,
            given_metadata=given,
            chunk_tokens=limits.target,
            content=upload.content,
        )

    def _parse(self, upload: Upload, task: IngestTask) -> tuple[str, ParsedDocument]:
        task.report(IngestPhase.PARSING, 0, 0)
        content = _read(upload)
        with self._parsers.acquire(upload.collection) as parser, task.parsing(parser.kill):
            began = time.monotonic()
            try:
                return parser.read(upload.name, upload.media_type, content, upload.collection)
            finally:
                task.charge(time.monotonic() - began)

    def _chunk(self, parsed: ParsedDocument, limits: ChunkLimits, task: IngestTask) -> tuple[Chunk, ...]:
        def count_tokens(text: str) -> int:
            task.check()
            return self._embedder.count_tokens(text)

        began = time.monotonic()
        try:
            return chunk_document(parsed, limits, count_tokens)
        finally:
            task.charge(time.monotonic() - began)

    def _discard_removed(self, change: DocumentChange) -> None:
        if change.removed:
            self._on_removed(change.collection.name, change.collection.epoch)

    def _outcome(self, change: DocumentChange, note: str) -> IngestOutcome:
        status = IngestStatus.REPLACED if change.removed else IngestStatus.ADDED
        return IngestOutcome(change.info.name, status, change.info, note)

    def chunks(self, collection: str, document: str, after: int | None, limit: int, max_bytes: int) -> ChunkPage:
        """Returns a page of the chunks of a document, by id or else by name.

        Args:
            after: Position of the chunk after which the page begins; None for the first page.
            max_bytes: Bytes of the chunks' texts after which the page ends.
        """
        stored, info, rows = self._store.chunks(collection, document, after, limit, max_bytes)
        _, chunk_tokens = self._store.ingested_with(info.document_id)
        ids = np.array([row.chunk_id for row in rows], dtype=np.int64)
        indexed: set[int] = set()
        if len(ids):  # a search among a few ids finds those that are in the index, regardless of its query
            any_vector = np.eye(1, self._embedder.dimension, dtype=np.float32)
            indexed = set(self._vectors.search(stored.number, any_vector, len(ids), np.sort(ids))[0])
        special = self._embedder.count_tokens("")
        chunks = tuple(
            StoredChunk(
                row.chunk.ordinal,
                row.chunk.start,
                row.chunk.end,
                row.chunk.page,
                row.chunk.context,
                row.chunk.text,
                row.before,
                self._embedder.count_tokens(row.chunk.text) - special,
                sure_language_of(row.chunk.text),
                row.chunk_id in indexed,
            )
            for row in rows
        )
        more = bool(chunks) and chunks[-1].position + 1 < info.chunks
        return ChunkPage(info, chunk_tokens, chunks, chunks[-1].position if more else None)

    def delete(self, collection: str, document: str) -> DocumentInfo:
        with self._committing:
            change = self._store.delete(collection, document)
            self._discard_removed(change)
            self._vectors.apply(change, np.empty((0, self._embedder.dimension), dtype=np.float32))
        self._forget(change)
        return change.info

    def update_metadata(self, collection: str, document: str, given: Metadata) -> DocumentInfo:
        """Replaces the metadata that a client gave with a document, without ingesting it again; durable on return.

        Metadata found in the document stays, except values that the old metadata had replaced: they come back when it
        is ingested again.
        """
        valid = validate_metadata(given)
        with self._committing:
            change = self._store.update_metadata(collection, document, valid)
            self._vectors.apply(change, np.empty((0, self._embedder.dimension), dtype=np.float32))
        return change.info

    def delete_collection(self, name: str) -> CollectionInfo:
        """Removes a collection with its documents and its index; durable on return."""
        with self._committing:
            number, info, epoch = self._collections.drop(name)
            self._on_removed(name, epoch)
            self._vectors.drop(number)
        if self._token_vectors is not None:
            self._token_vectors.forget_removed()
        return info

    def renew_vectors(self, commit: Callable[[], tuple[Change, NDArray[np.float32]] | None]) -> bool:
        """Applies a change that gives stored chunks new vectors.

        Args:
            commit: Commits the change, in turn with those of documents; returns it with the vectors, None for none.
        """
        with self._committing:
            committed = commit()
            if committed is not None:
                self._vectors.apply(*committed)
        return committed is not None

    def indexes(self) -> tuple[IndexInUse, ...]:
        return self._vectors.describe(self._store.collections())

    def move_index(self, collection: str, backend: BackendKind) -> IndexInUse:
        stored = self._store.collection(collection)
        self._vectors.move(stored, backend)
        (moved,) = self._vectors.describe((stored,))
        return moved

    def _limits_in(self, collection: str) -> ChunkLimits:
        limits = self._chunk_limits
        try:
            chunk_tokens = self._store.collection(collection).settings.chunk_tokens
        except CollectionNotFound:
            return limits
        return limits if chunk_tokens is None else replace(limits, target=min(chunk_tokens, self._max_chunk_tokens))

    def _is_unchanged(self, present: DocumentInfo, given: Metadata, limits: ChunkLimits) -> bool:
        metadata, chunk_tokens = self._store.ingested_with(present.document_id)
        return metadata == given and limits.target == (chunk_tokens or self._chunk_limits.target)

    def _embed(
        self, collection: str, texts: Sequence[str], task: IngestTask, tokens: IngestedVectors | None
    ) -> NDArray[np.float32]:
        embed = self._embedder.embed if tokens is None else tokens.embed
        worked_s = 0.0

        def embed_locally(part: Sequence[str]) -> NDArray[np.float32]:
            nonlocal worked_s
            with task.embedding(), self._working():
                task.check()
                began = time.monotonic()
                vectors = embed(part)
                worked_s = time.monotonic() - began
                task.charge(worked_s)
                return vectors

        def report(done: int) -> None:
            task.check()
            task.report(IngestPhase.EMBEDDING, done, len(texts))

        # Turns of other documents are not work of this one, so the time that a batch took is measured within its turn.
        return self._embedding.passages(
            texts, lambda: self._rule_of(collection), embed_locally, lambda _: task.pause(worked_s), report
        )

    def _rule_of(self, collection: str) -> OffloadRule:
        """Returns the current offload rule of a collection; NEVER for one that does not exist yet."""
        try:
            return self._store.collection(collection).settings.offload
        except CollectionNotFound:
            return OffloadRule.NEVER


def _read(upload: Upload) -> bytes:
    try:
        return upload.content.read()
    except StorageCorrupt as error:
        raise DocumentRejected(str(error)) from error


def _merged(found: Metadata, given: Metadata) -> dict[str, MetadataValue]:
    try:
        return validate_metadata({**found, **given})
    except InvalidRequest as error:
        raise DocumentRejected(f"its metadata together with the given metadata exceeds a limit: {error}") from error
