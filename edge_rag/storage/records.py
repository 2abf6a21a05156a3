"""What goes into the store and what comes out of it, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.documents.collection import CollectionSettings
from edge_rag.core.documents.document import Chunk, DocumentInfo, ParsedDocument
from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.ids import ChunkId
from edge_rag.core.passage import Passage


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as it is stored.

    Attributes:
        number: Its row id, never reused.
        name: Its name.
        generation: Random; another one after every change of the collection's chunks or vectors.
        settings: What was chosen for it.
        kept: Whether it stays when its last document goes.
        epoch: Another, larger number after text of it was removed; never that of another collection.
    """

    number: int
    name: str
    generation: str
    settings: CollectionSettings
    kept: bool
    epoch: int


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A chunk as it is stored.

    Attributes:
        passage: The passage it is.
        ordinal: 0-based position among the document's chunks.
        ingested_at: When the document was ingested, UTC.
    """

    passage: Passage
    ordinal: int
    ingested_at: datetime


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document ready to be stored.

    Attributes:
        collection: Name of the collection, made if it does not exist.
        name: Name of the document; one of that name is replaced.
        media_type: IANA media type.
        sha256: Lower-case hex digest of the bytes.
        size_bytes: Their number.
        parsed: Its text.
        chunks: Its chunks.
        embedder: Name of the model that made the vectors.
        vectors: float32 [chunks, dimension].
        metadata: What is known of it.
        given_metadata: Those of it that the client gave.
        chunk_tokens: Size its chunks were packed to.
    """

    collection: str
    name: str
    media_type: str
    sha256: str
    size_bytes: int
    parsed: ParsedDocument
    chunks: tuple[Chunk, ...]
    embedder: str
    vectors: NDArray[np.float32]
    metadata: Metadata
    given_metadata: Metadata
    chunk_tokens: int


@dataclass(frozen=True, slots=True)
class Change:
    """What a committed transaction did to a collection's vectors.

    Attributes:
        collection: The collection after it.
        removed: Chunks that are gone.
        added: Chunks that are new, in the order of the document's.
        info: The document written or deleted.
        dropped: Whether the collection is gone with its last document.
    """

    collection: Collection
    removed: tuple[ChunkId, ...]
    added: tuple[ChunkId, ...]
    info: DocumentInfo
    dropped: bool = False
