"""Passages that look right and are not: what BM25 finds for a question, by SQLite's FTS5 as the product uses it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from math import log

from edge_rag.retriever.bm25 import match_expression, query_terms


class LexicalPool:
    """Full text of all training texts, in memory. For one thread.

    Args:
        texts: The texts; a text is known by its place among them.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._size = len(texts)
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute(
            "CREATE VIRTUAL TABLE pool USING fts5(text, tokenize='porter unicode61 remove_diacritics 2')"
        )
        self._connection.executemany("INSERT INTO pool (rowid, text) VALUES (?, ?)", enumerate(texts))

    def search(self, question: str, limit: int) -> list[int]:
        """Returns the best texts by BM25 for any content word of a question, best first."""
        terms = query_terms(question)
        if not terms:
            return []
        rows = self._connection.execute(
            "SELECT rowid FROM pool WHERE pool MATCH ? ORDER BY bm25(pool), rowid LIMIT ?",
            (match_expression(terms), limit),
        )
        return [row for (row,) in rows]

    def term_weights(self, text: str) -> dict[str, float]:
        """Returns ln((n + 1) / (df + 0.5)) of each content word, where df of n texts have it or one of its stem."""
        weights: dict[str, float] = {}
        for term in query_terms(text):
            (having,) = self._connection.execute(
                "SELECT count(*) FROM pool WHERE pool MATCH ?", (match_expression((term,)),)
            ).fetchone()
            weights[term] = log((self._size + 1) / (having + 0.5))
        return weights

    def close(self) -> None:
        """Lets the memory go."""
        self._connection.close()
