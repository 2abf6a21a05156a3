"""Test questions of collections in SQLite, with their last two runs."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import chain
from typing import Any, Final

import apsw

from edge_rag.core.documents.evaluation import (
    MAX_QUESTIONS,
    EvaluationHit,
    EvaluationRun,
    EvaluationSummary,
    NewQuestion,
    QuestionPage,
    QuestionResult,
    StoredQuestion,
    compared,
)
from edge_rag.errors import InvalidRequest, QuestionNotFound
from edge_rag.storage.database import Database
from edge_rag.storage.statements import require_collection

_QUESTIONS: Final = (
    "SELECT q.id, q.question, q.document, q.expected, "
    "EXISTS (SELECT 1 FROM documents d WHERE d.collection = q.collection AND d.name = q.document), "
    "l.rank, l.hits, b.rank, b.id IS NOT NULL "
    "FROM test_questions q "
    "LEFT JOIN test_results l ON l.collection = q.collection AND l.id = q.id AND l.run = ?2 "
    "LEFT JOIN test_results b ON b.collection = q.collection AND b.id = q.id AND b.run = ?3 "
    "WHERE q.collection = ?1 AND q.id > ?4 ORDER BY q.id LIMIT ?5"
)
_RUNS: Final = (
    "SELECT run, started_at, finished_at, summary FROM test_runs WHERE collection = ? ORDER BY run DESC LIMIT 2"
)
_KEPT_RUNS: Final = 2


class EvaluationStore:
    """Test questions of collections and their last two runs. May be used from any thread; every write is one
    transaction, durable on return. A collection with test questions is kept without documents.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def questions(self, collection: str, after: str = "", limit: int = MAX_QUESTIONS) -> QuestionPage:
        """Returns up to ``limit`` questions after the one of the given id, in the order in which they were added.

        Raises:
            CollectionNotFound: It does not exist.
        """
        with self._database.snapshot() as connection:
            number = require_collection(connection, collection).number
            (total,) = connection.execute(
                "SELECT count(*) FROM test_questions WHERE collection = ?", (number,)
            ).fetchone()
            runs = connection.execute(_RUNS, (number,)).fetchall()
            last, before = ([run for run, *_ in runs] + [None, None])[:2]
            rows = connection.execute(_QUESTIONS, (number, last, before, after, limit + 1)).fetchall()
            more = len(rows) > limit
            rows = rows[:limit]
            hits = [json.loads(row[6]) if row[6] else [] for row in rows]
            names = _document_names(connection, number, {hit["document_id"] for hit in chain(*hits)})
        questions = tuple(_question_of(row, each, names) for row, each in zip(rows, hits, strict=True))
        previous = (*map(_run_of, runs), None, None)
        return QuestionPage(questions, total, questions[-1].question_id if more else None, *previous[:2])

    def add(self, collection: str, new: NewQuestion) -> StoredQuestion:
        """Adds a question; returns the one that is there if it is.

        Raises:
            CollectionNotFound: It does not exist.
        """
        with self._database.writing() as connection:
            number = _require_kept(connection, collection)
            there = _present(connection, number)
            if new in there:
                return StoredQuestion(there[new], new.question, new.document, new.text)
            if len(there) >= MAX_QUESTIONS:
                raise InvalidRequest("question", f"would be one more than the {MAX_QUESTIONS:,} that a collection has")
            (question_id,) = _insert(connection, number, (new,))
        return StoredQuestion(question_id, new.question, new.document, new.text)

    def replace(self, collection: str, new: Sequence[NewQuestion]) -> int:
        """Makes these the questions of a collection; those that it has stay with their results. Returns how many.

        Raises:
            CollectionNotFound: It does not exist.
        """
        with self._database.writing() as connection:
            number = _require_kept(connection, collection)
            there = _present(connection, number)
            wanted = dict.fromkeys(new)
            connection.executemany(
                "DELETE FROM test_questions WHERE collection = ? AND id = ?",
                [(number, question_id) for known, question_id in there.items() if known not in wanted],
            )
            _insert(connection, number, [each for each in wanted if each not in there])
        return len(wanted)

    def delete(self, collection: str, question_id: str) -> StoredQuestion:
        """Removes a question with its results.

        Raises:
            CollectionNotFound, QuestionNotFound: It does not exist.
        """

        def remove(connection: apsw.Connection) -> StoredQuestion:
            number = require_collection(connection, collection).number
            row = connection.execute(
                "DELETE FROM test_questions WHERE collection = ? AND id = ? RETURNING id, question, document, expected",
                (number, question_id),
            ).fetchone()
            if row is None:
                raise QuestionNotFound(question_id)
            return StoredQuestion(*row)

        return self._database.remove(remove)

    def keep(self, collection: str, run: EvaluationRun, results: Mapping[str, QuestionResult]) -> None:
        """Keeps a run, and of earlier ones only the last.

        Args:
            results: Results by id of the question; those of questions that were removed meanwhile are left out.

        Raises:
            CollectionNotFound: It does not exist.
        """
        with self._database.writing() as connection:
            number = require_collection(connection, collection).number
            (newest,) = connection.execute(
                "SELECT ifnull(max(run), 0) FROM test_runs WHERE collection = ?", (number,)
            ).fetchone()
            connection.execute(
                "INSERT INTO test_runs (collection, run, started_at, finished_at, summary) VALUES (?, ?, ?, ?, ?)",
                (
                    number,
                    newest + 1,
                    run.started_at.isoformat(),
                    run.finished_at.isoformat(),
                    json.dumps(asdict(run.summary)),
                ),
            )
            connection.executemany(
                "INSERT INTO test_results (collection, run, id, rank, hits) SELECT collection, ?, id, ?, ? "
                "FROM test_questions WHERE collection = ? AND id = ?",
                [
                    (newest + 1, result.rank, _encode_hits(result.hits), number, question_id)
                    for question_id, result in results.items()
                ],
            )
            connection.execute(
                "DELETE FROM test_runs WHERE collection = ? AND run <= ?", (number, newest + 1 - _KEPT_RUNS)
            )


