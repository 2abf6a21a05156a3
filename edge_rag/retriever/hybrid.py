"""Finds passages: vectors and words side by side, fused by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId
from edge_rag.core.passage import Hit, RetrievalRequest, Retrieved
from edge_rag.core.ports import Embedder, Embedding
from edge_rag.core.query import Question
from edge_rag.errors import EdgeRagError, NotFound, StorageError
from edge_rag.index.manager import VectorIndexes
from edge_rag.ingest.embedding import LocalEmbedding
from edge_rag.retriever.bm25 import Bm25Index
from edge_rag.retriever.fusion import fuse
from edge_rag.retriever.passages import PassageRanker
from edge_rag.storage.documents import DocumentStore
from edge_rag.storage.filter_sql import AllowedChunks, condition
from edge_rag.storage.statements import Collection

_DEEPEST: Final = 5_000


@dataclass(frozen=True, slots=True)
class SearchDepth:
    """How deep the two searches go before their rankings are fused.

    Attributes:
        candidates: Chunks that each search contributes, at least. A request for more hits goes deeper by itself, as
            does one whose chunks turn out to be duplicates and neighbours of each other.
    """

    candidates: int = 100


class HybridRetriever:
    """Implements the pipeline's ``Retriever``.

    Args:
        embedder: This box's.
        store: Documents in SQLite.
        vectors: The vector indexes.
        lexical: Full text.
        allowed: Chunks that a filter allows.
        depth: How deep the two searches go.
        embedding: Where questions' vectors come from; the embedder where that is not said.
    """

    def __init__(
        self,
        embedder: Embedder,
        store: DocumentStore,
        vectors: VectorIndexes,
        lexical: Bm25Index,
        allowed: AllowedChunks,
        depth: SearchDepth,
        embedding: Embedding | None = None,
    ) -> None:
        self._embedding = embedding or LocalEmbedding(embedder)
        self._store = store
        self._vectors = vectors
        self._lexical = lexical
        self._allowed = allowed
        self._depth = depth
        self._ranker = PassageRanker(store, embedder)

    def retrieve(self, requests: Sequence[RetrievalRequest]) -> list[Retrieved | Exception]:
        """Answers each request, in order; all questions are embedded in one batch.

        A request that fails, for example with ``CollectionNotFound``, has its error as its entry.
        """
        answers: list[Retrieved | Exception] = []
        collections = [self._collection(request) for request in requests]
        asked = {
            index: Question(request.question, collection.settings.offload, request.context)
            for index, (request, collection) in enumerate(zip(requests, collections, strict=True))
            if isinstance(collection, Collection)
        }
        try:
            embedded = self._embedding.questions(tuple(asked.values())) if asked else ()
        except EdgeRagError as error:
            return [error if isinstance(collection, Collection) else collection for collection in collections]
        vectors = dict(zip(asked, embedded, strict=True))
        for index, (request, collection) in enumerate(zip(requests, collections, strict=True)):
            if isinstance(collection, Collection):
                answers.append(self._answer(request, collection, vectors[index]))
            else:
                answers.append(collection)
        return answers

    def _collection(self, request: RetrievalRequest) -> Collection | Exception:
        try:
            return self._store.collection(request.collection)
        except EdgeRagError as error:
            return error

    def _answer(
        self, request: RetrievalRequest, collection: Collection, vector: NDArray[np.float32]
    ) -> Retrieved | Exception:
        try:
            return self._search(request, collection, vector)
        except StorageError as error:
            dropped_meanwhile = self._collection(request)
            return dropped_meanwhile if isinstance(dropped_meanwhile, NotFound) else error

    def _search(self, request: RetrievalRequest, collection: Collection, vector: NDArray[np.float32]) -> Retrieved:
        within = None if request.filter is None else condition(request.filter, collection.number)
        allowed = None if within is None else self._allowed.read(collection, within)
        weights = collection.settings.fusion
        depth = max(self._depth.candidates, request.limit)
        while True:
            dense: tuple[ChunkId, ...] = ()
            lexical: dict[ChunkId, float] = {}
            if weights.dense > 0:
                (dense,) = self._vectors.search(collection.number, vector[np.newaxis], depth, allowed)
            if weights.lexical > 0:
                lexical = self._lexical.search(collection.number, request.question, depth, within)
            fused = fuse(dense, tuple(lexical), 2 * depth, weights)
            hits = self._ranker.rank(fused, collection.settings, request.limit)
            exhausted = max(len(dense), len(lexical)) < depth
            if len(hits) == request.limit or exhausted or depth >= _DEEPEST:
                break
            depth *= 4
        if request.explain:
            hits = self._explained(hits, lexical, vector)
        weights_of_terms = self._lexical.term_weights(collection.number, request.question)
        # Read before the text was: what is removed from here on ends the epoch that the answer carries.
        settings = collection.settings
        return Retrieved(hits, weights_of_terms, collection.epoch, settings.offload, settings.kv_reuse)

    def _explained(
        self, hits: Sequence[Hit], lexical: Mapping[ChunkId, float], vector: NDArray[np.float32]
    ) -> tuple[Hit, ...]:
        similar = self._store.similarities([part.chunk_id for hit in hits for part in hit.parts], vector)
        return tuple(
            replace(
                hit,
                dense_score=max(
                    (similar[p.chunk_id] for p in hit.parts if p.dense_rank and p.chunk_id in similar), default=None
                ),
                lexical_score=max((lexical[p.chunk_id] for p in hit.parts if p.lexical_rank), default=None),
            )
            for hit in hits
        )
