"""Ingest jobs and their queued documents in SQLite; the bytes of queued documents are in the spool.

The functions run inside a transaction of their caller; ``JobStore`` opens its own.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import apsw

from edge_rag.core.documents.document import RejectionCause, Upload
from edge_rag.core.documents.jobs import (
    Job,
    JobBacklog,
    JobDocument,
    JobDocumentState,
    JobId,
    JobState,
    QueuedDocument,
    Ticket,
)
from edge_rag.core.documents.metadata import decode_metadata, encode_metadata
from edge_rag.core.ids import DocumentId
from edge_rag.errors import JobClosed, JobNotFound
from edge_rag.storage.database import Database
from edge_rag.storage.spool.files import Spool, SpooledContent


def is_queued(connection: apsw.Connection, ticket: Ticket) -> bool:
    row = connection.execute(
        "SELECT 1 FROM job_documents WHERE ticket = ? AND state = ?", (ticket, JobDocumentState.QUEUED.value)
    ).fetchone()
    return row is not None


def complete(
    connection: apsw.Connection,
    ticket: Ticket,
    state: JobDocumentState,
    reason: str = "",
    document_id: DocumentId | None = None,
    cause: RejectionCause | None = None,
) -> None:
    """Sets the final state of an accepted document; finishes its job if it was the last one."""
    (job,) = connection.execute("SELECT job FROM job_documents WHERE ticket = ?", (ticket,)).fetchone()
    connection.execute(
        "UPDATE job_documents SET state = ?, reason = ?, document_id = ?, change = ? WHERE ticket = ?",
        (state.value, reason, document_id, next_change(connection, job), ticket),
    )
    connection.execute(
        "UPDATE attachments SET state = ?, reason = ?, cause = ?, document_id = ? WHERE ticket = ?",
        (state.value, reason, None if cause is None else cause.value, document_id, ticket),
    )
    finish_if_done(connection, job)


def attach(connection: apsw.Connection, job_id: JobId, ticket: Ticket, upload: Upload) -> None:
    """Records which file an accepted document is made of; replaces the file's earlier record in the collection."""
    connection.execute(
        "INSERT OR REPLACE INTO attachments (collection, file, name, size_bytes, sha256, ticket, job, "
        "state, reason, attached_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', ?)",
        (
            upload.collection,
            upload.file,
            upload.name,
            upload.content.size_bytes,
            upload.content.sha256,
            ticket,
            job_id,
            JobDocumentState.QUEUED.value,
            time.time_ns() // 1_000_000,
        ),
    )


def supersede(
    connection: apsw.Connection, collection: str, name: str, before: Ticket | None, reason: str
) -> tuple[str, ...]:
    """Supersedes queued documents of a name, because a later operation replaced or removed it.

    Args:
        before: Only documents accepted before this ticket; None for all.

    Returns:
        Names of their spool files, to be discarded after the commit.
    """
    waiting = connection.execute(
        "SELECT ticket, spooled FROM job_documents WHERE collection = ? AND name = ? AND state = 'queued' "
        "AND ticket < ?",
        (collection, name, (1 << 62) if before is None else before),
    ).fetchall()
    return _supersede(connection, waiting, reason)


def supersede_all(connection: apsw.Connection, collection: str, reason: str) -> tuple[str, ...]:
    waiting = connection.execute(
        "SELECT ticket, spooled FROM job_documents WHERE collection = ? AND state = 'queued'", (collection,)
    ).fetchall()
    return _supersede(connection, waiting, reason)


def _supersede(connection: apsw.Connection, waiting: Sequence[tuple[Any, ...]], reason: str) -> tuple[str, ...]:
    for ticket, _ in waiting:
        complete(connection, Ticket(ticket), JobDocumentState.SUPERSEDED, reason)
    return tuple(spooled for _, spooled in waiting)


def next_change(connection: apsw.Connection, job: int) -> int:
    connection.execute("UPDATE jobs SET changes = changes + 1 WHERE job = ?", (job,))
    (change,) = connection.execute("SELECT changes FROM jobs WHERE job = ?", (job,)).fetchone()
    return int(change)


