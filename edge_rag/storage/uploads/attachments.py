"""Which files are documents of a collection or will become one, and with which result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Final

from edge_rag.core.documents.document import RejectionCause
from edge_rag.core.documents.files import Attachment
from edge_rag.core.documents.jobs import JobDocumentState, JobId, Ticket
from edge_rag.core.ids import DocumentId
from edge_rag.errors import FileNotFound
from edge_rag.storage.database import Database
from edge_rag.storage.jobs import complete, is_queued
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.statements import stored_metadata

_STORED: Final = "EXISTS (SELECT 1 FROM documents d WHERE d.id = a.document_id AND d.sha256 = a.sha256)"
"""Attachments whose document is stored and was not replaced by other bytes."""

_ATTACHED: Final = f"""
    SELECT a.file AS id, a.name, a.size_bytes, a.state, a.reason, a.document_id, a.job, a.attached_ms AS at_ms, a.cause,
        a.ticket
    FROM attachments a WHERE a.collection = :collection AND (a.document_id IS NULL OR {_STORED})
    UNION ALL
    SELECT d.id, d.name, d.size_bytes, 'added', '', d.id, '',
        CAST(unixepoch(d.ingested_at, 'subsec') * 1000 AS INTEGER), NULL, NULL
    FROM documents d JOIN collections c USING (collection) WHERE c.name = :collection AND NOT EXISTS
        (SELECT 1 FROM attachments a WHERE a.collection = c.name AND a.document_id = d.id AND a.sha256 = d.sha256)
"""
"""Files of a collection, and its documents that came another way."""


_WITH_METADATA: Final = """
    SELECT f.id, f.name, f.size_bytes, f.state, f.reason, f.document_id, f.job, f.at_ms, f.cause, coalesce(
        (SELECT d.metadata FROM documents d WHERE d.id = f.document_id),
        (SELECT j.metadata FROM job_documents j WHERE j.ticket = f.ticket)) FROM
