"""Documents during ingest: uploaded, parsed, chunked and stored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol

from edge_rag.core.documents.lines import NO_LINES, LineMap
from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.ids import DocumentId, Unrecognized
from edge_rag.errors import DocumentRejected, EdgeRagError, InvalidRequest, UnsupportedFormat


class BlockKind(Enum):
    """Structural role of a block."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    LIST_ITEM = "list_item"
    TABLE_ROW = "table_row"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Block:
    """A structural unit of a document.

    Attributes:
        start: First character in ``ParsedDocument.text``.
        end: One past the last character.
        level: Heading level, 1 for the topmost; 0 for any other block.
        page: 1-based page number, or None if the format has no pages.
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    page: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """The plain text of a document with its structure. Citations refer to this text.

    Attributes:
        title: Title found in the document, or empty.
        text: Stored text. Every citation is a character range of it.
        pages: Number of pages, or None if the format has no pages.
        metadata: Metadata found in the document: its front matter, or title, author, created and modified as far as the
            format has them. Invalid values are left out later (``usable_metadata``).
        note: The parts that were left out and what to do about it, for the uploader; empty if nothing was.
        lines: Lines of the source that its text is from; empty if the format has no lines that a person sees.
    """

    title: str
    text: str
    blocks: tuple[Block, ...]
    pages: int | None = None
    metadata: Metadata = field(default_factory=dict, hash=False)
    note: str = ""
    lines: LineMap = NO_LINES


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage-sized part of a document, before it has an id.

    Attributes:
        ordinal: 0-based position among the document's chunks.
        start: First character in the stored text.
        end: One past the last character.
        page: 1-based page on which the chunk starts, or None.
        context: Headings above the chunk, outermost first; indexed with the chunk, never shown as its text.
        text: Exactly ``ParsedDocument.text[start:end]``.
        lines: Lines of the source that the text from the end of the previous chunk to ``end`` is from.
    """

    ordinal: int
    start: int
    end: int
    page: int | None
    context: tuple[str, ...]
    text: str
    lines: LineMap = NO_LINES


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """The record of a stored document.

    Attributes:
        document_id: Id.
        collection: Name of its collection.
        name: Name given by the client, unique within its collection; usually a relative path.
        title: Title found in the document, may be empty.
        media_type: IANA media type, for example ``application/pdf``.
        sha256: SHA-256 of the ingested bytes, lower-case hex.
        size_bytes: Number of those bytes.
        characters: Length of the stored text.
        chunks: Number of chunks.
        pages: Number of pages, or None.
        ingested_at: Time of the commit, UTC.
        metadata: Metadata.
        original: Whether the ingested bytes are kept.
    """

    document_id: DocumentId
    collection: str
    name: str
    title: str
    media_type: str
    sha256: str
    size_bytes: int
    characters: int
    chunks: int
    pages: int | None
    ingested_at: datetime
    metadata: Metadata = field(default_factory=dict, hash=False)
    original: bool = False


