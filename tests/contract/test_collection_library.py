"""What collections promise the server, over real SQLite and FAISS."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.collection import CollectionSettings, FusionWeights, RecencyBoost, ValueBoost
from edge_rag.core.documents.document import IngestStatus, Upload
from edge_rag.core.ids import require_recognized
from edge_rag.core.passage import RetrievalRequest
from edge_rag.core.placement import OffloadRule
from edge_rag.errors import CollectionExists, CollectionNotFound, InvalidRequest
from edge_rag.storage.collections import CollectionStore
from tests.unit.retriever.hashed_words import HashedWords

_CHOSEN = CollectionSettings(
    description="Kesselhaus \N{GREEK SMALL LETTER ALPHA}",
    fusion=FusionWeights(2.0, 0.0, 10.0),
    chunk_tokens=48,
    recency=RecencyBoost(None, 90.0, 2.0),
    boosts=(
        ValueBoost("source", "official", 2.0),
        ValueBoost("draft", True, 0.5),
        ValueBoost("number", 1.0, 3.0),
        ValueBoost("at", datetime(2020, 5, 1, tzinfo=UTC), 4.0),
    ),
    merge_neighbours=True,
    drop_duplicates=False,
    offload=OffloadRule.REDACTED,
    title="Kesselhaus 2",
    labels={"site": "north", "owner": ""},
)

Opener = Callable[[], OpenDirectory]


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Opener]:
    """Opens one data directory, closing it first where it is open."""
    opened: list[OpenDirectory] = []

    def open_again() -> OpenDirectory:
        while opened:
            opened.pop().close()
        opened.append(OpenDirectory(tmp_path / "data", HashedWords()))
        return opened[-1]

    yield open_again
    while opened:
        opened.pop().close()


@pytest.fixture
def directory(reopen: Opener) -> OpenDirectory:
    return reopen()


@pytest.fixture
def library(directory: OpenDirectory) -> CollectionStore:
    return directory.collections


def ingest(directory: OpenDirectory, collection: str, text: str = "a bearing") -> IngestStatus:
    return require_recognized(
        directory.library.ingest(Upload.of_bytes(collection, "a.txt", "text/plain", text.encode())).status
    )


def test_a_collection_is_as_it_was_made(library: CollectionStore) -> None:
    made = library.create("boiler", _CHOSEN)

    assert (made.settings, made.documents, made.chunks, made.kept) == (_CHOSEN, 0, 0, True)
    assert library.get("boiler") == made
    library.create("attic", CollectionSettings())
    assert [info.name for info in library.list()] == ["attic", "boiler"]


def test_settings_outlive_a_restart(reopen: Opener) -> None:
    made = reopen().collections.create("boiler", _CHOSEN)

    assert reopen().collections.list() == (made,)


def test_only_what_is_changed_changes(library: CollectionStore) -> None:
    library.create("boiler", _CHOSEN)

    changed = library.update("boiler", {"description": "", "recency": None}).settings

    assert (changed.description, changed.recency) == ("", None)
    assert (changed.boosts, changed.fusion, changed.chunk_tokens) == (_CHOSEN.boosts, _CHOSEN.fusion, 48)


def test_documents_are_counted(directory: OpenDirectory, library: CollectionStore) -> None:
    ingest(directory, "boiler")

    info = library.get("boiler")
    assert (info.documents, info.chunks, info.kept, info.settings) == (1, 1, False, CollectionSettings())
    assert info.size_bytes == len("a bearing")
    assert info.created_at is not None
    assert info.ingested_at is not None
    assert info.ingested_at >= info.created_at


def test_a_deleted_collection_is_gone_for_good(reopen: Opener) -> None:
    directory = reopen()
    directory.collections.create("boiler", _CHOSEN)
    ingest(directory, "boiler")
    ingest(directory, "other", "another bearing")

    assert directory.library.delete_collection("boiler").documents == 1
    _require_gone(directory)
    _require_gone(reopen())


def _require_gone(opened: OpenDirectory) -> None:
    """Of two collections, only ``other`` is left."""
    assert [info.name for info in opened.collections.list()] == ["other"]
    (refused, found) = opened.retriever.retrieve(
        [RetrievalRequest("bearing", "boiler", 5), RetrievalRequest("bearing", "other", 5)]
    )
    assert isinstance(refused, CollectionNotFound)
    assert not isinstance(found, Exception)
    assert [hit.passage.document for hit in found.hits] == ["a.txt"]


def test_a_name_that_is_taken_unknown_or_unusable_is_refused(library: CollectionStore) -> None:
    library.create("boiler", _CHOSEN)
    with pytest.raises(CollectionExists):
        library.create("boiler", CollectionSettings())
    with pytest.raises(InvalidRequest):
        library.create("Boiler House", CollectionSettings())
    with pytest.raises(CollectionNotFound):
        library.get("attic")
    with pytest.raises(CollectionNotFound):
        library.update("attic", {"description": "x"})
    with pytest.raises(CollectionNotFound):
        library.drop("attic")
    assert library.get("boiler").settings == _CHOSEN
