"""Both halves of the search against brute force: random documents, metadata and filters over real SQLite and FAISS."""

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.documents.document import Block, BlockKind, Chunk, ParsedDocument
from edge_rag.core.documents.filters import (
    AllOf,
    AnyOf,
    BuiltinField,
    Comparator,
    Comparison,
    Filter,
    FilterField,
    FilterValue,
    MetadataField,
    Negated,
    OneOf,
    Prefix,
    Present,
)
from edge_rag.core.documents.metadata import MetadataValue
from edge_rag.core.ids import ChunkId
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.index.local import LocalIndexes
from edge_rag.index.manager import VectorIndexes
from edge_rag.retriever.bm25 import Bm25Index, query_terms
from edge_rag.retriever.hybrid import HybridRetriever, SearchDepth
from edge_rag.retriever.wordings.vocabulary import Vocabularies
from edge_rag.storage.collections import CollectionStore
from edge_rag.storage.database import Database
from edge_rag.storage.documents import DocumentStore
from edge_rag.storage.filter_sql import AllowedChunks, condition
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.spool.originals import Originals
from edge_rag.storage.statements import NewDocument
from edge_rag.storage.vectors import StoredVectors
from tests.support.examples import examples
from tests.unit.retriever.hashed_words import HashedWords

_WORDS = ["pump", "seal", "bearing", "motor", "valve", "oil", "grease", "filter", "alarm", "gauge"]
_DATES = [datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=days) for days in range(5)]
_VALUES: list[MetadataValue] = [
    *("a", "ab", "b", "é", "2020"),
    *(0.0, 1.0, -1.5, 2020.0),
    *(True, False),
    *_DATES,
    ("a", "c"),
    ("ab", "é", "2020"),
]
_KEYS = ("k", "and", "x.y-z")
_EMBEDDER = HashedWords()


@dataclass(frozen=True)
class StoredChunk:
    """What the oracle knows of a chunk."""

    chunk_id: ChunkId
    name: str
    media_type: str
    page: int | None
    ingested_at: datetime
    metadata: dict[str, MetadataValue]
    vector: NDArray[np.float32]


class Library:
    """A collection with its two indexes; beside it another one with the same words and metadata."""

    def __init__(
        self, store: DocumentStore, vectors: VectorIndexes, database: Database, chunks: tuple[StoredChunk, ...]
    ) -> None:
        self.store = store
        self.vectors = vectors
        self.lexical = Bm25Index(database)
        self.allowed = AllowedChunks(database)
        self.vocabularies = Vocabularies(database)
        self.chunks = chunks


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    folder = tmp_path_factory.mktemp("data")
    database = Database(folder / "documents.sqlite3")
    files = Spool(folder / "spool", 1 << 30), Originals(folder / "originals", database, keep=False)
    store, stored = DocumentStore(database, *files), StoredVectors(database, _EMBEDDER.name)
    vectors = VectorIndexes(
        {BackendKind.FAISS: LocalIndexes(folder / "vectors", _EMBEDDER.name, _EMBEDDER.dimension, stored)},
        stored,
        _EMBEDDER.dimension,
    )
    draw = random.Random(6)
    chunks: list[StoredChunk] = []
    for number in range(60):
        collection = "other" if number % 5 == 0 else "site"
        chunks += [chunk for chunk in _put(store, vectors, collection, number, draw) if collection == "site"]
    everything_apart = {"merge_neighbours": False, "drop_duplicates": False}
    CollectionStore(database, *files).update("site", everything_apart)
    yield Library(store, vectors, database, tuple(chunks))
    database.close()


