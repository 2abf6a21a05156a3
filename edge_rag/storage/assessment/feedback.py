"""Feedback on answers in SQLite: a bounded number, the newest are kept."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import apsw

from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.feedback import Feedback, NewFeedback, Rating
from edge_rag.errors import FeedbackNotFound
from edge_rag.storage.database import Database
from edge_rag.storage.statements import require_collection

MAX_FEEDBACK: Final = 10_000
"""Most feedback that is kept, of all clients; beyond that the oldest is dropped."""

MAX_CLIENT_FEEDBACK: Final = 2_000
"""Most feedback of one client that is kept, so that none displaces that of all others."""

MAX_FEEDBACK_BYTES: Final = 32 << 20
"""Most bytes of the texts of all feedback that is kept."""

_COLUMNS: Final = "id, client, given_ms, request_id, rating, note, question, answer, collection"

_DROP_OLDEST: Final = """
    DELETE FROM feedback WHERE id IN (SELECT id FROM (SELECT id, row_number() OVER of_all AS place,
        sum(size_bytes) OVER of_all AS bytes, row_number() OVER of_client AS place_of_client FROM feedback
        WINDOW of_all AS (ORDER BY given_ms DESC, id DESC),
            of_client AS (PARTITION BY client ORDER BY given_ms DESC, id DESC))
        WHERE place > ? OR place_of_client > ? OR bytes > ?)
"""


class FeedbackStore:
    """Feedback of a data directory. May be used from any thread; every change is durable on return.

    Args:
        now: The time, UTC.
    """

    def __init__(self, database: Database, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._database = database
        self._now = now

    def give(self, client: str, new: NewFeedback) -> Feedback:
        """Stores feedback; it replaces the client's earlier feedback on the same request. The oldest makes room."""
        now_ms = int(self._now().timestamp() * 1000)
        texts = (new.note, new.question, new.answer)
        size = sum(len(text.encode()) for text in texts)
        row = (secrets.token_hex(16), client, now_ms, new.request_id, new.rating.value, *texts, new.collection)
        with self._database.writing() as connection:
            if new.collection:
                require_collection(connection, new.collection)
            connection.execute("DELETE FROM feedback WHERE client = ? AND request_id = ?", (client, new.request_id))
            connection.execute(
                f"INSERT INTO feedback ({_COLUMNS}, size_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, size)
            )
            connection.execute(_DROP_OLDEST, (MAX_FEEDBACK, MAX_CLIENT_FEEDBACK, MAX_FEEDBACK_BYTES))
        return _feedback(row)

    def list(self, after: str | None, limit: int, rating: Rating | None = None) -> tuple[Feedback, ...]:
        """Returns feedback, the newest first; none follows an unknown ``after``.

        Args:
            after: Id of the last feedback of the page before; None for the first page.
            rating: Only feedback with this rating; None for all.
        """
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM feedback WHERE (:after IS NULL OR (given_ms, id) < "
                "(SELECT given_ms, id FROM feedback WHERE id = :after)) AND (:rating IS NULL OR rating = :rating) "
                "ORDER BY given_ms DESC, id DESC LIMIT :limit",
                {"after": after, "limit": limit, "rating": None if rating is None else rating.value},
            ).fetchall()
        return tuple(map(_feedback, rows))

    def counts(self) -> dict[Rating, int]:
        with self._database.reading() as connection:
            rows = connection.execute("SELECT rating, count(*) FROM feedback GROUP BY rating").fetchall()
        return {Rating(rating): number for rating, number in rows}

    def delete(self, feedback_id: str) -> Feedback:
        """Deletes feedback; returns it.

        Raises:
            FeedbackNotFound: None has that id.
        """

        def remove(connection: apsw.Connection) -> Feedback:
            rows = connection.execute(
                f"DELETE FROM feedback WHERE id = ? RETURNING {_COLUMNS}", (feedback_id,)
            ).fetchall()
            if not rows:
                raise FeedbackNotFound(feedback_id)
            return _feedback(rows[0])

        return self._database.remove(remove)


def _feedback(row: Sequence[Any]) -> Feedback:
    feedback_id, client, given_ms, request_id, rating, note, question, answer, collection = row
    given_at = datetime.fromtimestamp(given_ms / 1000, UTC)
    return Feedback(
        feedback_id, client, given_at, RequestId(request_id), Rating(rating), note, question, answer, collection
    )