def finish_if_done(connection: apsw.Connection, job: int) -> None:
    connection.execute(
        "UPDATE jobs SET state = ?, finished_at = ?, changes = changes + 1 WHERE job = ? AND handed_over AND state = ? "
        "AND NOT EXISTS (SELECT 1 FROM job_documents d WHERE d.job = jobs.job AND d.state = 'queued')",
        (JobState.FINISHED.value, datetime.now(UTC).isoformat(), job, JobState.RUNNING.value),
    )


_DOCUMENTS: Final = (
    "SELECT d.ticket, d.collection, d.name, d.size_bytes, d.state, d.reason, d.document_id, d.change, "
    "s.chunks, s.pages FROM job_documents d LEFT JOIN documents s ON s.id = d.document_id"
)
MAX_FINISHED_JOBS: Final = 100
"""Finished jobs that are kept of one owner."""

MAX_FINISHED_JOBS_OF_ALL: Final = 1000
"""Finished jobs that are kept in all; beyond it the owner with the most loses its oldest."""

MAX_COLLECTIONS: Final = 32
"""Collections of an owner whose documents are compared when the next one is chosen."""

WINDOW_DOCUMENTS: Final = 64
"""Oldest documents of an owner and collection that are compared when the next one is chosen."""

MAX_PAGE_BYTES: Final = 256 << 10
"""Bytes of names and reasons after which a page of a job's documents ends."""

_MAX_EMPTY_JOBS: Final = 100
_QUEUED: Final = JobDocumentState.QUEUED.value


@dataclass(frozen=True, slots=True)
class _EmptyJob:
    """A job that has accepted no document."""

    owner: str
    job: Job


