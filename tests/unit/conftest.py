from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.document import IngestOutcome, Upload
from edge_rag.core.ports import Embedder
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


def ingest(directory: OpenDirectory, name: str, text: str, collection: str = "default") -> IngestOutcome:
    return directory.library.ingest(Upload.of_bytes(collection, name, "text/plain", text.encode()))