"""
"""Columns that ``_attachment`` reads, of ``f``."""


@dataclass(frozen=True, slots=True)
class AttachmentPage:
    """Which attachments to list.

    Attributes:
        after: Id after which the page begins; None for the beginning.
        newest_first: Whether the newest comes first.
        states: Only those in one of these states; all if empty.
        job_id: Only those of this job; None for all.
    """

    after: str | None
    limit: int
    newest_first: bool
    states: frozenset[JobDocumentState] = frozenset()
    job_id: JobId | None = None


class AttachmentStore:
    """Reads and ends attachments; jobs make them (``storage.jobs.attach``). May be used from any thread.

    Args:
        spool: Holds the bytes of queued documents.
    """

    def __init__(self, database: Database, spool: Spool) -> None:
        self._database = database
        self._spool = spool

    def get(self, collection: str, file_id: str) -> Attachment:
        """Returns an attachment; for a document that came another way by its id.

        Raises:
            FileNotFound: The collection has none of that id.
        """
        with self._database.reading() as connection:
            row = connection.execute(
                f"{_WITH_METADATA} (SELECT * FROM ({_ATTACHED}) WHERE id = :id) f",
                {"collection": collection, "id": file_id},
            ).fetchone()
        if row is None:
            raise FileNotFound(file_id)
        return _attachment(collection, row)

    def list(self, collection: str, page: AttachmentPage) -> tuple[Attachment, ...]:
        """Returns attachments of a collection in order of time; none follow an unknown ``after``."""
        beyond, order = ("<", "DESC") if page.newest_first else (">", "ASC")
        with self._database.snapshot() as connection:
            rows = connection.execute(
                f"WITH attached AS ({_ATTACHED}) {_WITH_METADATA} (SELECT * FROM attached WHERE "
                f"(:after IS NULL OR (at_ms, id) {beyond} "
                "(SELECT at_ms, id FROM attached WHERE id = :after)) AND (:any OR state IN (SELECT value FROM "
                "json_each(:states))) AND (:job IS NULL OR job = :job) "
                f"ORDER BY at_ms {order}, id {order} LIMIT :limit) f ORDER BY at_ms {order}, id {order}",
                {
                    "collection": collection,
                    "after": page.after,
                    "any": not page.states,
                    "states": json.dumps([state.value for state in page.states]),
                    "job": page.job_id,
                    "limit": page.limit,
                },
            ).fetchall()
        return tuple(_attachment(collection, row) for row in rows)

    def counts(self, collection: str, job_id: JobId | None = None) -> dict[JobDocumentState, tuple[int, int]]:
        """Returns number and bytes of a collection's attachments by state.

        Args:
            job_id: Only those of this job; None for all.
        """
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT state, count(*), sum(size_bytes) FROM ({_ATTACHED}) WHERE :job IS NULL OR job = :job "
                "GROUP BY state",
                {"collection": collection, "job": job_id},
            ).fetchall()
        return {JobDocumentState(state): (number, size) for state, number, size in rows}

    def of_file(self, file_id: str) -> tuple[str, ...]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT collection FROM attachments WHERE file = ? ORDER BY collection", (file_id,)
            ).fetchall()
        return tuple(collection for (collection,) in rows)

    def files_of(self, collection: str, documents: Sequence[DocumentId]) -> dict[DocumentId, str]:
        """Returns the id of the file that each document was made of last; of other documents nothing."""
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT document_id, file FROM attachments a WHERE collection = ? AND {_STORED} AND document_id IN "
                "(SELECT value FROM json_each(?)) ORDER BY ticket",
                (collection, json.dumps(list(documents))),
            ).fetchall()
        return {DocumentId(document): file for document, file in rows}

    def free_name(self, collection: str, file_id: str, name: str, sha256: str) -> str:
        """Returns a name under which a file does not replace a document of other bytes.

        Args:
            name: Its own name, returned if it is free or stands for the same bytes.
            sha256: SHA-256 of its bytes, lower-case hex.
        """
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT EXISTS (SELECT 1 FROM documents d JOIN collections c USING (collection) WHERE c.name = "
                ":collection AND d.name = :name AND d.sha256 <> :sha256) OR EXISTS (SELECT 1 FROM job_documents "
                "WHERE collection = :collection AND name = :name AND state = 'queued' AND sha256 <> :sha256)",
                {"collection": collection, "name": name, "sha256": sha256},
            ).fetchone()
        if not row[0]:
            return name
        path = PurePosixPath(name)
        mark = f" ({file_id[-12:]})"
        return f"{name[: len(name) - len(path.suffix)]}"[: 1024 - len(mark) - len(path.suffix)] + mark + path.suffix

    def end(self, collection: str, file_id: str) -> DocumentId | None:
        """Ends an attachment; a document that waits to be stored will not be."""
        spooled: str | None = None
        with self._database.writing() as connection:
            row = connection.execute(
                f"SELECT ticket, document_id, {_STORED} FROM attachments a WHERE collection = ? AND file = ?",
                (collection, file_id),
            ).fetchone()
            if row is None:
                return None
            ticket, document, stored = row
            if is_queued(connection, Ticket(ticket)):
                complete(connection, Ticket(ticket), JobDocumentState.CANCELLED, "the file was removed")
                (spooled,) = connection.execute(
                    "SELECT spooled FROM job_documents WHERE ticket = ?", (ticket,)
                ).fetchone()
            connection.execute("DELETE FROM attachments WHERE collection = ? AND file = ?", (collection, file_id))
            others = connection.execute(
                f"SELECT 1 FROM attachments a WHERE collection = ? AND document_id = ? AND {_STORED}",
                (collection, document),
            ).fetchone()
        if spooled is not None:
            self._spool.discard(spooled)
        return DocumentId(document) if stored and others is None else None


def _attachment(collection: str, row: Sequence[Any]) -> Attachment:
    file_id, name, size_bytes, state, reason, document, job, at_ms, cause, metadata = row
    return Attachment(
        file_id,
        collection,
        name,
        size_bytes,
        JobDocumentState(state),
        reason,
        None if document is None else DocumentId(document),
        JobId(job),
        datetime.fromtimestamp(at_ms / 1000, UTC),
        None if cause is None else RejectionCause(cause),
        {} if metadata is None else stored_metadata(metadata),
    )
