"""A collection to measure on, ingested through the product's library and kept between runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import track

from edge_rag.bootstrap.open_directory import OpenDirectory, RetrieverOptions, open_data_directory
from edge_rag.core.documents.document import IngestStatus, Upload
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.retriever.hybrid import HybridRetriever
from edge_rag.runtime.encoder.text_encoder import TextEncoder

COLLECTION: Final = "measured"


def collection_folder(cache: Path, encoder: TextEncoder, settings: RetrieverOptions, texts: Mapping[str, str]) -> Path:
    """Where a collection is kept: another folder for other documents, another encoder or chunks of another size."""
    digest = hashlib.sha256(f"{encoder.name} {settings.chunk_tokens} {settings.context_tokens}".encode())
    for name, text in sorted(texts.items()):
        digest.update(f"\0{name}\0{text}".encode())
    return cache / digest.hexdigest()[:16]


@contextmanager
def opened_collection(
    folder: Path, encoder: TextEncoder, settings: RetrieverOptions, texts: Mapping[str, str], console: Console
) -> Iterator[OpenDirectory]:
    """Yields a data directory that holds the documents as plain text; those that it has already are not read again.

    Args:
        folder: The data directory, made if need be. What a run before did not finish is gone on with.
        encoder: Embeds the documents.
        settings: How documents are cut and found.
        texts: Documents by name.
        console: Where progress is shown.
    """
    folder.mkdir(parents=True, exist_ok=True)
    directory = open_data_directory(folder, encoder, settings)
    try:
        present = directory.documents.document_counts().get(COLLECTION, 0)
        if present < len(texts):
            for name, text in track(texts.items(), f"ingesting into {folder.name}", console=console):
                outcome = directory.library.ingest(Upload.of_bytes(COLLECTION, name, "text/plain", text.encode()))
                if outcome.status is IngestStatus.REJECTED:
                    raise SystemExit(f"{name} was not taken: {outcome.reason}")
        yield directory
    finally:
        directory.close()


def retrieved(retriever: HybridRetriever, question: str, limit: int) -> Retrieved:
    """Asks a collection that ``opened_collection`` yielded.

    Raises:
        EdgeRagError: The retriever failed.
    """
    (answer,) = retriever.retrieve([RetrievalRequest(question, COLLECTION, limit)])
    if isinstance(answer, Exception):
        raise answer
    return answer
