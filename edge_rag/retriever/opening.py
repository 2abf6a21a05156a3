"""Opens a data directory: the one way to a library and a retriever over it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.ports import Embedder, Embedding
from edge_rag.errors import ConfigurationError
from edge_rag.index.local import IndexLimits, LocalIndexes
from edge_rag.index.manager import VectorIndexes
from edge_rag.index.ports import IndexBackend
from edge_rag.ingest.chunking import SPECIAL_TOKENS, ChunkLimits
from edge_rag.ingest.embedding import LocalEmbedding
from edge_rag.ingest.library import LocalCollectionLibrary, LocalDocumentLibrary
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.sandbox.process import ParserProcess
from edge_rag.ingest.reembedding import reembed
from edge_rag.retriever.bm25 import Bm25Index
from edge_rag.retriever.hybrid import HybridRetriever, SearchDepth
from edge_rag.storage.backup import Backups
from edge_rag.storage.collections import CollectionStore
from edge_rag.storage.data_directory import DataDirectory
from edge_rag.storage.database import Database
from edge_rag.storage.documents import DocumentStore
from edge_rag.storage.filter_sql import AllowedChunks
from edge_rag.storage.jobs import JobStore
from edge_rag.storage.spool import Spool
from edge_rag.storage.vectors import StoredVectors


def _go_on(worked_s: float) -> None:
    """Ingest that has nobody to give way to."""


def _nothing_else(collection: str, epoch: int) -> None:
    """A collection of which nothing is kept elsewhere."""


@dataclass(frozen=True, slots=True)
class MilvusAddress:
    """Where a Milvus is.

    Attributes:
        uri: ``http(s)://HOST:PORT`` of a server, or the path of a milvus-lite file, which ends in ``.db``.
        token: ``user:password`` or an API key; empty for none.
        timeout_s: Longest that one call to it may take, seconds.
    """

    uri: str
    token: str = field(default="", repr=False)
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class RetrieverOptions:
    """What can be chosen about retrieval.

    Attributes:
        chunk_tokens: Size that chunks are packed to, tokens of the embedder; lowered to what the embedder can read.
            Between 80 and 200 it hardly matters to what is found (nDCG@10 within 0.005 on XQuAD), so the default is
            one that leaves a prompt room for several passages.
        context_tokens: Most tokens of headings that are embedded with a chunk.
        parsing: What reading one document may cost.
        scan_languages: Languages that scanned pages may be in, Tesseract's names joined by ``+``.
        depth: How deep the two searches go.
        indexes: When a collection is no longer searched exactly.
        milvus: A Milvus that collections can be moved to.
        spool_bytes: Most bytes that accepted documents may come to.
    """

    chunk_tokens: int = 120
    context_tokens: int = 40
    parsing: ParsingLimits = field(default_factory=ParsingLimits)
    scan_languages: str = "eng"
    depth: SearchDepth = field(default_factory=SearchDepth)
    indexes: IndexLimits = field(default_factory=IndexLimits)
    milvus: MilvusAddress | None = None
    spool_bytes: int = 1 << 30


class OpenedDirectory:
    """A data directory in use.

    Attributes:
        identity: Its random id, lower-case hex.
        library: Takes documents in and hands them out.
        retriever: Finds passages.
        indexes: The vector indexes behind both.
        jobs: Keeps what was accepted and is not stored yet.
        backups: Makes backups.
        collections: Makes, changes and removes collections.
    """

    def __init__(
        self,
        identity: str,
        store: DocumentStore,
        library: LocalDocumentLibrary,
        retriever: HybridRetriever,
        indexes: VectorIndexes,
        jobs: JobStore,
        backups: Backups,
        collections: LocalCollectionLibrary,
        resources: ExitStack,
    ) -> None:
        self.identity = identity
        self._store = store
        self.library = library
        self.collections = collections
        self.retriever = retriever
        self.indexes = indexes
        self.jobs = jobs
        self.backups = backups
        self._resources = resources

    def epochs(self) -> dict[str, int]:
        """Returns the present epoch of each collection, by name."""
        return {collection.name: collection.epoch for collection in self._store.collections()}

    def close(self) -> None:
        """Saves the indexes, ends the parser process and lets the directory go; idempotent.

        Nobody may be using the library or the retriever any more.
        """
        self._resources.close()


def open_data_directory(
    path: Path,
    embedder: Embedder,
    settings: RetrieverOptions | None = None,
    *,
    yield_to_queries: Callable[[float], None] = _go_on,
    forget: Callable[[str, int], None] = _nothing_else,
    working: Callable[[], AbstractContextManager[None]] = nullcontext,
    embedding: Embedding | None = None,
) -> OpenedDirectory:
    """Opens a data directory, making it if need be.

    Vectors that another embedder made are made anew from the stored text, and indexes that are missing, damaged or out
    of date are rebuilt, before this returns.

    Args:
        path: The directory.
        embedder: Turns text into vectors.
        settings: What can be chosen; the defaults if None.
        yield_to_queries: Called between two batches of an ingest with the seconds that the last one took.
        forget: Called with a collection's name and its epoch after text of it was removed.
        working: Makes what is entered while chunks of a document are embedded here.
        embedding: Where vectors of documents and questions come from; the embedder where that is not said. It must give
            the embedder's own.

    Raises:
        DataDirectoryInUse: Another daemon holds it.
        StorageError: It cannot be used, or was written by a newer version; StorageCorrupt if it is damaged.
        ConfigurationError: The embedder cannot read chunks as small as these.
        InferenceFailed: Vectors had to be made anew and the model could not be run.
    """
    settings = settings or RetrieverOptions()
    limits = _chunk_limits(embedder, settings)
    with ExitStack() as resources:
        resources.enter_context(DataDirectory(path))
        database = Database(path / "documents.sqlite3")
        resources.callback(database.close)
        store = DocumentStore(database)
        stored = StoredVectors(database)
        reembed(database, store.collections(), embedder, embedding or LocalEmbedding(embedder))
        vectors = VectorIndexes(_homes(path, embedder, stored, settings), stored, embedder.dimension)
        resources.callback(vectors.close)
        vectors.load(store.collections())
        identity = stored.directory()
        parser = ParserProcess(settings.parsing, settings.scan_languages)
        resources.callback(parser.close)
        library = LocalDocumentLibrary(
            store, vectors, parser, embedder, limits, yield_to_queries, forget, working, embedding
        )
        spool = Spool(path / "spool")
        jobs = JobStore(database, spool, settings.spool_bytes)
        jobs.recover()
        lexical = Bm25Index(database)
        allowed = AllowedChunks(database)
        retriever = HybridRetriever(embedder, store, vectors, lexical, allowed, settings.depth, embedding)
        collections = LocalCollectionLibrary(CollectionStore(database), library)
        backups = Backups(path, database, spool)
        return OpenedDirectory(
            identity, store, library, retriever, vectors, jobs, backups, collections, resources.pop_all()
        )


def _homes(
    path: Path, embedder: Embedder, stored: StoredVectors, settings: RetrieverOptions
) -> dict[BackendKind, IndexBackend]:
    homes: dict[BackendKind, IndexBackend] = {
        BackendKind.FAISS: LocalIndexes(path / "vectors", embedder.name, embedder.dimension, stored, settings.indexes)
    }
    if settings.milvus is not None:
        try:
            # pymilvus is an extra, and takes a second to import.
            from edge_rag.index.milvus import Milvus, MilvusIndexes
        except ImportError as error:
            raise ConfigurationError(
                f"retriever.milvus.uri: {error.name} is not installed; pip install 'edge-rag[milvus]'"
            ) from error
        milvus = Milvus(settings.milvus.uri, settings.milvus.token, settings.milvus.timeout_s)
        homes[BackendKind.MILVUS] = MilvusIndexes(milvus, stored, embedder.name, embedder.dimension)
    return homes


def _chunk_limits(embedder: Embedder, settings: RetrieverOptions) -> ChunkLimits:
    target = min(settings.chunk_tokens, embedder.max_tokens - settings.context_tokens - SPECIAL_TOKENS)
    if target < 1 or settings.context_tokens < 0:
        raise ConfigurationError(
            f"chunks of {settings.chunk_tokens} tokens under {settings.context_tokens} tokens of headings cannot be "
            f"embedded: {embedder.name} reads {embedder.max_tokens} tokens"
        )
    return ChunkLimits(target, settings.context_tokens)
