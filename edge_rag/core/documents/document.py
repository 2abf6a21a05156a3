"""Documents on their way in: what a parser yields, what chunking yields, what the store reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.ids import DocumentId, Unrecognized


class BlockKind(Enum):
    """Structural role of a block of text."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    LIST_ITEM = "list_item"
    TABLE_ROW = "table_row"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Block:
    """A structural unit of a document.

    Attributes:
        kind: Structural role.
        start: First character in ``ParsedDocument.text``.
        end: One past the last character.
        level: Heading depth, 1 for the topmost; 0 for anything that is not a heading.
        page: 1-based page number, or None where the format has no pages.
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    page: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """The plain text of a document with its structure; what citations point into.

    Attributes:
        title: Title taken from the document itself, empty where it has none.
        text: Stored text. Every citation span is a character range of it.
        blocks: In order, not overlapping.
        pages: Number of pages, or None where the format has no pages.
        metadata: What the document says of itself: its front matter, or where it has none, title, author, created and
            modified as far as the format has them. What is unusable of it is left out later (``usable_metadata``).
        note: What was left out of it and what to do about that, for who handed it over; empty where nothing was.
    """

    title: str
    text: str
    blocks: tuple[Block, ...]
    pages: int | None = None
    metadata: Metadata = field(default_factory=dict, hash=False)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage-sized piece of a document, before it has an id.

    Attributes:
        ordinal: 0-based position among the document's chunks.
        start: First character in the stored text.
        end: One past the last character.
        page: 1-based page on which the chunk starts, or None.
        context: Headings above the chunk, outermost first; indexed with the chunk, never shown as its text.
        text: Exactly ``ParsedDocument.text[start:end]``.
    """

    ordinal: int
    start: int
    end: int
    page: int | None
    context: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """What the store knows of one document.

    Attributes:
        document_id: Its id.
        collection: The collection it belongs to.
        name: Name the client gave it, unique within its collection; usually a relative path.
        title: Title found in the document, may be empty.
        media_type: IANA media type, for example ``application/pdf``.
        sha256: Lower-case hex digest of the bytes that were ingested.
        size_bytes: Size of those bytes.
        characters: Length of the stored text.
        chunks: Number of chunks.
        pages: Number of pages, or None.
        ingested_at: Time of the commit, UTC.
        metadata: What is known of it beside its text.
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


@dataclass(frozen=True, slots=True)
class Upload:
    """One document as a client hands it over.

    Attributes:
        collection: Where it goes; made if it does not exist.
        name: 1 to 1,024 characters, no control characters; unique within the collection, an existing one is replaced.
        media_type: What the client believes it is, or empty to have it found out.
        content: The bytes.
        metadata: What the client knows of it; wins over what the document says of itself.
    """

    collection: str
    name: str
    media_type: str
    content: bytes
    metadata: Metadata = field(default_factory=dict, hash=False)


class IngestStatus(Enum):
    """What became of an uploaded document."""

    ADDED = "added"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    """What became of an uploaded document; anything but REJECTED is durable when this is returned.

    Attributes:
        name: Name of the document.
        status: What became of it.
        document: Its record; None when rejected.
        reason: Why it was rejected, or what was left out of one that was stored; empty otherwise.
    """

    name: str
    status: IngestStatus | Unrecognized
    document: DocumentInfo | None = None
    reason: str = ""
