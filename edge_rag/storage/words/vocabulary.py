"""The words of each collection as they are written, with the number of chunks that have each.

The full text index has only terms, from which words cannot be restored. A table has the words themselves: of the
chunks, of the headings above them, and of the names and titles of documents, where each document counts like a chunk.
It is changed in the transaction that writes or removes a document, so that it is exact at any moment: no word outlives
the last document that has it. The alternative, reading all chunks again when a collection has changed, would take a
minute of a small board for each change of a large library, and the words of a removed document would live until then.

A new word gets a larger number than all before it, so that a vocabulary in memory is brought up to date by reading the
words after its last one.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import apsw

from edge_rag.analysis.terms import words_of

MAX_WORD_CHARACTERS: Final = 40
"""Longer words are not kept: they are mostly words that a parser failed to separate."""

_ADD: Final = (
    "INSERT INTO words (collection, word, chunks) VALUES (?, ?, ?) "
    "ON CONFLICT DO UPDATE SET chunks = chunks + excluded.chunks"
)
_TEXTS: Final = (
    "SELECT text, context FROM chunks WHERE document = ?",
    "SELECT name, title FROM documents WHERE document = ?",
)


def count_words(connection: apsw.Connection, collection: int, document: int) -> None:
    """Adds the words of a document that was written."""
    counts = _counted(connection, document)
    connection.executemany(_ADD, [(collection, word, count) for word, count in counts.items()])


def discount_words(connection: apsw.Connection, collection: int, document: int) -> None:
    """Takes the words of a document away that is about to be removed."""
    counts = _counted(connection, document)
    connection.executemany(
        "UPDATE words SET chunks = chunks - ? WHERE collection = ? AND word = ?",
        [(count, collection, word) for word, count in counts.items()],
    )
    connection.executemany(
        "DELETE FROM words WHERE collection = ? AND word = ? AND chunks <= 0",
        [(collection, word) for word in counts],
    )


def _counted(connection: apsw.Connection, document: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for statement in _TEXTS:
        for texts in connection.execute(statement, (document,)):
            counts.update({word for text in texts for _, _, word in words_of(text) if len(word) <= MAX_WORD_CHARACTERS})
    return counts