def _put(
    store: DocumentStore, vectors: VectorIndexes, collection: str, number: int, draw: random.Random
) -> list[StoredChunk]:
    texts = [" ".join(draw.choices(_WORDS, k=draw.randint(1, 12))) for _ in range(draw.randint(1, 4))]
    text = "\n".join(texts)
    starts = [sum(len(part) + 1 for part in texts[:index]) for index in range(len(texts))]
    paged = draw.random() < 0.5
    pages = [index + 1 if paged else None for index in range(len(texts))]
    document = NewDocument(
        collection=collection,
        name=f"{draw.choice(('pumps/', 'pump-', 'é', ''))}{number}.txt",
        media_type=draw.choice(("text/plain", "application/pdf")),
        sha256="0" * 64,
        size_bytes=1,
        parsed=ParsedDocument("", text, (Block(BlockKind.PARAGRAPH, 0, len(text)),), len(texts) if paged else None),
        chunks=tuple(
            Chunk(index, start, start + len(part), page, (), part)
            for index, (part, start, page) in enumerate(zip(texts, starts, pages, strict=True))
        ),
        embedder=_EMBEDDER.name,
        vectors=_EMBEDDER.embed(texts),
        metadata={key: draw.choice(_VALUES) for key in _KEYS if draw.random() < 0.7},
        given_metadata={},
        chunk_tokens=120,
    )
    change = store.put(document)
    vectors.apply(change, document.vectors)
    info = change.info
    return [
        StoredChunk(chunk, info.name, info.media_type, page, info.ingested_at, dict(info.metadata), vector)
        for chunk, page, vector in zip(change.added, pages, document.vectors, strict=True)
    ]


def holds(wanted: Filter, chunk: StoredChunk) -> bool:
    """What a filter means, written down once more."""
    match wanted:
        case AllOf(filters):
            return all(holds(each, chunk) for each in filters)
        case AnyOf(filters):
            return any(holds(each, chunk) for each in filters)
        case Negated(negated):
            return not holds(negated, chunk)
        case Comparison(field, comparator, value):
            return any(compares(found, comparator, value) for found in values_of(field, chunk))
        case OneOf(field, values):
            return any(compares(found, Comparator.EQUAL, v) for found in values_of(field, chunk) for v in values)
        case Prefix(field, prefix):
            return any(isinstance(found, str) and found.startswith(prefix) for found in values_of(field, chunk))
        case Present(field):
            return bool(values_of(field, chunk))


def values_of(field: FilterField, chunk: StoredChunk) -> list[FilterValue]:
    match field:
        case BuiltinField.NAME:
            return [chunk.name]
        case BuiltinField.MEDIA_TYPE:
            return [chunk.media_type]
        case BuiltinField.PAGE:
            return [] if chunk.page is None else [float(chunk.page)]
        case BuiltinField.INGESTED_AT:
            return [chunk.ingested_at]
        case MetadataField(key):
            value = chunk.metadata.get(key)
            if value is None:
                return []
            return list(value) if isinstance(value, tuple) else [value]


def compares(found: FilterValue, comparator: Comparator, value: FilterValue) -> bool:
    if type(found) is not type(value):
        return False
    ordered = (found > value) - (found < value)  # type: ignore[operator]
    match comparator:
        case Comparator.EQUAL:
            return ordered == 0
        case Comparator.LESS:
            return ordered < 0
        case Comparator.LESS_OR_EQUAL:
            return ordered <= 0
        case Comparator.GREATER:
            return ordered > 0
        case Comparator.GREATER_OR_EQUAL:
            return ordered >= 0