def _require_kept(connection: apsw.Connection, name: str) -> int:
    """Returns the row id of a collection, which then exists until it is deleted."""
    number = require_collection(connection, name).number
    connection.execute("UPDATE collections SET kept = 1 WHERE collection = ?", (number,))
    return number


def _present(connection: apsw.Connection, number: int) -> dict[NewQuestion, str]:
    """Returns the ids of a collection's questions."""
    rows = connection.execute(
        "SELECT id, question, document, expected FROM test_questions WHERE collection = ?", (number,)
    )
    return {NewQuestion(*texts): question_id for question_id, *texts in rows}


def _insert(connection: apsw.Connection, number: int, questions: Sequence[NewQuestion]) -> list[str]:
    """Adds questions; returns their ids: 48 bits of Unix milliseconds, 16 of order and 16 random ones."""
    newest = "SELECT ifnull(max(id), '0') FROM test_questions WHERE collection = ?"
    (last,) = connection.execute(newest, (number,)).fetchone()
    # Later than any there is: two calls may come in one millisecond, and clocks go back.
    now = max(time.time_ns() // 1_000_000, int(last[:12], 16) + 1)
    ids = [f"{now:012x}{order:04x}{secrets.token_hex(2)}" for order in range(len(questions))]
    connection.executemany(
        "INSERT INTO test_questions (collection, id, question, document, expected) VALUES (?, ?, ?, ?, ?)",
        [
            (number, question_id, each.question, each.document, each.text)
            for question_id, each in zip(ids, questions, strict=True)
        ],
    )
    return ids


def _encode_hits(hits: Iterable[EvaluationHit]) -> str:
    """Encodes hits without names of documents, which are those of the documents as long as they exist."""
    return json.dumps([{name: value for name, value in asdict(hit).items() if name != "document"} for hit in hits])


def _document_names(connection: apsw.Connection, number: int, ids: set[str]) -> dict[str, str]:
    rows = connection.execute(
        "SELECT id, name FROM documents WHERE collection = ? AND id IN (SELECT value FROM json_each(?))",
        (number, json.dumps(sorted(ids))),
    )
    return dict(rows.fetchall())


def _question_of(row: Sequence[Any], hits: Sequence[dict[str, Any]], names: Mapping[str, str]) -> StoredQuestion:
    question_id, question, document, text, exists, rank, ran, before, ran_before = row
    result = None
    if ran is not None:
        found = tuple(EvaluationHit(document=names.get(hit["document_id"]), **hit) for hit in hits)
        result = QuestionResult(rank, before, compared(rank, before, asked_before=bool(ran_before)), found)
    return StoredQuestion(question_id, question, document, text, bool(exists), result)


def _run_of(row: Sequence[Any]) -> EvaluationRun:
    _, started_at, finished_at, summary = row
    return EvaluationRun(
        datetime.fromisoformat(started_at),
        datetime.fromisoformat(finished_at),
        EvaluationSummary(**json.loads(summary)),
    )
