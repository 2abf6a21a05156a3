"""A data directory with a collection of very many documents, written without reading or embedding any."""

from __future__ import annotations

import hashlib
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from edge_rag.core.documents.document import Chunk, DocumentInfo
from edge_rag.core.ids import DocumentId
from edge_rag.runtime.model_folder.manifest import parse_manifest
from edge_rag.storage.data_directory import DataDirectory
from edge_rag.storage.database import Database
from edge_rag.storage.statements import ensure_collection, ensure_embedder, insert_chunk, insert_document

ROOT = Path(__file__).parents[3]

EMBEDDER = ROOT / "models" / "minilm-l6"
"""A daemon with another one computes all vectors anew."""

FIRST_INGEST = datetime(2026, 1, 1, tzinfo=UTC)


def document_name(number: int) -> str:
    """Name of a document of the collection; names are in the order of their numbers."""
    return f"record-{number:06d}.txt"


def crowd(data: Path, documents: int, collection: str = "records") -> None:
    """Makes a data directory with a collection of one-line documents, each a minute older than the one before.

    Args:
        data: The directory; no daemon has run in it.
        documents: How many.
        collection: Name of the collection.
    """
    manifest = parse_manifest((EMBEDDER / "manifest.json").read_bytes())
    dimension = manifest.integer("dimension", 1, 65_536)
    vectors = np.random.default_rng(20).standard_normal((documents, dimension), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with DataDirectory(data), closing(Database(data / "documents.sqlite3")) as database:
        with database.writing() as connection:
            number = ensure_collection(connection, collection)
            embedder = ensure_embedder(connection, manifest.identity(), dimension)
            for each in range(documents):
                text = f"Record {each} tells that valve {each % 97} was opened by {each % 13 + 1} turns."
                sha256 = hashlib.sha256(text.encode()).hexdigest()
                info = DocumentInfo(
                    document_id=DocumentId(sha256[:32]),
                    collection=collection,
                    name=document_name(each),
                    title=f"Record {each}",
                    media_type="text/plain",
                    sha256=sha256,
                    size_bytes=len(text),
                    characters=len(text),
                    chunks=1,
                    pages=None,
                    ingested_at=FIRST_INGEST - timedelta(minutes=each),
                    metadata={"valve": float(each % 97)},
                )
                row = insert_document(connection, number, info, text, {}, 128)
                chunk = Chunk(ordinal=0, start=0, end=len(text), page=None, context=(), text=text)
                insert_chunk(connection, number, row, chunk, embedder, vectors[each])