_ATOMS: st.SearchStrategy[FilterValue] = st.sampled_from([v for v in _VALUES if not isinstance(v, tuple)])
_TEXTS = st.sampled_from(["p", "pump", "pumps/1", "é", "text", "a", "ab", "'; DROP TABLE chunks; --", "%", "_", "A"])
_METADATA = st.sampled_from([*_KEYS, "absent"]).map(MetadataField)
_TEXT_FIELDS: st.SearchStrategy[FilterField] = st.one_of(
    _METADATA, st.sampled_from([BuiltinField.NAME, BuiltinField.MEDIA_TYPE])
)
_LEAVES: st.SearchStrategy[Filter] = st.one_of(
    st.builds(Comparison, _METADATA, st.sampled_from(Comparator), _ATOMS),
    st.builds(Comparison, _TEXT_FIELDS, st.sampled_from(Comparator), _TEXTS),
    st.builds(
        Comparison, st.just(BuiltinField.PAGE), st.sampled_from(Comparator), st.sampled_from([0.0, 1.0, 1.5, 2.0, 4.0])
    ),
    st.builds(
        Comparison,
        st.just(BuiltinField.INGESTED_AT),
        st.sampled_from(Comparator),
        st.sampled_from([_DATES[0], datetime(2200, 1, 1, tzinfo=UTC)]),
    ),
    st.builds(OneOf, _METADATA, st.lists(_ATOMS, min_size=1, max_size=4).map(tuple)),
    st.builds(OneOf, _TEXT_FIELDS, st.lists(_TEXTS, min_size=1, max_size=4).map(tuple)),
    st.builds(Prefix, _TEXT_FIELDS, _TEXTS),
    st.builds(Present, st.one_of(_METADATA, st.sampled_from(BuiltinField))),
)
_FILTERS: st.SearchStrategy[Filter] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(AllOf, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Negated, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(400), deadline=None)
@given(wanted=_FILTERS, limit=st.integers(1, 40), words=st.lists(st.sampled_from(_WORDS), min_size=1, max_size=3))
def test_k_results_of_each_half_are_the_best_k_that_the_filter_allows(
    library: Library, wanted: Filter, limit: int, words: list[str]
) -> None:
    collection, question = library.store.collection("site"), " ".join(words)
    within = condition(wanted, collection.number)
    expected = [chunk for chunk in library.chunks if holds(wanted, chunk)]

    allowed = library.allowed.read(collection, within)
    assert allowed.tolist() == [chunk.chunk_id for chunk in expected]

    (vector,) = _EMBEDDER.embed([question])
    (dense,) = library.vectors.search(collection.number, vector[np.newaxis], limit, allowed)
    scores = {chunk.chunk_id: float(chunk.vector @ vector) for chunk in expected}
    best = sorted(scores.values(), reverse=True)[:limit]
    assert len(dense) == len(set(dense)) == len(best)
    assert [scores[chunk] for chunk in dense] == pytest.approx(best, abs=1e-6)

    everything = library.lexical.search(collection.number, query_terms(question), 1000)
    found = library.lexical.search(collection.number, query_terms(question), limit, within)
    assert list(found.items()) == [each for each in everything.items() if each[0] in scores][:limit]


@settings(max_examples=examples(50), deadline=None)
@given(wanted=_FILTERS, limit=st.integers(1, 60))
def test_the_fused_search_finds_as_many_as_are_allowed_and_weighs_words_by_the_whole_collection(
    library: Library, wanted: Filter, limit: int
) -> None:
    retriever = HybridRetriever(
        _EMBEDDER,
        library.store,
        library.vectors,
        library.lexical,
        library.allowed,
        library.vocabularies,
        SearchDepth(5),
    )
    expected = {chunk.chunk_id for chunk in library.chunks if holds(wanted, chunk)}
    found, everything = retriever.retrieve(
        [RetrievalRequest("pump seal", "site", limit, wanted), RetrievalRequest("pump seal", "site", 5)]
    )

    assert isinstance(found, Retrieved)
    assert isinstance(everything, Retrieved)
    assert {hit.passage.chunk_id for hit in found.hits} <= expected
    assert len(found.hits) == min(limit, len(expected))
    assert found.term_weights == everything.term_weights


@given(st.text(alphabet=string.printable + "é\U0010ffff", min_size=1, max_size=20))
def test_a_prefix_is_taken_as_it_is_written(library: Library, prefix: str) -> None:
    collection = library.store.collection("site")
    wanted = Prefix(BuiltinField.NAME, prefix)

    allowed = library.allowed.read(collection, condition(wanted, collection.number))

    assert allowed.tolist() == [chunk.chunk_id for chunk in library.chunks if chunk.name.startswith(prefix)]
