"""Hybrid retrieval: vector search and BM25, fused by rank where BM25 knows the words of the question.

A question that leaves something to earlier turns, is misspelled or has synonyms is searched for in several wordings
(``wordings/``), whose rankings are fused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.analysis.languages import knows_words
from edge_rag.analysis.questions import excerpt
from edge_rag.core.ids import ChunkId
from edge_rag.core.passage import Hit, OtherWording, RetrievalRequest, Retrieved
from edge_rag.core.ports import Embedder
from edge_rag.core.query import Wordings
from edge_rag.errors import EdgeRagError, NotFound, StorageError
from edge_rag.index.manager import VectorIndexes
from edge_rag.retriever.bm25 import Bm25Index
from edge_rag.retriever.fusion import Rankings, best_score, fuse
from edge_rag.retriever.passages import PassageRanker
from edge_rag.retriever.wordings.synonyms import compose, read_synonyms
from edge_rag.retriever.wordings.vocabulary import CollectionWords, Vocabularies
from edge_rag.storage.documents import DocumentStore
from edge_rag.storage.filter_sql import AllowedChunks, condition
from edge_rag.storage.statements import Collection

_MAX_DEPTH: Final = 5_000

_JUDGED_CHUNKS: Final = 16
"""The best chunks by BM25 from which it is judged whether the collection has the words of a question."""


@dataclass(frozen=True, slots=True)
class SearchDepth:
    """Depth of the two searches before their rankings are fused."""

    candidates: int = 100


@dataclass(frozen=True, slots=True)
class _ReadWording:
    """Data of a wording that is read before the search."""

    wording: str
    weights: Mapping[str, float]
    excerpt: str


@dataclass(frozen=True, slots=True)
class _Read:
    """Data that is read before the search.

    Attributes:
        collection: The collection, as it was before any text was read.
        read: The parts to read of each distinct wording, the original first.
    """

    collection: Collection
    wordings: Wordings
    read: tuple[_ReadWording, ...]


class HybridRetriever:
    """Implements the pipeline's ``Retriever``."""

    def __init__(
        self,
        embedder: Embedder,
        store: DocumentStore,
        vectors: VectorIndexes,
        bm25: Bm25Index,
        allowed: AllowedChunks,
        vocabularies: Vocabularies,
        depth: SearchDepth,
    ) -> None:
        self._embedder = embedder
        self._store = store
        self._vectors = vectors
        self._bm25 = bm25
        self._allowed = allowed
        self._vocabularies = vocabularies
        self._depth = depth
        self._ranker = PassageRanker(store, embedder)

    def retrieve(self, requests: Sequence[RetrievalRequest]) -> list[Retrieved | Exception]:
        """Answers each request, in order; all wordings of all questions are embedded in one batch.

        The entry of a request that fails, for example with ``CollectionNotFound``, is its error.
        """
        read = [self._read(request) for request in requests]
        questions = [wording.excerpt for each in read if isinstance(each, _Read) for wording in each.read]
        try:
            embedded = iter(self._embedder.embed_questions(questions) if questions else ())
        except EdgeRagError as error:
            return [error if isinstance(each, _Read) else each for each in read]
        return [
            self._answer(request, each, np.stack(list(islice(embedded, len(each.read)))))
            if isinstance(each, _Read)
            else each
            for request, each in zip(requests, read, strict=True)
        ]

    def _read(self, request: RetrievalRequest) -> _Read | Exception:
        """Reads the collection, and of each wording the words that are searched for and what encoders read."""
        try:
            collection = self._store.collection(request.collection)
            rough_weights = partial(self._bm25.rough_weights, collection.number)
            words = CollectionWords(collection.number, self._vocabularies, self._bm25, self._embedder)
            synonyms = read_synonyms(collection.settings.synonyms)
            wordings = compose(request.question, request.turns, rough_weights, words, synonyms)
            read = []
            for wording in wordings.distinct:
                text = excerpt(wording, rough_weights, self._embedder.count_tokens)
                read.append(_ReadWording(wording, self._bm25.term_weights(collection.number, text), text))
            return _Read(collection, wordings, tuple(read))
        except EdgeRagError as error:
            return self._gone(request) or error

    def _gone(self, request: RetrievalRequest) -> NotFound | None:
        """Returns the error of a collection that does not exist (any more); None if it does."""
        try:
            self._store.collection(request.collection)
        except NotFound as error:
            return error
        except EdgeRagError:
            pass
        return None

    def _answer(self, request: RetrievalRequest, read: _Read, vectors: NDArray[np.float32]) -> Retrieved | Exception:
        try:
            return self._search(request, read, vectors)
        except StorageError as error:
            return self._gone(request) or error

    def _search(self, request: RetrievalRequest, read: _Read, vectors: NDArray[np.float32]) -> Retrieved:
        """Searches with the vectors of the wordings, float32 [wordings, dimension]."""
        collection = read.collection
        within = None if request.filter is None else condition(request.filter, collection.number)
        allowed = None if within is None else self._allowed.read(collection, within)
        weights = collection.settings.fusion
        depth = max(self._depth.candidates, request.limit)
        while True:
            dense: Sequence[tuple[ChunkId, ...]] = [()] * len(read.read)
            if weights.dense > 0:
                dense = self._vectors.search(collection.number, vectors, depth, allowed)
            bm25: list[dict[ChunkId, float]] = []
            for each, similar in zip(read.read, dense, strict=True):
                found = self._bm25.search(collection.number, each.weights, depth, within) if weights.lexical > 0 else {}
                if similar and found and not self._knows_words(collection.number, each.weights, found):
                    found = {}
                bm25.append(found)
            rankings = [Rankings(by_vector, tuple(by_words)) for by_vector, by_words in zip(dense, bm25, strict=True)]
            hits = self._ranker.rank(fuse(rankings, 2 * depth, weights), collection.settings, request.limit)
            exhausted = max(max(len(each.dense), len(each.bm25)) for each in rankings) < depth
            if len(hits) == request.limit or exhausted or depth >= _MAX_DEPTH:
                break
            depth *= 4
        if request.explain:
            hits = self._explained(hits, bm25, vectors)
        # The settings were read before the text. A removal after that ends the epoch returned here.
        settings = collection.settings
        main = next(each for each in read.read if each.wording == read.wordings.main)
        return Retrieved(
            hits,
            main.weights,
            collection.epoch,
            settings.offload,
            settings.kv_reuse,
            excerpt=main.excerpt,
            best_score=best_score(weights, len(read.read)),
            wordings=read.wordings,
            others=tuple(
                OtherWording(each.excerpt, each.weights, each.wording == read.wordings.asked)
                for each in read.read
                if each is not main
            ),
        )

    def _knows_words(self, collection: int, weights: Mapping[str, float], bm25: Mapping[ChunkId, float]) -> bool:
        best = tuple(islice(bm25, _JUDGED_CHUNKS))
        return knows_words(sum(weights.values()), self._bm25.held_weights(collection, weights, best))

    def _explained(
        self, hits: Sequence[Hit], bm25: Sequence[Mapping[ChunkId, float]], vectors: NDArray[np.float32]
    ) -> tuple[Hit, ...]:
        chunks = [part.chunk_id for hit in hits for part in hit.parts]
        similar = _largest(self._store.similarities(chunks, vector) for vector in vectors)
        by_words = _largest(bm25)
        return tuple(
            replace(
                hit,
                dense_score=max(
                    (similar[p.chunk_id] for p in hit.parts if p.dense_rank and p.chunk_id in similar), default=None
                ),
                lexical_score=max((by_words[p.chunk_id] for p in hit.parts if p.lexical_rank), default=None),
            )
            for hit in hits
        )


def _largest(scores: Iterable[Mapping[ChunkId, float]]) -> dict[ChunkId, float]:
    largest: dict[ChunkId, float] = {}
    for each in scores:
        for chunk, score in each.items():
            largest[chunk] = max(score, largest.get(chunk, score))
    return largest
