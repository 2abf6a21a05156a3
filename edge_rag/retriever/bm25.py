"""BM25 over a collection's full text with SQLite's FTS5, and the query terms of a question.

Terms are those of ``edge_rag.analysis``; the full text table's tokenizer derives them from words. Words in most chunks
of a collection have no weight, so function words need no list. English has one besides, since manuals hardly contain
the words that questions begin with.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from math import log
from typing import Final

import apsw

from edge_rag.analysis.languages import ENGLISH_FUNCTION_WORDS
from edge_rag.analysis.terms import terms_of
from edge_rag.core.ids import ChunkId
from edge_rag.storage.database import Database
from edge_rag.storage.filter_sql import SqlCondition, SqlValue
from edge_rag.storage.migrations import MATCHED, fulltext_table

MAX_TERMS: Final = 128
"""Most words of a question that are searched for; in scripts without spaces nearly every character begins one."""

_EXAMINED_WORDS: Final = 1024
"""Most distinct words of a long question that are looked up, half from its beginning and half from its end."""

_COUNTED_CHUNKS: Final = 1024
"""Words in more chunks than this are equally common where only their order counts."""

_MAX_MATCHES: Final = 200_000
"""Most matches (pairs of a word and a chunk that has it) of a search; the most common words are left out above it."""

COMMON_SHARE: Final = 0.5
"""A word in more than this share of the chunks is a function word there. The inverse document frequency of Robertson
and Spärck Jones (1976), which FTS5 uses, is 0 at this share."""

_MIN_TERMS: Final = 8
"""So many words are searched for however common they are."""


def query_words(question: str) -> dict[str, str]:
    """Returns the distinct terms of a question, in order, each with its first word in lower case.

    English function words are left out, unless the question has no other words.
    """
    words: dict[str, str] = {}
    for start, end, term in terms_of(question):
        words.setdefault(term, question[start:end].lower())
    return {term: word for term, word in words.items() if word not in ENGLISH_FUNCTION_WORDS} or words


def query_terms(question: str) -> tuple[str, ...]:
    """Returns the first 128 words of a question, of words with the same term one."""
    return tuple(query_words(question).values())[:MAX_TERMS]


def match_expression(words: Collection[str]) -> str:
    """Returns an FTS5 query that matches any of the words.

    Each word is a quoted string without quotation marks, so user input can never be an operator.
    """
    return " OR ".join(f'"{word}"' for word in words)


class Bm25Index:
    """Ranks a collection's chunks by the words they share with a question. May be used from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def search(
        self, collection: int, terms: Collection[str], limit: int, within: SqlCondition | None = None
    ) -> dict[ChunkId, float]:
        """Returns the best chunks by BM25 (FTS5: k1 = 1.2, b = 0.75) with their scores, best first; ties by id.

        Any of the words may match, in the text of the chunk or in the headings above it.
        """
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

    def held_weights(self, collection: int, weights: Mapping[str, float], chunks: Collection[ChunkId]) -> list[float]:
        """Returns the term weight of a question that is in each chunk, in any order."""
        values = tuple(weights.values())
        return [sum(values[position] for position in held) for held in self._held(collection, weights, chunks)]

    def chunks(self, collection: int) -> int:
        with self._database.reading() as connection:
            return _chunks(connection, collection)

    def counts(self, collection: int, words: Collection[str]) -> dict[str, int]:
        """Returns the number of chunks with each word or one of the same term, up to 1,024; words without quotes."""
        table = fulltext_table(collection)
        with self._database.snapshot() as connection:
            return {word: _matches(connection, table, word, _COUNTED_CHUNKS) for word in words}

    def held_words(self, collection: int, words: Sequence[str], limit: int) -> list[tuple[int, ...]]:
        """Returns the indices of the words that each of the best chunks by BM25 has; the first 128 words count."""
        words = words[:MAX_TERMS]
        best = self.search(collection, words, limit)
        return self._held(collection, words, best, one_pass=True) if best else []

    def has_phrase(self, collection: int, words: Sequence[str]) -> bool:
        """Whether a chunk has these words, or ones of the same terms, in succession; words without quotes."""
        with self._database.reading() as connection:
            return _matches(connection, fulltext_table(collection), " ".join(words), 1) > 0

    def _held(
        self, collection: int, words: Collection[str], chunks: Collection[ChunkId], *, one_pass: bool = False
    ) -> list[tuple[int, ...]]:
        """Returns which of some words each of some chunks has, by position.

        SQLite runs the query once per chunk, or in one pass over all matches, which is faster for many words in few
        chunks each; a plus sign selects the latter.
        """
        table, plus = fulltext_table(collection), "+" if one_pass else ""
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT {MATCHED}({table}) FROM {table} WHERE {table} MATCH ? "
                f"AND {plus}rowid IN (SELECT value FROM json_each(?))",
                (match_expression(words), json.dumps(list(chunks))),
            ).fetchall()
        return [tuple(map(int, str(phrases).split())) for (phrases,) in rows]

    def term_weights(self, collection: int, question: str) -> dict[str, float]:
        """Returns ln((n + 1) / (df + 0.5)) of the words to search for, in their order in the question.

        n is the number of chunks of the collection, df the number of chunks with the word or one of the same term. The
        words are the first 128 of the question without those that more than half of the chunks have, unless all are. In
        a large collection the most common ones of many are left out where all of them have too many matches.
        """
        table, words = fulltext_table(collection), query_terms(question)
        with self._database.snapshot() as connection:
            chunks = _chunks(connection, collection)
            matches: dict[str, int] = {}
            left = _MAX_MATCHES
            if len(words) > _MIN_TERMS:
                rough = {word: _matches(connection, table, word, _COUNTED_CHUNKS) for word in words}
            else:
                rough = dict.fromkeys(words, _COUNTED_CHUNKS)
            for word in sorted(words, key=rough.__getitem__):
                most = None if len(matches) < _MIN_TERMS else left + 1
                count = rough[word] if rough[word] < _COUNTED_CHUNKS else _matches(connection, table, word, most)
                left -= count
                if left < 0 and len(matches) >= _MIN_TERMS:
                    break
                matches[word] = count
        distinctive = {word for word, count in matches.items() if count <= COMMON_SHARE * chunks} or matches.keys()
        return {word: _weight(chunks, matches[word]) for word in words if word in distinctive}

    def rough_weights(self, collection: int, text: str) -> dict[str, float]:
        """Returns the weights of those terms of a long text that the collection has, up to 1,024 of them, without those
        that more than half of its chunks have.

        Terms in more than 1,024 chunks have the weight of one in 1,024 chunks, so that a look-up has a bound.
        """
        table, words = fulltext_table(collection), list(query_words(text).items())
        if len(words) > _EXAMINED_WORDS:
            words = words[: _EXAMINED_WORDS // 2] + words[-_EXAMINED_WORDS // 2 :]
        with self._database.snapshot() as connection:
            chunks = _chunks(connection, collection)
            rough = {term: _matches(connection, table, word, _COUNTED_CHUNKS) for term, word in words}
        present = {term: count for term, count in rough.items() if count}
        distinctive = {term: count for term, count in present.items() if count <= COMMON_SHARE * chunks} or present
        return {term: _weight(chunks, count) for term, count in distinctive.items()}


def _chunks(connection: apsw.Connection, collection: int) -> int:
    statement = "SELECT coalesce(sum(chunks), 0) FROM documents WHERE collection = ?"
    (chunks,) = connection.execute(statement, (collection,)).fetchone()
    return int(chunks)


def _matches(connection: apsw.Connection, table: str, word: str, most: int | None) -> int:
    statement = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)"
    (found,) = connection.execute(statement, (match_expression((word,)), -1 if most is None else most)).fetchone()
    return int(found)


def _weight(chunks: int, matches: int) -> float:
    return log((chunks + 1) / (matches + 0.5))