@dataclass(frozen=True, slots=True)
class DocumentPlace:
    """Where in a document a part of its text is.

    Attributes:
        page: 1-based page on which its passage starts; None if the format has no pages.
        headings: Headings above it, outermost first.
        line: 1-based line of the source on which it starts; None if unknown.
    """

    page: int | None = None
    headings: tuple[str, ...] = ()
    line: int | None = None


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk of a stored document.

    Attributes:
        position: 0-based position among the document's chunks.
        start: First character in the document's stored text.
        end: One past the last character.
        page: 1-based page on which it starts, or null.
        headings: Headings above it, outermost first; they are indexed with it.
        text: Exactly the stored text in that range.
        before: Stored text between the chunk before and this one, which is in none: headings and white space; its first
            1,024 characters.
        tokens: Tokens of its text, as the embedder of this box counts them without special ones.
        language: Its language, a BCP 47 tag; null if it is not sure.
        indexed: Whether its vector is in the vector index.
    """

    position: int
    start: int
    end: int
    page: int | None
    headings: tuple[str, ...]
    text: str
    before: str
    tokens: int
    language: str | None
    indexed: bool


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """A page of a document's chunks.

    Attributes:
        document: The document.
        chunk_tokens: Size that its chunks were packed to, tokens; null if an older version ingested it.
        chunks: In order of the text, not overlapping.
        next: Position after which the next page begins; null at the end.
    """

    document: DocumentInfo
    chunk_tokens: int | None
    chunks: tuple[StoredChunk, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class ChunkTerm:
    """A term by which a chunk is found in full text search.

    Attributes:
        term: The term: a stem, a number in one form, or two or three characters of a script without spaces.
        word: The first word of the chunk with it, as written.
        occurrences: How often it is in the chunk's text.
        in_headings: Whether it is in the headings above the chunk.
        indexed: Whether the full text index holds it for the chunk.
        chunks: Chunks of the collection with it, counted up to 1,024.
    """

    term: str
    word: str
    occurrences: int
    in_headings: bool
    indexed: bool
    chunks: int


@dataclass(frozen=True, slots=True)
class ChunkTerms:
    """The entries of a chunk in the full text index.

    Attributes:
        position: 0-based position of the chunk in its document.
        terms: Its terms in the order of its headings and text, at most 1,000.
        left_out: How many further terms it has.
        collection_chunks: Chunks of the collection.
    """

    position: int
    terms: tuple[ChunkTerm, ...]
    left_out: int
    collection_chunks: int


class Content(Protocol):
    """The bytes of an uploaded document, which may be on disk until they are read."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes."""
        ...

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes, lower-case hex."""
        ...

    def read(self) -> bytes:
        """Returns the bytes.

        Raises:
            StorageCorrupt: They are missing or damaged.
            StorageError: They could not be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class BytesContent:
    """Content in memory."""

    content: bytes

    @property
    def size_bytes(self) -> int:
        """Number of bytes."""
        return len(self.content)

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes, lower-case hex."""
        return hashlib.sha256(self.content).hexdigest()

    def read(self) -> bytes:
        """Returns the bytes."""
        return self.content


@dataclass(frozen=True, slots=True)
class Upload:
    """A document as uploaded by a client.

    Attributes:
        name: 1 to 1,024 characters, no control characters; a document of that name in the collection is replaced.
        media_type: Media type stated by the client, or empty for detection.
        content: The bytes, read when the document is processed.
        metadata: Metadata given by the client; replaces values found in the document.
        owner: Name of the identity that uploads it; shares of the spool are counted by it.
        file: Id of the file that the bytes are of; empty if they were sent as a document.
    """

    collection: str
    name: str
    media_type: str
    content: Content
    metadata: Metadata = field(default_factory=dict, hash=False)
    owner: str = ""
    file: str = ""

    @classmethod
    def of_bytes(
        cls, collection: str, name: str, media_type: str, content: bytes, metadata: Metadata | None = None
    ) -> Upload:
        """Returns a document whose bytes are in memory."""
        return cls(collection, name, media_type, BytesContent(content), metadata or {})


class IngestStatus(Enum):
    """Result of an ingest."""

    ADDED = "added"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    REJECTED = "rejected"


class RejectionCause(Enum):
    """Why a document is rejected. UNSUPPORTED: Its format is not read. UNUSABLE: It is damaged, empty, encrypted or too
    large, or its name or metadata are not allowed. INTERNAL: The daemon failed.
    """

    UNSUPPORTED = "unsupported"
    UNUSABLE = "unusable"
    INTERNAL = "internal"

    @classmethod
    def of(cls, error: EdgeRagError) -> RejectionCause:
        """Returns the class of the error for which a document is rejected."""
        match error:
            case UnsupportedFormat():
                return cls.UNSUPPORTED
            case DocumentRejected() | InvalidRequest():
                return cls.UNUSABLE
            case _:
                return cls.INTERNAL


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    """Result of the ingest of one document; durable on return unless it is REJECTED.

    Attributes:
        name: Name of the document.
        status: Result.
        document: Its record; None if rejected.
        reason: Why it was rejected, or which parts were left out of a stored one; empty otherwise.
        cause: Class of the reason of a rejection; it is not sent to clients. None if it is not one.
    """

    name: str
    status: IngestStatus | Unrecognized
    document: DocumentInfo | None = None
    reason: str = ""
    cause: RejectionCause | None = None
