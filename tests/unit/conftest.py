from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.document import IngestOutcome, ParsedDocument, Upload
from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.ports import Embedder
from edge_rag.storage.database import Database
from edge_rag.storage.documents import DocumentStore
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.spool.originals import Originals
from edge_rag.storage.statements import NewDocument
from tests.unit.retriever.hashed_words import HashedWords

Opener = Callable[..., OpenDirectory]


@pytest.fixture
def open_directory(tmp_path: Path) -> Iterator[Opener]:
    """Opens ``tmp_path/data``, by default with hashed words; whatever is open at the end of the test is closed."""
    opened: list[OpenDirectory] = []

    def start(embedder: Embedder | None = None) -> OpenDirectory:
        directory = OpenDirectory(tmp_path / "data", embedder or HashedWords())
        opened.append(directory)
        return directory

    yield start
    for directory in opened:
        directory.close()


def new_document(
    name: str,
    text: str = "text",
    metadata: Metadata | None = None,
    *,
    collection: str = "default",
    title: str = "",
    size_bytes: int = 4,
) -> NewDocument:
    """A document without chunks, which nothing can find."""
    metadata, vectors, parsed = metadata or {}, np.empty((0, 8), np.float32), ParsedDocument(title, text, ())
    plain = (collection, name, "text/plain", "0" * 64, size_bytes, parsed, (), "none", vectors)
    return NewDocument(*plain, metadata, metadata, 120)


def document_store(folder: Path, database: Database) -> DocumentStore:
    """Keeps no originals."""
    originals = Originals(folder / "originals", database, keep=False)
    return DocumentStore(database, Spool(folder / "spool", 1 << 30), originals)


def ingest(directory: OpenDirectory, name: str, text: str, collection: str = "default") -> IngestOutcome:
    return directory.library.ingest(Upload.of_bytes(collection, name, "text/plain", text.encode()))
