"""Opens a data directory: builds the document library, the retriever and what they need over it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.monitoring.status import LibraryDamage
from edge_rag.core.passage import Passage, Surroundings
from edge_rag.core.ports import Embedder, Embedding
from edge_rag.errors import ConfigurationError
from edge_rag.index.local import IndexLimits, LocalIndexes
from edge_rag.index.manager import VectorIndexes
from edge_rag.index.ports import IndexBackend
from edge_rag.index.token_vectors import PassageEmbedder, TokenVectorFile, remove_token_vectors
from edge_rag.ingest.chunking import SPECIAL_TOKENS, ChunkLimits
from edge_rag.ingest.embedding import LocalEmbedding
from edge_rag.ingest.library import DocumentLibrary
from edge_rag.ingest.page_images import PageImages
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.sandbox.pool import ParserPool
from edge_rag.ingest.parsing.sandbox.process import ParserProcess
from edge_rag.ingest.vector_renewal import VectorRenewal
from edge_rag.retriever.bm25 import Bm25Index
from edge_rag.retriever.hybrid import HybridRetriever, SearchDepth
from edge_rag.retriever.wordings.vocabulary import Vocabularies
from edge_rag.storage.assessment.evaluation import EvaluationStore
from edge_rag.storage.assessment.feedback import FeedbackStore
from edge_rag.storage.backup import Backups
from edge_rag.storage.collections import CollectionStore
from edge_rag.storage.data_directory import DataDirectory
from edge_rag.storage.database import ADVICE
from edge_rag.storage.documents import DocumentStore
from edge_rag.storage.filter_sql import AllowedChunks
from edge_rag.storage.jobs import JobStore
from edge_rag.storage.recovery.salvage import open_library
from edge_rag.storage.recovery.stored_backups import BACKUPS, StoredBackups
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.spool.originals import ORIGINALS, Originals
from edge_rag.storage.uploads.attachments import AttachmentStore
from edge_rag.storage.uploads.files import FileStore
from edge_rag.storage.vectors import StoredVectors


def _ignore(collection: str, epoch: int) -> None:
    pass


class LockedLibrary:
    """A data directory that is locked, and its open database: what can be opened before the models are."""

    def __init__(self, path: Path, on_progress: Callable[[int, int], None] | None = None) -> None:
        self.path = path
        with ExitStack() as resources:
            resources.enter_context(DataDirectory(path))
            self.opened = open_library(path, on_progress)
            resources.callback(self.opened.database.close)
            self._resources = resources.pop_all()

    def close(self) -> None:
        """Closes the database and releases the directory; idempotent."""
        self._resources.close()


@dataclass(frozen=True, slots=True)
class MilvusAddress:
    """Address of a Milvus server.

    Attributes:
        token: ``user:password`` or an API key; empty for none.
        timeout_s: Timeout of a call, seconds.
    """

    uri: str
    token: str = field(default="", repr=False)
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class RetrieverOptions:
    """Options of ingest and retrieval.

    Attributes:
        chunk_tokens: Size that chunks are packed to, tokens of the embedder; lowered to what the embedder can read.
            Between 80 and 200 it hardly changes what is found (nDCG@10 within 0.005 on XQuAD), so the default leaves
            room in a prompt for several passages.
        context_tokens: Most tokens of headings that are embedded with a chunk.
        spool_bytes: Most bytes of all documents together that arrive or are queued.
        files_bytes: Most bytes of all files together that were sent to become documents.
        keep_originals: Whether the bytes of documents are kept that are stored from now on.
        token_vector_bytes: Most bytes of kept token vectors; 0 removes them.
    """

    chunk_tokens: int = 120
    context_tokens: int = 40
    parsing: ParsingLimits = field(default_factory=ParsingLimits)
    parsers: int = 2
    scan_languages: str = "auto"
    depth: SearchDepth = field(default_factory=SearchDepth)
    indexes: IndexLimits = field(default_factory=IndexLimits)
    milvus: MilvusAddress | None = None
    spool_bytes: int = 1 << 30
    files_bytes: int = 4 << 30
    keep_originals: bool = True
    token_vector_bytes: int = 0
    backups_kept: int = 3


class OpenDirectory:
    """An open data directory.

    Attributes:
        damage: What is damaged; None unless only what is whole of a damaged library is open.
        renewal: Embeds chunks again whose vector another embedder computed; to be started if that was left for later.
        token_vectors: Token vectors of passages; None where none are kept.
    """

    def __init__(
        self,
        identity: str,
        documents: DocumentStore,
        library: DocumentLibrary,
        pages: PageImages,
        retriever: HybridRetriever,
        indexes: VectorIndexes,
        jobs: JobStore,
        spool: Spool,
        files: FileStore,
        attachments: AttachmentStore,
        feedback: FeedbackStore,
        backups: Backups,
        stored_backups: StoredBackups,
        collections: CollectionStore,
        evaluation: EvaluationStore,
        damage: LibraryDamage | None,
        renewal: VectorRenewal,
        token_vectors: TokenVectorFile | None,
        resources: ExitStack,
    ) -> None:
        self.identity = identity
        self.documents = documents
        self.library = library
        self.pages = pages
        self.collections = collections
        self.evaluation = evaluation
        self.retriever = retriever
        self.indexes = indexes
        self.jobs = jobs
        self.spool = spool
        self.files = files
        self.attachments = attachments
        self.feedback = feedback
        self.backups = backups
        self.stored_backups = stored_backups
        self.damage = damage
        self.renewal = renewal
        self.token_vectors = token_vectors
        self._resources = resources

    def epochs(self) -> dict[str, int]:
        return {collection.name: collection.epoch for collection in self.documents.collections()}

    def surroundings(self, passage: Passage) -> Surroundings | None:
        """Returns the stored text around a passage; None if it is no longer stored. May be called from any thread."""
        return self.documents.surroundings(passage)

    def close(self) -> None:
        """Saves the indexes, ends the parser process and releases the directory; idempotent.

        The library and the retriever must not be in use any more.
        """
        self._resources.close()


def open_data_directory(
    path: Path | LockedLibrary,
    embedder: Embedder,
    options: RetrieverOptions | None = None,
    *,
    on_removed: Callable[[str, int], None] = _ignore,
    working: Callable[[], AbstractContextManager[None]] = nullcontext,
    embedding: Embedding | None = None,
    token_embedder: PassageEmbedder | None = None,
    renew_later: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> OpenDirectory:
    """Opens a data directory; creates it if necessary.

    Indexes that are missing, damaged or out of date are rebuilt before this returns. Vectors of another embedder are
    computed again from the stored text, before this returns too or once ``renewal`` is started. Of a damaged library
    what is whole is opened, and all changes are refused.

    Args:
        path: The directory; or its library, which is closed with the directory or if this raises.
        options: Options; the defaults if None.
        on_removed: Called with a collection's name and its new epoch after text of it was removed.
        working: Returns a context that is entered while chunks of a document are embedded on this box.
        embedding: Source of the vectors of documents; must give the embedder's own. The embedder if None.
        token_embedder: The embedder of this box where its token vectors of passages are to be kept; None keeps none.
        on_progress: Called with the numbers of passages done and of all while words are indexed anew, as after an
            upgrade.
    """
    options = options or RetrieverOptions()
    with ExitStack() as resources:
        locked = path if isinstance(path, LockedLibrary) else LockedLibrary(path, on_progress)
        resources.callback(locked.close)
        limits = _chunk_limits(embedder, options)
        home, opened = locked.path, locked.opened
        path, database, damage = opened.path, opened.database, opened.damage
        if damage is not None:
            # Milvus keeps the vectors of the whole library; those of the part that is served are searched here.
            options = replace(options, milvus=None)
        spool = Spool(path / "spool", options.spool_bytes)
        originals = Originals(home / ORIGINALS, database, options.keep_originals)
        if damage is None:  # a damaged library does not know all
            originals.recover()
        store = DocumentStore(database, spool, originals)
        collections = CollectionStore(database, spool, originals)
        stored = StoredVectors(database, embedder.name)
        vectors = VectorIndexes(_backends(path, embedder, stored, options), stored, embedder.dimension)
        resources.callback(vectors.close)
        vectors.load(store.collections())
        identity = stored.directory()
        parsers = ParserPool(partial(ParserProcess, options.parsing, options.scan_languages), options.parsers)
        resources.callback(parsers.close)
        pages = PageImages(store, parsers)
        token_vectors = None
        if token_embedder is None:
            remove_token_vectors(path)
        elif damage is None:
            token_vectors = TokenVectorFile(path, token_embedder, options.token_vector_bytes, stored.present)
            resources.callback(token_vectors.close)

        def removed(collection: str, epoch: int) -> None:
            pages.forget(collection)
            on_removed(collection, epoch)

        library = DocumentLibrary(
            store, collections, vectors, parsers, embedder, limits, removed, working, embedding, token_vectors
        )
        source = embedding or LocalEmbedding(embedder)
        renewal = VectorRenewal(database, stored, vectors, library, embedder, source, working)
        if damage is not None or not renew_later:
            renewal.run()
        resources.callback(renewal.close)
        jobs = JobStore(database, spool)
        jobs.recover()
        files = FileStore(path / "files", database, spool, options.files_bytes)
        files.recover()
        resources.callback(files.close)
        bm25 = Bm25Index(database)
        allowed = AllowedChunks(database)
        vocabularies = Vocabularies(database)
        retriever = HybridRetriever(embedder, store, vectors, bm25, allowed, vocabularies, options.depth)
        backups = Backups(path, database, spool, originals)
        if damage is not None:
            database.refuse_writes(
                "the library is damaged: what is whole of it is served, and nothing is changed or backed up until it "
                f"is repaired; {ADVICE}"
            )
        return OpenDirectory(
            identity,
            store,
            library,
            pages,
            retriever,
            vectors,
            jobs,
            spool,
            files,
            AttachmentStore(database, spool),
            FeedbackStore(database),
            backups,
            StoredBackups(home / BACKUPS, options.backups_kept),
            collections,
            EvaluationStore(database),
            damage,
            renewal,
            token_vectors,
            resources.pop_all(),
        )


def _backends(
    path: Path, embedder: Embedder, stored: StoredVectors, options: RetrieverOptions
) -> dict[BackendKind, IndexBackend]:
    backends: dict[BackendKind, IndexBackend] = {
        BackendKind.FAISS: LocalIndexes(path / "vectors", embedder.name, embedder.dimension, stored, options.indexes)
    }
    if options.milvus is not None:
        try:
            # pymilvus is an optional extra and takes a second to import.
            from edge_rag.index.milvus import Milvus, MilvusIndexes
        except ImportError as error:
            raise ConfigurationError(
                f"retriever.milvus.uri: {error.name} is not installed; pip install 'edge-rag[milvus]'"
            ) from error
        milvus = Milvus(options.milvus.uri, options.milvus.token, options.milvus.timeout_s)
        backends[BackendKind.MILVUS] = MilvusIndexes(milvus, stored, embedder.name, embedder.dimension)
    return backends


def _chunk_limits(embedder: Embedder, options: RetrieverOptions) -> ChunkLimits:
    target = min(options.chunk_tokens, embedder.max_tokens - options.context_tokens - SPECIAL_TOKENS)
    if target < 1 or options.context_tokens < 0:
        raise ConfigurationError(
            f"chunks of {options.chunk_tokens} tokens with {options.context_tokens} tokens of headings cannot be "
            f"embedded: {embedder.name} reads {embedder.max_tokens} tokens"
        )
    return ChunkLimits(target, options.context_tokens)