class JobStore:
    """Stores jobs and the documents accepted for them. May be used from any thread; every change is durable on return.

    A job is written with its first document. One without documents exists in memory only, and the latest hundred of
    them are remembered, so that starting jobs costs nobody a record.

    Args:
        spool: Holds the bytes of queued documents.
    """

    def __init__(self, database: Database, spool: Spool) -> None:
        self._database = database
        self._spool = spool
        self._empty_lock = threading.Lock()
        self._empty: dict[JobId, _EmptyJob] = {}

    def recover(self) -> None:
        """Ends the uploads of jobs that an earlier process left open, and removes spool files of no queued document."""
        with self._database.writing() as connection:
            open_jobs = connection.execute("SELECT job FROM jobs WHERE NOT handed_over").fetchall()
            for (job,) in open_jobs:
                connection.execute("UPDATE jobs SET handed_over = 1 WHERE job = ?", (job,))
                finish_if_done(connection, job)
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT spooled, owner, size_bytes FROM job_documents WHERE state = ?", (_QUEUED,)
            ).fetchall()
        self._spool.keep_only({name: (owner, size_bytes) for name, owner, size_bytes in rows})

    def start(self, owner: str) -> Job:
        job_id = JobId(secrets.token_hex(8))
        job = Job(job_id, JobState.RUNNING, datetime.now(UTC), None, frozenset(), {}, 0, 0)
        with self._empty_lock:
            self._empty[job_id] = _EmptyJob(owner, job)
        return job

    def accept(self, job_id: JobId, upload: Upload) -> JobDocument:
        """Queues a document durably: it will be stored even if this process ends.

        Bytes that were received by the spool of this store are committed, others are added to it.
        """
        content = upload.content
        if not isinstance(content, SpooledContent):
            content = self._spool.add(upload.owner, content.read())
        spooled = self._spool.commit(content)
        try:
            with self._database.writing() as connection:
                job, owner = self._written(connection, job_id)
                connection.execute(
                    "INSERT INTO job_documents (job, owner, collection, name, media_type, metadata, size_bytes, "
                    "sha256, spooled, state, reason, change) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?)",
                    (
                        job,
                        owner,
                        upload.collection,
                        upload.name,
                        upload.media_type,
                        encode_metadata(upload.metadata),
                        content.size_bytes,
                        content.sha256,
                        spooled,
                        _QUEUED,
                        next_change(connection, job),
                    ),
                )
                ticket = connection.last_insert_rowid()
                if upload.file:
                    attach(connection, job_id, Ticket(ticket), upload)
                row = connection.execute(f"{_DOCUMENTS} WHERE d.ticket = ?", (ticket,)).fetchone()
        except BaseException:
            self._spool.discard(spooled)
            raise
        with self._empty_lock:
            self._empty.pop(job_id, None)
        return _document(row)

    def finish_uploads(self, job_id: JobId) -> None:
        """Records that a job gets no further documents."""
        with self._database.writing() as connection:
            job = _find(connection, job_id)
            if job is None:
                self._end_empty(job_id, JobState.FINISHED)
                return
            connection.execute("UPDATE jobs SET handed_over = 1 WHERE job = ?", (job,))
            finish_if_done(connection, job)

    def owners(self) -> tuple[str, ...]:
        """Returns the names of those who have queued documents."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "WITH RECURSIVE found(owner) AS (SELECT min(owner) FROM job_documents WHERE state = 'queued' UNION ALL "
                "SELECT (SELECT min(owner) FROM job_documents WHERE state = 'queued' AND owner > found.owner) "
                "FROM found WHERE found.owner IS NOT NULL) SELECT owner FROM found WHERE owner IS NOT NULL"
            ).fetchall()
        return tuple(owner for (owner,) in rows)

    def waiting(self, owner: str, after: str) -> tuple[QueuedDocument, ...]:
        """Returns the oldest queued documents of some collections of an owner; of each name the oldest only.

        Args:
            after: Name of a collection; the ones that follow it by name, and then the first ones, are returned.
        """
        with self._database.snapshot() as connection:
            following = _collections(connection, owner, after, None, MAX_COLLECTIONS)
            first = _collections(connection, owner, "", after, MAX_COLLECTIONS - len(following))
            return tuple(
                QueuedDocument(ticket, JobId(job_id), owner, collection, name, size_bytes)
                for collection in (*following, *first)
                for ticket, job_id, name, size_bytes in connection.execute(
                    "SELECT d.ticket, j.id, d.name, d.size_bytes FROM (SELECT ticket, job, name, size_bytes "
                    "FROM job_documents WHERE state = 'queued' AND owner = :owner AND collection = :collection "
                    "ORDER BY ticket LIMIT :window) d JOIN jobs j USING (job) WHERE NOT EXISTS (SELECT 1 FROM "
                    "job_documents o WHERE o.state = 'queued' AND o.collection = :collection AND o.name = d.name "
                    "AND o.ticket < d.ticket)",
                    {"owner": owner, "collection": collection, "window": WINDOW_DOCUMENTS},
                ).fetchall()
            )

    def is_queued(self, ticket: Ticket) -> bool:
        with self._database.reading() as connection:
            return is_queued(connection, ticket)

    def backlog(self) -> tuple[JobBacklog, ...]:
        """Returns the queued documents of each job, in order of their start."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT j.id, j.owner, count(*), sum(d.size_bytes) FROM job_documents d JOIN jobs j USING (job) "
                "WHERE d.state = 'queued' GROUP BY d.job ORDER BY d.job"
            ).fetchall()
        return tuple(JobBacklog(JobId(job_id), *counts) for job_id, *counts in rows)

    def upload(self, ticket: Ticket) -> Upload:
        """Returns a queued document; its bytes are read from the spool on use."""
        with self._database.reading() as connection:
            collection, name, media_type, metadata, size_bytes, sha256, spooled, owner = connection.execute(
                "SELECT collection, name, media_type, metadata, size_bytes, sha256, spooled, owner FROM job_documents "
                "WHERE ticket = ?",
                (ticket,),
            ).fetchone()
        content = self._spool.open(spooled, size_bytes, sha256)
        return Upload(collection, name, media_type, content, decode_metadata(metadata), owner)

    def complete(
        self,
        ticket: Ticket,
        state: JobDocumentState,
        reason: str = "",
        document_id: DocumentId | None = None,
        cause: RejectionCause | None = None,
    ) -> None:
        """Sets the final state of a document unless it has one, and deletes its bytes from the spool."""
        with self._database.writing() as connection:
            if is_queued(connection, ticket):
                complete(connection, ticket, state, reason, document_id, cause)
            (spooled,) = connection.execute("SELECT spooled FROM job_documents WHERE ticket = ?", (ticket,)).fetchone()
        self._spool.discard(spooled)

    def cancel(self, job_id: JobId) -> Job:
        """Cancels a job: documents that are not stored yet will not be. A finished job is not changed."""
        with self._database.writing() as connection:
            job = _find(connection, job_id)
            if job is None:
                return self._end_empty(job_id, JobState.CANCELLED)
            waiting = connection.execute(
                "SELECT ticket, spooled FROM job_documents WHERE job = ? AND state = ?", (job, _QUEUED)
            ).fetchall()
            connection.execute(
                "UPDATE jobs SET state = ?, finished_at = ?, handed_over = 1, changes = changes + 1 "
                "WHERE job = ? AND state = ?",
                (JobState.CANCELLED.value, datetime.now(UTC).isoformat(), job, JobState.RUNNING.value),
            )
            for ticket, _ in waiting:
                complete(connection, Ticket(ticket), JobDocumentState.CANCELLED)
        self._spool.discard(*(spooled for _, spooled in waiting))
        return self.job(job_id)

    def job(self, job_id: JobId) -> Job:
        empty = self._empty_job(job_id)
        if empty is not None:
            return empty
        with self._database.snapshot() as connection:
            return _job(connection, _require(connection, job_id))

    def jobs(self, limit: int, within: frozenset[str] | None = None) -> tuple[Job, ...]:
        """Returns the latest jobs that have documents, newest first.

        Args:
            within: Only jobs whose documents are all for these collections; None for all jobs.
        """
        with self._database.snapshot() as connection:
            rows = connection.execute(
                "SELECT job FROM jobs j WHERE :all OR NOT EXISTS (SELECT 1 FROM job_documents d WHERE d.job = j.job "
                "AND d.collection NOT IN (SELECT value FROM json_each(:within))) ORDER BY job DESC LIMIT :limit",
                {"all": within is None, "within": json.dumps(sorted(within or ())), "limit": limit},
            ).fetchall()
            return tuple(_job(connection, job) for (job,) in rows)

    def changes(self, job_id: JobId, after: int, limit: int) -> tuple[Job, tuple[JobDocument, ...]]:
        """Returns a job, and those of its documents whose change number is above ``after``, in order of change.

        They are at most ``limit``, and end when names and reasons have ``MAX_PAGE_BYTES``.
        """
        empty = self._empty_job(job_id)
        if empty is not None:
            return empty, ()
        with self._database.snapshot() as connection:
            job = _require(connection, job_id)
            rows = connection.execute(
                f"{_DOCUMENTS} WHERE d.job = ? AND d.change > ? ORDER BY d.change LIMIT ?",
                (job, after, limit),
            ).fetchall()
            documents: list[JobDocument] = []
            size = 0
            for row in rows:
                documents.append(_document(row))
                size += len(documents[-1].name.encode()) + len(documents[-1].reason.encode())
                if size >= MAX_PAGE_BYTES:
                    break
            return _job(connection, job), tuple(documents)

    def _written(self, connection: apsw.Connection, job_id: JobId) -> tuple[int, str]:
        """Returns the row of a running job, and its owner; writes it if this is its first document."""
        row = connection.execute("SELECT job, owner, state FROM jobs WHERE id = ?", (job_id,)).fetchone()
        if row is not None:
            job, owner, state = row
            if state != JobState.RUNNING.value:
                raise JobClosed(job_id)
            return int(job), str(owner)
        with self._empty_lock:
            empty = self._empty.get(job_id)
        if empty is None:
            raise JobNotFound(job_id)
        if empty.job.state is not JobState.RUNNING:
            raise JobClosed(job_id)
        connection.execute(
            "INSERT INTO jobs (id, owner, state, started_at) VALUES (?, ?, ?, ?)",
            (job_id, empty.owner, JobState.RUNNING.value, empty.job.started_at.isoformat()),
        )
        job = connection.last_insert_rowid()
        _delete_old_jobs(connection, empty.owner)
        return job, empty.owner

    def _empty_job(self, job_id: JobId) -> Job | None:
        with self._empty_lock:
            empty = self._empty.get(job_id)
        return None if empty is None else empty.job

    def _end_empty(self, job_id: JobId, state: JobState) -> Job:
        """Ends a job without documents, and forgets the oldest such jobs."""
        with self._empty_lock:
            empty = self._empty.pop(job_id, None)
            if empty is None:
                raise JobNotFound(job_id)
            if empty.job.state is JobState.RUNNING:
                empty = replace(empty, job=replace(empty.job, state=state, finished_at=datetime.now(UTC)))
            self._empty[job_id] = empty
            ended = [known for known, other in self._empty.items() if other.job.finished_at is not None]
            for known in ended[:-_MAX_EMPTY_JOBS]:
                del self._empty[known]
        return empty.job


