"""The statements that jobs are made of; each runs inside a transaction of its caller."""

from __future__ import annotations

from datetime import UTC, datetime

import apsw

from edge_rag.core.documents.jobs import JobDocumentState, JobState, Ticket
from edge_rag.core.ids import DocumentId


def is_queued(connection: apsw.Connection, ticket: Ticket) -> bool:
    """Whether nothing has become of an accepted document yet."""
    row = connection.execute(
        "SELECT 1 FROM job_documents WHERE ticket = ? AND state = ?", (ticket, JobDocumentState.QUEUED.value)
    ).fetchone()
    return row is not None


def settle(
    connection: apsw.Connection,
    ticket: Ticket,
    state: JobDocumentState,
    reason: str = "",
    document_id: DocumentId | None = None,
) -> None:
    """Brings an accepted document to its final state; ends its job with the last one."""
    (job,) = connection.execute("SELECT job FROM job_documents WHERE ticket = ?", (ticket,)).fetchone()
    connection.execute(
        "UPDATE job_documents SET state = ?, reason = ?, document_id = ?, change = ? WHERE ticket = ?",
        (state.value, reason, document_id, next_change(connection, job), ticket),
    )
    finish_if_done(connection, job)


def supersede(connection: apsw.Connection, collection: str, name: str, before: Ticket | None, why: str) -> None:
    """Passes over documents of a name that wait to be stored, since what is done now comes after them.

    Args:
        connection: In a transaction.
        collection: Name of the collection.
        name: Name of the document.
        before: Those accepted before this one; None for all.
        why: The reason to give.
    """
    waiting = connection.execute(
        "SELECT ticket FROM job_documents WHERE collection = ? AND name = ? AND state = 'queued' AND ticket < ?",
        (collection, name, (1 << 62) if before is None else before),
    ).fetchall()
    for (ticket,) in waiting:
        settle(connection, Ticket(ticket), JobDocumentState.SUPERSEDED, why)


def supersede_all(connection: apsw.Connection, collection: str, why: str) -> None:
    """Passes over every document of a collection that waits to be stored, in a transaction."""
    waiting = connection.execute(
        "SELECT ticket FROM job_documents WHERE collection = ? AND state = 'queued'", (collection,)
    ).fetchall()
    for (ticket,) in waiting:
        settle(connection, Ticket(ticket), JobDocumentState.SUPERSEDED, why)


def next_change(connection: apsw.Connection, job: int) -> int:
    """Counts one more change of a job and returns its number."""
    connection.execute("UPDATE jobs SET changes = changes + 1 WHERE job = ?", (job,))
    (change,) = connection.execute("SELECT changes FROM jobs WHERE job = ?", (job,)).fetchone()
    return int(change)


def finish_if_done(connection: apsw.Connection, job: int) -> None:
    """Ends a job that is handed over and has no document left to do."""
    connection.execute(
        "UPDATE jobs SET state = ?, finished_at = ?, changes = changes + 1 WHERE job = ? AND handed_over AND state = ? "
        "AND NOT EXISTS (SELECT 1 FROM job_documents d WHERE d.job = jobs.job AND d.state = 'queued')",
        (JobState.FINISHED.value, datetime.now(UTC).isoformat(), job, JobState.RUNNING.value),
    )
