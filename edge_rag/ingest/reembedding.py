"""Embeds stored chunks again after the embedding model has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import structlog

from edge_rag.core.placement import OffloadRule
from edge_rag.core.ports import Embedder, Embedding
from edge_rag.ingest.chunking import index_text
from edge_rag.storage.database import Database
from edge_rag.storage.statements import Collection, encode_vector, ensure_embedder, renew_generation

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
