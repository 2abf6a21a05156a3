"""Files: bytes that clients send in one step and make documents of in another."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final, NewType

from edge_rag.core.documents.document import RejectionCause
from edge_rag.core.documents.jobs import JobDocumentState, JobId
from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.ids import DocumentId

FileId = NewType("FileId", str)
"""``file-`` and 24 lower-case hex digits; ids sort by age."""

KEPT_S: Final = 7 * 24 * 3600
"""How long the bytes of a complete file are kept unless its sender says otherwise, seconds."""


class FileState(Enum):
    """State of a file that was received whole.

    COMPLETE: It has its bytes. RELEASED: Its bytes were deleted after a document was made of them.
    """

    COMPLETE = "complete"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class NewFile:
    """The facts about a file that are known before its bytes.

    Attributes:
        media_type: Media type stated by the client; empty for detection.
    """

    owner: str
    name: str
    media_type: str


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file.

    Attributes:
        about: The facts known before its bytes.
        purpose: What its sender wants it for, as OpenAI's API names it.
        kept_s: How long its bytes are kept, seconds.
        size_bytes: Number of its bytes.
        sha256: SHA-256 of its bytes, lower-case hex.
        created_at: When it was begun, UTC.
        expires_at: When its bytes are deleted, UTC; None once they are. A file that no document was made of goes with
            its bytes.
    """

    file_id: FileId
    about: NewFile
    purpose: str
    kept_s: int
    state: FileState
    size_bytes: int
    sha256: str
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that becomes or became a document of a collection.

    Attributes:
        file_id: Id of the file; of a document that came another way, the document's id.
        size_bytes: Number of the file's bytes.
        state: State of the job's document; ADDED for one that came another way.
        reason: Why it was rejected or superseded, or which parts were left out of a stored one; empty otherwise.
        job_id: Id of the job that stores it; empty for a document that came another way.
        attached_at: When it was attached, UTC.
    """

    file_id: str
    collection: str
    name: str
    size_bytes: int
    state: JobDocumentState
    reason: str
    document_id: DocumentId | None
    job_id: JobId
    attached_at: datetime
    cause: RejectionCause | None = None
    metadata: Metadata = field(default_factory=dict, hash=False)
