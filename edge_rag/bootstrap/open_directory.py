"""Opens a data directory: builds the document library, the retriever and their dependencies over it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from edge_rag.bootstrap.memory_planner import parsing_bytes, token_vector_bytes
from edge_rag.config.settings import Settings
from edge_rag.config.stages import MilvusSettings
from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.ports import Embedder, Embedding
from edge_rag.device.memory_plan import MemoryPlan
from edge_rag.errors import ConfigurationError
from edge_rag.index.local import IndexLimits, LocalIndexes
from edge_rag.index.manager import VectorIndexes
from edge_rag.index.ports import IndexBackend
from edge_rag.index.token_vectors import PassageEmbedder, TokenVectorFile, remove_token_vectors
from edge_rag.ingest.chunking import SPECIAL_TOKENS, ChunkLimits
from edge_rag.ingest.embedding import LocalEmbedding
from edge_rag.ingest.library import DocumentLibrary
from edge_rag.ingest.page_images import PageImages
from edge_rag.ingest.parsing.document_format import PARSER_MEMORY_BYTES, ParsingLimits
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

_MIB: Final = 1 << 20


def _ignore(collection: str, epoch: int) -> None:
    pass


class LockedLibrary:
    """A data directory that is locked, and its open database: what can be opened before the models are.

    Attributes:
        resources: What ``close`` closes before the database may be pushed on it.
    """

    def __init__(self, path: Path, on_progress: Callable[[int, int], None] | None = None) -> None:
        self.path = path
        with ExitStack() as resources:
            resources.enter_context(DataDirectory(path))
            self.opened = open_library(path, on_progress)
            resources.callback(self.opened.database.close)
            self.resources = resources.pop_all()

    def close(self) -> None:
        """Closes the database and everything that uses it, and releases the directory; idempotent."""
        self.resources.close()


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
class DirectoryOptions:
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
    """An open data directory; it is created if necessary.

    Indexes that are missing, damaged or out of date are rebuilt before the constructor returns. Vectors of another
    embedder are computed again from the stored text, before it returns too or once ``renewal`` is started. The intact
    part of a damaged library is opened, and all changes are refused.

    Args:
        path: The directory; or its library, which is closed with the directory or if this raises.
        options: Options; the defaults if None.
        on_removed: Called with a collection's name and its new epoch after text of it was removed.
        working: Returns a context that is entered while chunks of a document are embedded on this box.
        embedding: Source of the vectors of documents; must give the embedder's own. The embedder if None.
        token_embedder: The embedder of this box whose token vectors of passages are kept; None keeps none.
        on_progress: Called with the numbers of passages done and of all while words are indexed anew, as after an
            upgrade.

    Attributes:
        damage: The damage to the library, of which only the intact part is open then; None if undamaged.
        renewal: Embeds chunks again whose vector another embedder computed; start it if that was postponed.
        token_vectors: Token vectors of passages; None where none are kept.
    """

    def __init__(
        self,
        path: Path | LockedLibrary,
        embedder: Embedder,
        options: DirectoryOptions | None = None,
        *,
        on_removed: Callable[[str, int], None] = _ignore,
        working: Callable[[], AbstractContextManager[None]] = nullcontext,
        embedding: Embedding | None = None,
        token_embedder: PassageEmbedder | None = None,
        renew_later: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        locked = path if isinstance(path, LockedLibrary) else LockedLibrary(path, on_progress)
        self._resources = locked.resources
        self._path, self._database, self.damage = locked.opened.path, locked.opened.database, locked.opened.damage
        self._embedder = embedder
        self._options = options or DirectoryOptions()
        if self.damage is not None:
            # Milvus keeps the vectors of the whole library; those of the part that is served are searched here.
            self._options = replace(self._options, milvus=None)
        with ExitStack() as failed:
            failed.callback(self.close)
            self._open_stores(locked.path)
            self._open_indexes(token_embedder)
            self._open_library(on_removed, working, embedding)
            if self.damage is not None or not renew_later:
                self.renewal.run()
            self._resources.callback(self.renewal.close)
            self._receive_documents()
            if self.damage is not None:
                self._database.refuse_writes(
                    "the library is damaged: what is whole of it is served, and nothing is changed or backed up until "
                    f"it is repaired; {ADVICE}"
                )
            failed.pop_all()

    def _open_stores(self, home: Path) -> None:
        path, database, options = self._path, self._database, self._options
        self._limits = _chunk_limits(self._embedder, options)
        self.spool = Spool(path / "spool", options.spool_bytes)
        originals = Originals(home / ORIGINALS, database, options.keep_originals)
        if self.damage is None:  # a damaged library does not know all
            originals.recover()
        self.documents = DocumentStore(database, self.spool, originals)
        self.collections = CollectionStore(database, self.spool, originals)
        self.feedback = FeedbackStore(database)
        self.evaluation = EvaluationStore(database)
        self.attachments = AttachmentStore(database, self.spool)
        self.backups = Backups(path, database, self.spool, originals)
        self.stored_backups = StoredBackups(home / BACKUPS, options.backups_kept)

    def _open_indexes(self, token_embedder: PassageEmbedder | None) -> None:
        self._stored = StoredVectors(self._database, self._embedder.name)
        backends = _backends(self._path, self._embedder, self._stored, self._options)
        self.indexes = VectorIndexes(backends, self._stored, self._embedder.dimension)
        self._resources.callback(self.indexes.close)
        self.indexes.load(self.documents.collections())
        self.token_vectors: TokenVectorFile | None = None
        if token_embedder is None:
            remove_token_vectors(self._path)
        elif self.damage is None:
            most = self._options.token_vector_bytes
            self.token_vectors = TokenVectorFile(self._path, token_embedder, most, self._stored.present)
            self._resources.callback(self.token_vectors.close)

    def _open_library(
        self,
        on_removed: Callable[[str, int], None],
        working: Callable[[], AbstractContextManager[None]],
        embedding: Embedding | None,
    ) -> None:
        database, options, embedder = self._database, self._options, self._embedder
        parsers = ParserPool(partial(ParserProcess, options.parsing, options.scan_languages), options.parsers)
        self._resources.callback(parsers.close)
        self.pages = PageImages(self.documents, parsers)

        def removed(collection: str, epoch: int) -> None:
            self.pages.forget(collection)
            on_removed(collection, epoch)

        self.library = DocumentLibrary(
            self.documents,
            self.collections,
            self.indexes,
            parsers,
            embedder,
            self._limits,
            removed,
            working,
            embedding,
            self.token_vectors,
        )
        source = embedding or LocalEmbedding(embedder)
        self.renewal = VectorRenewal(database, self._stored, self.indexes, self.library, embedder, source, working)
        self.retriever = HybridRetriever(
            embedder,
            self.documents,
            self.indexes,
            Bm25Index(database),
            AllowedChunks(database),
            Vocabularies(database),
            options.depth,
        )

    def _receive_documents(self) -> None:
        self.jobs = JobStore(self._database, self.spool)
        self.jobs.recover()
        self.files = FileStore(self._path / "files", self._database, self.spool, self._options.files_bytes)
        self.files.recover()
        self._resources.callback(self.files.close)

    def close(self) -> None:
        """Saves the indexes, ends the parser process and releases the directory; idempotent.

        The library and the retriever must not be in use any more.
        """
        self._resources.close()


def options_of(settings: Settings, plan: MemoryPlan, parsers: int) -> DirectoryOptions:
    """Returns the options that settings and the memory plan allow, with so many parsers."""
    return DirectoryOptions(
        parsing=ParsingLimits(
            max_bytes=settings.document_bytes,
            wall_seconds=settings.ingest.parse_seconds,
            cpu_seconds=settings.ingest.parse_seconds,
            memory_bytes=min(PARSER_MEMORY_BYTES, parsing_bytes(plan, parsers)),
        ),
        parsers=parsers,
        scan_languages=settings.ingest.scan_languages,
        milvus=_milvus_address(settings.retriever.milvus),
        spool_bytes=settings.ingest.spool_mib * _MIB,
        files_bytes=settings.ingest.files_mib * _MIB,
        keep_originals=settings.ingest.keep_originals,
        token_vector_bytes=token_vector_bytes(settings),
        backups_kept=settings.backup.keep,
    )


def _milvus_address(wanted: MilvusSettings) -> MilvusAddress | None:
    if wanted.uri is None:
        return None
    token = ""
    if wanted.token_file is not None:
        try:
            token = wanted.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"retriever.milvus.token_file: {wanted.token_file}: {error}") from error
    uri = wanted.uri if wanted.uri.startswith("http") else str(Path(wanted.uri).expanduser().absolute())
    return MilvusAddress(uri, token)


def _backends(
    path: Path, embedder: Embedder, stored: StoredVectors, options: DirectoryOptions
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


def _chunk_limits(embedder: Embedder, options: DirectoryOptions) -> ChunkLimits:
    target = min(options.chunk_tokens, embedder.max_tokens - options.context_tokens - SPECIAL_TOKENS)
    if target < 1 or options.context_tokens < 0:
        raise ConfigurationError(
            f"chunks of {options.chunk_tokens} tokens with {options.context_tokens} tokens of headings cannot be "
            f"embedded: {embedder.name} reads {embedder.max_tokens} tokens"
        )
    return ChunkLimits(target, options.context_tokens)
