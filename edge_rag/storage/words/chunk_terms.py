"""The terms of a chunk in the full text index, by which searches find it."""

from __future__ import annotations

from collections import Counter
from typing import Final

import apsw

from edge_rag.analysis.terms import terms_of
from edge_rag.core.documents.document import ChunkTerm
from edge_rag.core.ids import ChunkId
from edge_rag.storage.migrations import fulltext_table

MAX_CHUNK_TERMS: Final = 1000
"""Most terms of a chunk that are looked up at once."""

COUNTED_CHUNKS: Final = 1024
"""Chunks with a term are counted up to this number."""


def held_terms(
    connection: apsw.Connection, collection: int, chunk: ChunkId, text: str, context: str
) -> tuple[tuple[ChunkTerm, ...], int]:
    """Looks the terms of a chunk up in the index.

    Returns:
        The terms, those of the headings first, and how many more than ``MAX_CHUNK_TERMS`` there are.
    """
    above, inside = list(terms_of(context)), list(terms_of(text))
    words: dict[str, str] = {}
    for part, found in ((context, above), (text, inside)):
        for start, end, term in found:
            words.setdefault(term, part[start:end])
    counts, headed = (Counter(term for _, _, term in found) for found in (inside, above))
    table = fulltext_table(collection)
    held = f"SELECT count(*) FROM {table} WHERE {table} MATCH ? AND rowid = ?"
    having = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT {COUNTED_CHUNKS})"
    terms = []
    for term, word in list(words.items())[:MAX_CHUNK_TERMS]:
        # A word is a quoted string without quotation marks: it is never an operator.
        (indexed,) = connection.execute(held, (f'"{word}"', chunk)).fetchone()
        (chunks,) = connection.execute(having, (f'"{word}"',)).fetchone()
        terms.append(ChunkTerm(term, word, counts[term], headed[term] > 0, bool(indexed), chunks))
    return tuple(terms), len(words) - len(terms)