def _collections(connection: Any, owner: str, after: str, until: str | None, limit: int) -> list[str]:
    rows = connection.execute(
        "WITH RECURSIVE found(collection) AS (SELECT min(collection) FROM job_documents WHERE state = 'queued' "
        "AND owner = :owner AND collection > :after UNION ALL SELECT (SELECT min(collection) FROM job_documents "
        "WHERE state = 'queued' AND owner = :owner AND collection > found.collection) FROM found "
        "WHERE found.collection IS NOT NULL) SELECT collection FROM found WHERE collection IS NOT NULL "
        "AND (:until IS NULL OR collection <= :until) LIMIT :limit",
        {"owner": owner, "after": after, "until": until, "limit": limit},
    ).fetchall()
    return [collection for (collection,) in rows]


def _delete_old_jobs(connection: apsw.Connection, owner: str) -> None:
    """Deletes the oldest finished jobs beyond the number kept of an owner and in all."""
    running = JobState.RUNNING.value
    connection.execute(
        "DELETE FROM jobs WHERE job IN (SELECT job FROM jobs WHERE owner = ? AND state <> ? ORDER BY job DESC "
        "LIMIT -1 OFFSET ?)",
        (owner, running, MAX_FINISHED_JOBS),
    )
    (finished,) = connection.execute("SELECT count(*) FROM jobs WHERE state <> ?", (running,)).fetchone()
    for _ in range(finished - MAX_FINISHED_JOBS_OF_ALL):
        (oldest,) = connection.execute(
            "SELECT min(job) FROM jobs WHERE state <> ? GROUP BY owner ORDER BY count(*) DESC, min(job) LIMIT 1",
            (running,),
        ).fetchone()
        connection.execute("DELETE FROM jobs WHERE job = ?", (oldest,))


