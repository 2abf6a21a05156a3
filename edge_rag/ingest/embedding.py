"""Vectors from the embedder of this box, and the embedding of stored chunks after a change of the model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_rag.core.placement import OffloadRule
from edge_rag.core.ports import Embedder, Embedding
from edge_rag.core.query import Question
from edge_rag.ingest.chunking import index_text
from edge_rag.storage.database import Database
from edge_rag.storage.statements import Collection, encode_vector, ensure_embedder, renew_generation

BATCH_TEXTS: Final = 8
"""Passages embedded at once; a question waits for at most so many."""


class LocalEmbedding:
    """Implements ``Embedding`` with an embedder. May be used from any thread."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def questions(self, questions: Sequence[Question]) -> NDArray[np.float32]:
        """Embeds questions; see ``Embedding``."""
        return self._embedder.embed_questions([question.text for question in questions])

    def passages(
        self,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule],
        embed_locally: Callable[[Sequence[str]], NDArray[np.float32]],
        yield_to_queries: Callable[[float], None],
        on_progress: Callable[[int], None],
    ) -> NDArray[np.float32]:
        """Embeds passages, a few at a time; see ``Embedding``."""
        vectors: list[NDArray[np.float32]] = []
        for first in range(0, len(texts), BATCH_TEXTS):
            on_progress(first)
            began = time.monotonic()
            vectors.append(embed_locally(texts[first : first + BATCH_TEXTS]))
            yield_to_queries(time.monotonic() - began)
        return np.concatenate(vectors) if vectors else embed_locally(texts)


_log = structlog.get_logger(__name__)
_CHUNKS_PER_TRANSACTION = 256


def reembed(database: Database, collections: tuple[Collection, ...], embedder: Embedder, embedding: Embedding) -> int:
    """Embeds every chunk again whose vector another embedder computed.

    Works in small transactions: after an interruption the next start continues where this one ended.

    Args:
        database: Holds the chunks.
        collections: The collections; their settings must not change meanwhile.
        embedder: The embedder of this box.
        embedding: Source of the vectors.

    Returns:
        Number of chunks embedded.

    Raises:
        InferenceFailed: The model could not be run.
        StorageError: The database failed.
    """
    total = 0
    for collection in collections:
        done = sum(_reembed_collection(database, collection, embedder, embedding))
        if done:
            _log.warning(
                "embedded again because the embedding model has changed",
                collection=collection.name,
                chunks=done,
                embedder=embedder.name,
            )
        total += done
    return total


def _reembed_collection(
    database: Database, collection: Collection, embedder: Embedder, embedding: Embedding
) -> Iterator[int]:
    def rule() -> OffloadRule:
        return collection.settings.offload

    with database.writing() as connection:
        current = ensure_embedder(connection, embedder.name, embedder.dimension)
    while True:
        with database.reading() as connection:
            rows = connection.execute(
                "SELECT chunk, context, text FROM chunks WHERE collection = ? AND embedder <> ? LIMIT ?",
                (collection.number, current, _CHUNKS_PER_TRANSACTION),
            ).fetchall()
        if not rows:
            return
        texts = [index_text(json.loads(context), text) for _, context, text in rows]
        # The daemon serves nothing yet, so there are no queries to yield to and no progress to report.
        vectors = embedding.passages(texts, rule, embedder.embed, lambda worked_s: None, lambda done: None)
        with database.writing() as connection:
            connection.executemany(
                "UPDATE chunks SET embedder = ?, embedding = ? WHERE chunk = ?",
                [(current, encode_vector(vector), chunk) for (chunk, _, _), vector in zip(rows, vectors, strict=True)],
            )
            renew_generation(connection, collection.number)
        yield len(rows)
