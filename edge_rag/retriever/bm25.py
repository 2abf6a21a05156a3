"""BM25 over a collection's full text with SQLite's FTS5, and the query terms of a question."""

from __future__ import annotations

import re
import unicodedata
from math import log

from edge_rag.core.ids import ChunkId
from edge_rag.core.text import FUNCTION_WORDS
from edge_rag.storage.database import Database
from edge_rag.storage.filter_sql import SqlCondition, SqlValue
from edge_rag.storage.migrations import fulltext_table

_WORD = re.compile(r"[^\W_]+")
_MAX_TERMS = 64


def query_terms(question: str) -> tuple[str, ...]:
    """Returns the distinct content words of a question, lower case and in order; at most 64.

    English function words are left out, unless the question has no other words.
    """
    words = dict.fromkeys(word.lower() for word in _WORD.findall(unicodedata.normalize("NFC", question)))
    content = [word for word in words if word not in FUNCTION_WORDS] or list(words)
    return tuple(content[:_MAX_TERMS])


def match_expression(terms: tuple[str, ...]) -> str:
    """Returns an FTS5 query that matches any of the terms.

    Each term is a quoted string of letters and digits, so user input can never be an operator.
    """
    return " OR ".join(f'"{term}"' for term in terms)


class Bm25Index:
    """Ranks a collection's chunks by the words they share with a question. May be used from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def search(
        self, collection: int, question: str, limit: int, within: SqlCondition | None = None
    ) -> dict[ChunkId, float]:
        """Returns the best chunks by BM25 (FTS5: k1 = 1.2, b = 0.75) with their scores, best first; ties by id.

        Any content word of the question may match, in the text of the chunk or in the headings above it.

        Args:
            collection: Row id of the collection.
            question: Any text.
            limit: Most chunks to return; fewer are returned only if fewer match.
            within: Condition on the chunks, part of the statement. Scores stay those of the whole collection.
        """
        terms = query_terms(question)
        if not terms:
            return {}
        table = fulltext_table(collection)
        matching = f"{table} WHERE {table} MATCH ?"
        parameters: tuple[SqlValue, ...] = (match_expression(terms),)
        if within is not None:  # CROSS JOIN keeps SQLite from running the full text query once per document
            matching = (
                f"{table} CROSS JOIN chunks k ON k.chunk = {table}.rowid CROSS JOIN documents d USING (document) "
                f"WHERE {table} MATCH ? AND ({within.sql})"
            )
            parameters += within.parameters
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT {table}.rowid, bm25({table}) FROM {matching} ORDER BY 2, 1 LIMIT ?",
                (*parameters, limit),
            ).fetchall()
        return {ChunkId(row): -score for row, score in rows}

    def term_weights(self, collection: int, question: str) -> dict[str, float]:
        """Returns ln((n + 1) / (df + 0.5)) for each content word of the question.

        n is the number of chunks of the collection, df the number of chunks with the word or one of the same stem.

        Args:
            collection: Row id of the collection.
            question: Any text.
        """
        table = fulltext_table(collection)
        weights: dict[str, float] = {}
        with self._database.snapshot() as connection:
            (chunks,) = connection.execute(
                "SELECT coalesce(sum(chunks), 0) FROM documents WHERE collection = ?", (collection,)
            ).fetchone()
            for term in query_terms(question):
                (matches,) = connection.execute(
                    f"SELECT count(*) FROM {table} WHERE {table} MATCH ?", (match_expression((term,)),)
                ).fetchone()
                weights[term] = log((chunks + 1) / (matches + 0.5))
        return weights