def _find(connection: Any, job_id: JobId) -> int | None:
    row = connection.execute("SELECT job FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return None if row is None else int(row[0])


def _require(connection: Any, job_id: JobId) -> int:
    job = _find(connection, job_id)
    if job is None:
        raise JobNotFound(job_id)
    return job


def _job(connection: Any, job: int) -> Job:
    job_id, state, started_at, finished_at = connection.execute(
        "SELECT id, state, started_at, finished_at FROM jobs WHERE job = ?", (job,)
    ).fetchone()
    rows = connection.execute(
        "SELECT state, count(*), sum(size_bytes) FROM job_documents WHERE job = ? GROUP BY state", (job,)
    ).fetchall()
    collections = connection.execute("SELECT DISTINCT collection FROM job_documents WHERE job = ?", (job,)).fetchall()
    return Job(
        job_id=JobId(job_id),
        state=JobState(state),
        started_at=datetime.fromisoformat(started_at),
        finished_at=None if finished_at is None else datetime.fromisoformat(finished_at),
        collections=frozenset(place for (place,) in collections),
        documents={JobDocumentState(name): count for name, count, _ in rows},
        size_bytes=sum(size for _, _, size in rows),
        done_bytes=sum(size for name, _, size in rows if name != _QUEUED),
    )


def _document(row: Sequence[Any]) -> JobDocument:
    ticket, collection, name, size_bytes, state, reason, document_id, change, chunks, pages = row
    return JobDocument(
        ticket=Ticket(ticket),
        collection=collection,
        name=name,
        size_bytes=size_bytes,
        state=JobDocumentState(state),
        reason=reason,
        document_id=None if document_id is None else DocumentId(document_id),
        change=change,
        chunks=chunks,
        pages=pages,
    )
